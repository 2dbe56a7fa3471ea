"""One call of one handler, for unit tests: no server, no time."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expirebridge.handlers import Registry, plain_arguments
from expirebridge.ledger.row_check import outcome_after
from expirebridge.ledger.row_state import RowVersion
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.settings import Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task import keys
from expirebridge.task.durations import check_aware
from expirebridge.task.task import from_ms, to_ms
from expirebridge.task.transactions import Transaction
from expirebridge.testing.attempt import Ran, ran
from expirebridge.testing.environment import OwnLoop
from expirebridge.testing.handlers import Func, Handlers
from expirebridge.testing.traveller import Attempts

if TYPE_CHECKING:
    from expirebridge.listener.execution.attempt import Attempt


class HandlerRow:
    """The row of one id in a ledger, in the database of the handler's own transaction.

    It shows what a handler that is called alone did with `complete_in`. The database is known once
    the handler calls that: SQLAlchemy is imported only then. Without an `id` nothing is completed.
    """

    def __init__(self, ledger: str, id: str | None) -> None:
        self._ledger = ledger
        self._id = id
        self._session: Transaction | None = None
        self._version: RowVersion | None = None
        """As it was before the handler completed it."""

    async def look_up(self, attempt: "Attempt") -> AttemptOutcome | None:
        """Its handler is called whatever the row says."""

    def completer_for(self, attempt: "Attempt") -> Callable[[Transaction], None]:
        """The function that completes the row in a transaction of its handler."""
        return partial(self._complete, attempt.claimed.attempt)

    def _complete(self, attempt: int, session: Transaction) -> None:
        """Raises InvalidTask for what is no transaction, and CompletionRefused."""
        from expirebridge.testing import row_completion  # noqa: PLC0415

        version = row_completion.version_of(session, self._ledger, self._id)
        if self._id is None:
            return
        self._session, self._version = session, self._version or version
        row_completion.complete(session, self._ledger, self._id, self._version, attempt)

    async def look_after(self, attempt: "Attempt", failed: AttemptOutcome) -> AttemptOutcome:
        """The outcome that a listener records for a failed attempt, by the row; the error stays."""
        if self._session is None:
            return failed
        from expirebridge.testing import row_completion  # noqa: PLC0415

        by_row = await row_completion.by_row_after(
            self._session, self._ledger, self._version, attempt
        )
        return outcome_after(failed, by_row)._replace(error=failed.error)


def run_handler(
    func: Func,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    attempt: int = 1,
    id: str | None = None,
    due: datetime | None = None,
    tick: datetime | None = None,
    raising: bool = True,
    tasks: str | Path | None = None,
) -> Ran:
    """Call a handler as a listener would, and return how the attempt ended.

    `func` is the function, or its name in the handlers' folder, `tasks`. The arguments go through
    JSON, as those of a task do: those of a typed handler, given itself, are converted. The handler
    finds `id`, the number of the `attempt`, `due` (now, unless given) and `tick`, for which a task
    of a series stands, in `current_task()`. Without an `id` it is "test".

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
        shown={} if tick is None else {"tick": check_aware(tick, name="tick")},
    )
    attempts = Attempts(Registry({handler.name: handler}), settings)
    row = HandlerRow(settings.ledger_name, id)
    done = ran(*await attempts.run(claimed, row=row), from_ms(to_ms(now)))
    if raising and done.error is not None:
        raise done.error
    return done
