"""One call of one handler, for unit tests: no server, no time."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expirebridge.handlers import Registry, plain_arguments
from expirebridge.settings import Settings
from expirebridge.store.stored_signal import told_of
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task import keys
from expirebridge.task.durations import check_aware
from expirebridge.task.signal import Signal
from expirebridge.task.task import from_ms, to_ms
from expirebridge.testing.attempt import Ran, ran
from expirebridge.testing.carried_rows import row_of
from expirebridge.testing.environment import OwnLoop
from expirebridge.testing.handlers import Func, Handlers
from expirebridge.testing.traveller import Attempts


def run_handler(
    func: Func,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    attempt: int = 1,
    id: str | None = None,
    due: datetime | None = None,
    tick: datetime | None = None,
    signal: Signal | None = None,
    raising: bool = True,
    tasks: str | Path | None = None,
) -> Ran:
    """Call a handler as a listener would, and return how the attempt ended.

    `func` is the function, or its name in the handlers' folder, `tasks`. The arguments go through
    JSON, as those of a task do: those of a typed handler, given itself, are converted. The handler
    finds in `current_task()`: `id`, which is "test" unless given; the number of the `attempt`;
    `due`, which is now unless given; `tick`, for which a task of a series stands; and the `signal`
    that decided that it runs.

    `complete_in` does nothing, unless an `id` is given: then it completes the row of this id in the
    ledger EXPIREBRIDGE_LEDGER_NAME, or `default`, of the handler's own transaction, and raises
    CompletionRefused if that is not to be completed. If the handler fails after it,
    the row says how the attempt ended, as in a listener: what was committed has succeeded.

    `Retry`, `Snooze`, `Busy`, `Discard` and a timeout are results: see `Ran.end`, `Ran.delay` and
    `Ran.reason`.

    Raises what the handler raises; with `raising=False` that is `Ran.error`, and `Ran.delay` is by
    the handler's retry policy. Raises InvalidTask for arguments that JSON cannot hold, and
    HandlersError or InvalidTask if there is no such handler. In an async test: `arun_handler`.
    """
    with OwnLoop() as loop:
        return loop.run(
            arun_handler(
                func,
                args,
                kwargs,
                attempt=attempt,
                id=id,
                due=due,
                tick=tick,
                signal=signal,
                raising=raising,
                tasks=tasks,
            ),
            instead="arun_handler",
        )


async def arun_handler(
    func: Func,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    attempt: int = 1,
    id: str | None = None,
    due: datetime | None = None,
    tick: datetime | None = None,
    signal: Signal | None = None,
    raising: bool = True,
    tasks: str | Path | None = None,
) -> Ran:
    """Do the same in the running event loop: see `run_handler`."""
    settings = Settings.read(tasks=tasks)
    handler = Handlers(settings).find(func)
    now = datetime.now(UTC)
    given = "test" if id is None else id
    plain = plain_arguments(func, args, kwargs)
    encoded = keys.encode_args(*plain, limited=settings.codec is None)
    claimed = ClaimedTask(
        id=keys.check_id(given),
        token="test",  # noqa: S106 - of a claim
        func=handler.name,
        args=encoded,
        key=f"{given}:?{handler.name}?".encode() + encoded,
        due=to_ms(due or now),
        attempt=attempt,
        lapses=0,
        made=int(now.timestamp()),
        told={} if signal is None else told_of(signal),
        shown={} if tick is None else {"tick": check_aware(tick, name="tick")},
    )
    attempts = Attempts(Registry({handler.name: handler}), settings)
    row = row_of(settings, id)
    done = ran(*await attempts.run(claimed, row=row), from_ms(to_ms(now)))
    if raising and done.error is not None:
        raise done.error
    return done
