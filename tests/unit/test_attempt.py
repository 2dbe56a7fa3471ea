"""An attempt ends with an outcome, whatever the handler and the record are like."""

import asyncio
import contextlib
import functools
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
import redis

from expirebridge.handlers import Handler, handler
from expirebridge.hooks import End
from expirebridge.listener.attempt import Attempt, Outcome
from expirebridge.listener.deadlines import Deadlines
from expirebridge.listener.leases import Leases
from expirebridge.listener.outage import Outage
from expirebridge.listener.server_clock import ServerClock
from expirebridge.listener.threads import Threads
from expirebridge.listener.unbegun import NotBegun, Unbegun, Withdrawn
from expirebridge.misfire import Spread
from expirebridge.retry import Discard, Exponential, Retry
from expirebridge.store.store import Store
from expirebridge.store.views import ClaimedTask

PATIENCE = 20.0


def leases_of_nobody() -> Leases:
    """Leases that never beat: their store is not connected."""
    return Leases(
        Store(redis.Redis(), prefix="expirebridge"),
        "nobody",
        lease=60,
        server_clock=ServerClock(),
        outage=Outage(),
        on_beat=lambda _: None,
    )


def attempt_of(
    function: Callable[..., Any],
    threads: Threads,
    *,
    retry: bytes | None = None,
    attempt: int = 1,
    misfire: bytes | None = None,
    timeout: float = 5,
    on_overtime: Callable[[Attempt], None] = lambda _: None,
    leases: Leases | None = None,
    unbegun: Unbegun | None = None,
) -> Attempt:
    claimed = ClaimedTask(
        id="a", token="t", func="mail.send", args=b"[]", key=b"a:?mail.send?[]", due=0,
        attempt=attempt, made=None, tags=(), retry=retry, timeout=None, lapses=0, misfire=misfire,
    )  # fmt: skip
    leases = leases or leases_of_nobody()
    leases.hold(claimed.id, claimed.token, asked=time.monotonic())
    unbegun = unbegun or Unbegun(leases)
    made = Attempt(
        claimed,
        Handler.of("mail.send", function),
        hint="",
        timeout=timeout,
        unbegun=unbegun,
        threads=threads,
        deadlines=Deadlines(),
        on_overtime=on_overtime,
    )
    unbegun.add(made)
    return made


async def outcome_of(function: Callable[..., Any], **options: Any) -> Outcome:
    with closing(Threads(1)) as threads:
        return await attempt_of(function, threads, **options).run()


def misfire_of(function: Callable[..., Any], lateness: float, misfire: bytes | None) -> Any:
    """The end of an attempt that is so late, its delay and its reason; None if it is to run."""
    with closing(Threads(1)) as threads:
        outcome = attempt_of(function, threads, misfire=misfire).misfire(lateness)
    if outcome is None:
        return None
    return outcome.end, outcome.settlement.delay, outcome.reason


@handler(late_after="1m", misfire="skip")
def code() -> None: ...


@handler(late_after="1m", misfire=Spread(over="10m"))
def remind() -> None: ...


def test_what_is_not_later_than_it_may_be_runs() -> None:
    assert misfire_of(fail, 1e9, None) is None
    assert misfire_of(fail, 1e9, b'["run"]') is None
    assert misfire_of(code, 60, None) is None
    assert misfire_of(code, 60, b'["skip",60.0]') is None
    assert misfire_of(code, 1e9, b'["run"]') is None


def test_what_is_later_is_skipped_or_spread() -> None:
    skipped = (End.FAILED, 0, "skipped: found 1m 1s late, more than 1m")
    assert misfire_of(code, 61, None) == skipped
    assert misfire_of(fail, 61, b'["skip",60]') == skipped
    spread = [misfire_of(remind, 61, None) for _ in range(100)]
    assert {(end, reason) for end, _, reason in spread} == {
        (End.RELEASED, "spread: found 1m 1s late, more than 1m")
    }
    assert all(0.001 <= delay <= 600 for _, delay, _ in spread)
    assert max(delay for _, delay, _ in spread) - min(delay for _, delay, _ in spread) > 300
    assert misfire_of(code, 61, b'["spread",60,0.0001]')[:2] == (End.RELEASED, 0.001)


@pytest.mark.parametrize("stored", [b"", b"[]", b'["skip"]', b'["spread",1,0]', b'["later",1]'])
def test_a_record_with_a_misfire_policy_that_cannot_be_read_fails_its_task(stored: bytes) -> None:
    end, _, reason = misfire_of(fail, 0, stored)
    assert end is End.FAILED
    assert "misfire policy cannot be read" in reason


def fail() -> None:
    raise RuntimeError("the shop is closed")


async def test_a_plain_wrapper_around_an_async_handler_does_not_succeed_without_running_it() -> (
    None
):
    ran = []

    async def send() -> None:
        ran.append(True)

    @functools.wraps(send)
    def logged() -> Any:
        return send()

    outcome = await outcome_of(logged)
    # To run the coroutine is best; to fail is honest.
    assert ran or outcome.end is not End.SUCCEEDED


async def test_the_last_line_of_an_error_says_what_it_was() -> None:
    def fail_together() -> None:
        raise ExceptionGroup("two of the shops", [OSError("shut"), ValueError("it is closed --")])

    lines = (await outcome_of(fail_together, retry=b"[]")).settlement.text.splitlines()
    assert lines[-1].strip() == b"| ValueError: it is closed"
    lines = (await outcome_of(fail, retry=b"[]")).settlement.text.splitlines()
    assert lines[-1] == b"RuntimeError: the shop is closed"


async def test_a_plain_wrapper_and_what_it_gives_back_share_one_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []
    set_deadline = Deadlines.set

    def remember(self: Deadlines, limit: float, callback: Callable[[], None]) -> Any:
        limits.append(limit)
        return set_deadline(self, limit, callback)

    async def send() -> None: ...

    def slow() -> Any:
        time.sleep(0.001)
        return send()

    monkeypatch.setattr(Deadlines, "set", remember)
    assert (await outcome_of(slow, timeout=3600)).end is End.SUCCEEDED
    thread, coroutine = limits
    assert thread == 3600
    assert coroutine <= 3600 - 0.001


@pytest.mark.parametrize("retry", [b"", b"[null]", b"[[1]]", b'{"first":-1}', b'{"longest":null}'])
async def test_a_record_with_a_policy_that_cannot_be_read_fails_its_task(retry: bytes) -> None:
    outcome = await outcome_of(fail, retry=retry)
    assert outcome.end is End.FAILED


async def test_a_failure_under_a_steep_policy_is_retried() -> None:
    steep = Exponential(factor=1e10, attempts=1000).encode()
    outcome = await outcome_of(fail, retry=steep, attempt=40)
    assert outcome.end is End.RETRY
    assert outcome.settlement.delay <= 3600


class Blunt(BaseException):
    """What a handler raises: telling it raises as well."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> str:
        raise self.error

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise self.error


class BluntRetry(Blunt, Retry):
    after = 0.0


class BluntDiscard(Blunt, Discard): ...


class Unfinished(Retry):
    """It lacks `after`."""

    def __init__(self) -> None: ...


class Exiting(Unfinished):
    @property
    def after(self) -> float:  # type: ignore[override]
        sys.exit(3)


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("telling", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("raised", [Blunt, BluntRetry, BluntDiscard, lambda _: Exiting()])
async def test_what_cannot_be_told_ends_its_attempt_and_nothing_else(
    raised: Callable[[BaseException], BaseException], telling: BaseException, kind: str
) -> None:
    def plain() -> None:
        raise raised(telling)

    async def asynchronous() -> None:
        raise raised(telling)

    outcome = await outcome_of(asynchronous if kind == "async" else plain)
    assert outcome.end is End.FAILED
    assert outcome.reason.startswith("what it raised cannot be told: ")


class Later(Retry):
    after = "15m"  # type: ignore[assignment]

    def __init__(self) -> None: ...


class Wrong(Later):
    after = "soon"


async def test_a_retry_of_its_own_making_is_obeyed_or_refused() -> None:
    def plain(error: type[Retry]) -> Callable[[], None]:
        def fail() -> None:
            raise error

        return fail

    later = await outcome_of(plain(Later))
    assert (later.end, later.settlement.delay) == (End.RETRY, 900)
    wrong = await outcome_of(plain(Wrong))
    assert wrong.end is End.FAILED
    assert wrong.reason.startswith("its Retry says no delay: after='soon': not a duration")
    unfinished = await outcome_of(plain(Unfinished))
    assert unfinished.end is End.FAILED
    assert "AttributeError" in unfinished.reason


class Hoard: ...


async def test_a_handler_without_memory_gives_back_what_its_frames_hold() -> None:
    """Its error is kept until its outcome is recorded, which needs memory, too."""
    held: list[weakref.ref[Hoard]] = []

    def devour() -> None:
        hoard = Hoard()
        held.append(weakref.ref(hoard))
        raise MemoryError

    outcome = await outcome_of(devour)
    assert isinstance(outcome.error, MemoryError)
    assert held[0]() is None


async def swallow() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(3600)


async def translate() -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise TimeoutError("the shop is closed") from None


async def stumble() -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        raise RuntimeError("the door is stuck")


async def give_in() -> None:
    await asyncio.sleep(3600)


@pytest.mark.parametrize("function", [give_in, swallow, translate])
async def test_however_a_handler_ends_at_its_timeout_it_timed_out(
    function: Callable[..., Any],
) -> None:
    outcome = await outcome_of(function, timeout=0.01, retry=b"[]")
    assert (outcome.end, outcome.reason) == (End.FAILED, "timed out after 0.01 s")


async def test_an_error_while_a_handler_is_cancelled_is_told() -> None:
    outcome = await outcome_of(stumble, timeout=0.01, retry=b"[]")
    assert outcome.reason.endswith("RuntimeError: the door is stuck")


@pytest.mark.parametrize("late", [False, True])
async def test_what_its_listener_stops_is_released_even_at_its_timeout(late: bool) -> None:
    with closing(Threads(1)) as threads:
        attempt = attempt_of(give_in, threads, timeout=0.01 if late else 60)
        running = asyncio.create_task(attempt.run())
        await asyncio.sleep(0)
        if late:
            time.sleep(0.02)  # noqa: ASYNC251 - the loop shall find both at once
        attempt.stopped = "its listener stopped"
        running.cancel()
        outcome = await running
    assert (outcome.end, outcome.reason) == (End.RELEASED, "its listener stopped")


async def test_a_handler_that_goes_on_after_its_timeout_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("expirebridge.listener.attempt.CANCEL_PATIENCE", 0.01)
    told: list[Attempt] = []
    heard = asyncio.Event()

    def hear(attempt: Attempt) -> None:
        told.append(attempt)
        heard.set()

    async def ignore() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await heard.wait()

    outcome = await outcome_of(ignore, timeout=0.01, retry=b"[]", on_overtime=hear)
    assert len(told) == 1
    assert outcome.reason == "timed out after 0.01 s"
    await outcome_of(swallow, timeout=0.01, on_overtime=hear)
    await asyncio.sleep(0.03)
    assert len(told) == 1


async def behind_a_long_call(attempt: Attempt, threads: Threads, until: threading.Event) -> Outcome:
    """Run it while the only thread is in another call, which goes on until the event is set."""
    threads.call(lambda: until.wait(PATIENCE))
    running = asyncio.create_task(attempt.run())
    async with asyncio.timeout(PATIENCE):
        return await running


async def test_a_plain_handler_that_waits_for_a_thread_has_its_whole_timeout_from_the_call() -> (
    None
):
    overtime: list[Attempt] = []
    free = threading.Event()
    with closing(Threads(1)) as threads:
        attempt = attempt_of(lambda: "done", threads, timeout=0.05, on_overtime=overtime.append)
        asyncio.get_running_loop().call_later(0.2, free.set)
        outcome = await behind_a_long_call(attempt, threads, free)
    assert outcome.end is End.SUCCEEDED
    assert overtime == []
    assert attempt.took < 0.05


async def test_a_plain_handler_that_waited_for_a_thread_overruns_its_own_time() -> None:
    overtime = asyncio.Event()
    free, end = threading.Event(), threading.Event()
    with closing(Threads(1)) as threads:
        attempt = attempt_of(
            lambda: end.wait(PATIENCE), threads, timeout=0.05, retry=b"[]",
            on_overtime=lambda _: overtime.set(),
        )  # fmt: skip
        asyncio.get_running_loop().call_later(0.12, free.set)
        running = asyncio.create_task(behind_a_long_call(attempt, threads, free))
        async with asyncio.timeout(PATIENCE):
            await overtime.wait()
        end.set()
        outcome = await running
    assert (outcome.end, outcome.reason) == (End.FAILED, "timed out after 0.05 s")
    assert attempt.took >= 0.05


async def test_a_plain_handler_that_ended_in_time_did_not_time_out_though_the_loop_was_late() -> (
    None
):
    ended = threading.Event()
    with closing(Threads(1)) as threads:
        attempt = attempt_of(ended.set, threads, timeout=0.3)
        running = asyncio.create_task(attempt.run())
        await asyncio.sleep(0)
        assert ended.wait(PATIENCE)
        time.sleep(0.4)  # noqa: ASYNC251 - the loop shall find the result and the deadline at once
        assert (await running).end is End.SUCCEEDED


async def test_a_plain_handler_is_not_called_if_its_lease_lapsed_while_it_waited() -> None:
    called: list[bool] = []
    free = threading.Event()
    leases = leases_of_nobody()
    with closing(Threads(1)) as threads:
        attempt = attempt_of(lambda: called.append(True), threads, leases=leases)
        asyncio.get_running_loop().call_soon(leases.drop, attempt.claimed.id, attempt.claimed.token)
        asyncio.get_running_loop().call_later(0.01, free.set)
        with pytest.raises(NotBegun, match="held up"):
            await behind_a_long_call(attempt, threads, free)
    assert called == []


async def test_a_plain_handler_is_not_called_if_it_was_withdrawn_while_it_waited() -> None:
    called: list[bool] = []
    free = threading.Event()
    unbegun = Unbegun(leases_of_nobody())
    with closing(Threads(1)) as threads:
        attempt = attempt_of(lambda: called.append(True), threads, unbegun=unbegun)
        withdrawn: list[Attempt] = []
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: withdrawn.extend(unbegun.withdraw()))
        loop.call_later(0.02, free.set)
        with pytest.raises(Withdrawn):
            await behind_a_long_call(attempt, threads, free)
    assert withdrawn == [attempt]
    assert called == []
