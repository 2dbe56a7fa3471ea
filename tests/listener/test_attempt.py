"""An attempt ends with an outcome, whatever the handler and the record are like."""

import asyncio
import contextlib
import functools
import gc
import inspect
import io
import itertools
import math
import re
import sqlite3
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from expirebridge import handler
from expirebridge.handlers import Handler, Registry
from expirebridge.hooks import End, Hooks
from expirebridge.listener.execution.attempt import Attempt, RowLookup
from expirebridge.listener.execution.capacity import Capacity, Wakeup
from expirebridge.listener.execution.deadlines import Deadlines
from expirebridge.listener.execution.exceptions import StartRefused, Withdrawn
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.execution.invoke import OverrunPolicy
from expirebridge.listener.execution.leases import Leases
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.execution.settler import Settler
from expirebridge.listener.execution.steps import after_overrun
from expirebridge.listener.hindrances import Hindrances, LoopPulse
from expirebridge.listener.session import PartitionSession, ServerHealth
from expirebridge.settings import Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.policies import Discard, Exponential, Retry, Snooze, Spread
from tests.kit.nodes import Process
from tests.kit.patience import PATIENCE
from tests.kit.sessions import code_without_handlers, owner_of, session_with


def executor_of_one() -> Executor:
    """An executor that has one thread."""
    return Process(Settings(concurrency=1), Registry({})).executor


@dataclass
class PartitionOfOne:
    """The consumer of a partition, as far as an attempt uses it."""

    session: PartitionSession
    leases: Leases
    settler: Settler
    row_check: RowLookup | None = None

    @property
    def hindrances(self) -> Hindrances:
        return Hindrances(self, LoopPulse(), lease=60)

    @property
    def health(self) -> ServerHealth:
        return self.session.health


def attempt_of(
    function: Callable[..., Any],
    executor: Executor,
    *,
    retry: bytes | None = None,
    attempt: int = 1,
    misfire: bytes | None = None,
    timeout: float = 5,
) -> Attempt:
    """An attempt that may begin; its lease is fresh for a minute."""
    claimed = ClaimedTask(
        id="a", token="t", func="mail.send", args=b"[]", key=b"a:?mail.send?[]", due=0,
        attempt=attempt, made=None, retry=retry, timeout=None, lapses=0, misfire=misfire,
    )  # fmt: skip
    leases = Leases(owner_of(), "nobody", lease=60, code=code_without_handlers())
    leases.hold(claimed.id, claimed.token, asked=time.monotonic())
    made = Attempt(
        claimed,
        Handler.of("mail.send", function),
        hint="",
        timeout=timeout,
        consumer=PartitionOfOne(session_with(), leases, settler_of(leases)),
        gate=executor._pending,
    )
    executor._pending.add(made)
    return made


def settler_of(leases: Leases) -> Settler:
    in_flight = InFlight()
    return Settler(
        owner_of(), Settings(), leases=leases, in_flight=in_flight, capacity=Capacity(1, in_flight),
        wakeup=Wakeup(), hooks=Hooks(),
    )  # fmt: skip


async def run(attempt: Attempt, executor: Executor) -> AttemptOutcome:
    return executor.steps.refuse(attempt) or await executor.steps.call(attempt)


async def outcome_of(function: Callable[..., Any], **options: Any) -> AttemptOutcome:
    with closing(executor_of_one()) as executor:
        return await run(attempt_of(function, executor, **options), executor)


async def send_async() -> None: ...


def send_plain() -> None: ...


def misfire_of(function: Callable[..., Any], lateness: float, misfire: bytes | None) -> Any:
    """The end of an attempt that is so late, its delay and its reason; None if it is to run."""
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(function, executor, misfire=misfire)
        attempt.lateness = lateness
        outcome = executor.steps.misfire(attempt)
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
    spread = [misfire_of(remind, 61, None) for _ in range(40)]
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


async def count() -> int:
    raise AssertionError("nobody awaits it")


def pages() -> Iterator[int]:
    yield 1


async def apages() -> AsyncIterator[int]:
    yield 1


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call() -> Any:
        return function()

    return call


UNDONE: list[Callable[[], Any]] = [
    count, pages, apages, lambda: map(print, [1]), lambda: filter(print, [1]),
    lambda: itertools.starmap(print, [(1,)]), lambda: (one for one in [1]),
    lambda: zip(pages(), [1], strict=False), lambda: functools.partial(print, 1), lambda: count,
    lambda: print, lambda: [count(), count()], lambda: {"a": pages()}, lambda: (apages(),),
]  # fmt: skip
"""Calls whose result is work that nobody has done."""


@pytest.mark.parametrize("colour", ["plain", "async", "wrapped"])
@pytest.mark.parametrize("call", UNDONE)
async def test_what_returns_work_that_nobody_did_has_failed(
    call: Callable[[], Any], colour: str
) -> None:
    """A generator, a map, or a coroutine: recorded as a success, its body never ran."""

    def plain() -> Any:
        returned = call()
        return [returned] if inspect.isawaitable(returned) else returned  # one it would await

    async def awaits() -> Any:
        return call()

    handlers = {"plain": plain, "async": awaits, "wrapped": passing(awaits)}
    outcome = await outcome_of(handlers[colour], retry=b"[]")
    assert outcome.end is End.FAILED
    assert "RuntimeError: it returned" in outcome.reason
    assert re.search("await it$|call it$|loop over it$", outcome.reason)


async def test_what_has_run_has_succeeded_whatever_it_returned() -> None:
    """A cursor and a file are iterators, too, and what they stand for is done."""

    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        write = functools.partial(database.execute, "CREATE TABLE t (a)")

        for call in (write, io.StringIO, object, lambda: {1, 2}):
            assert (await outcome_of(lambda call=call: call())).end is End.SUCCEEDED
    assert (await outcome_of(lambda: [1, "a"])).settlement.text == b'[1,"a"]'


async def test_an_own_type_error_below_a_decorator_that_adds_an_argument_is_retried() -> None:
    """Its arguments fit, although it has one more than the task gives."""

    def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function("session", *args, **kwargs)

        return call

    @with_session
    def ship(_session: str) -> int:
        return len(17)  # type: ignore[arg-type]

    outcome = await outcome_of(ship)
    assert outcome.end is End.RETRY
    assert "object of type 'int' has no len()" in outcome.reason


async def test_the_last_line_of_an_error_says_what_it_was() -> None:
    def fail_together() -> None:
        raise ExceptionGroup("two of the shops", [OSError("shut"), ValueError("it is closed --")])

    lines = (await outcome_of(fail_together, retry=b"[]")).settlement.text.splitlines()
    assert lines[-1].strip() == b"| ValueError: it is closed"
    lines = (await outcome_of(fail, retry=b"[]")).settlement.text.splitlines()
    assert lines[-1] == b"RuntimeError: the shop is closed"


@pytest.mark.parametrize("function", [send_async, send_plain])
async def test_what_is_over_leaves_nothing_for_the_garbage_collector(
    function: Callable[..., Any],
) -> None:
    """Only what is in a circle has to be looked for, which costs each task some of its time."""
    gc.collect()
    gc.disable()
    try:
        with closing(executor_of_one()) as executor:
            attempt = attempt_of(function, executor)
            assert (await run(attempt, executor)).end is End.SUCCEEDED
            gone = asyncio.Event()
            loop = asyncio.get_running_loop()
            weakref.finalize(attempt, loop.call_soon_threadsafe, gone.set)
            del attempt
        # The thread, and the event loop, let go of their last call a moment later.
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
    finally:
        gc.enable()


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


class BluntSnooze(Blunt, Snooze):
    after, times, until = 0.0, None, None


class Endless(Snooze):
    """Its delay is none."""

    def __init__(self) -> None:
        super().__init__(1)
        self.after = math.inf


class Unfinished(Retry):
    """It lacks `after`."""

    def __init__(self) -> None: ...


class Exiting(Unfinished):
    @property
    def after(self) -> float:  # type: ignore[override]
        sys.exit(3)


async def test_a_snooze_without_a_delay_fails_its_task() -> None:
    async def act() -> None:
        raise Endless

    outcome = await outcome_of(act)
    assert outcome.end is End.FAILED
    assert outcome.reason.startswith("its Snooze says no delay: after=inf")


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("telling", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize(
    "raised", [Blunt, BluntRetry, BluntSnooze, BluntDiscard, lambda _: Exiting()]
)
async def test_what_cannot_be_told_ends_its_attempt_and_nothing_else(
    raised: Callable[[BaseException], BaseException], telling: BaseException, kind: str
) -> None:
    def plain() -> None:
        raise raised(telling)

    async def asynchronous() -> None:
        raise raised(telling)

    outcome = await outcome_of(asynchronous if kind == "async" else plain)
    assert outcome.end is End.FAILED
    assert outcome.reason.startswith("its error cannot be printed: ")


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
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(give_in, executor, timeout=0.01 if late else 60)
        running = asyncio.create_task(run(attempt, executor))
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
    monkeypatch.setattr("expirebridge.listener.execution.invoke.CANCEL_PATIENCE", 0.01)
    told: list[Attempt] = []
    heard = asyncio.Event()

    def hear(_: OverrunPolicy, attempt: Attempt) -> None:
        told.append(attempt)
        heard.set()

    monkeypatch.setattr(OverrunPolicy, "notice", hear)

    async def ignore() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)
        await heard.wait()

    outcome = await outcome_of(ignore, timeout=0.01, retry=b"[]")
    assert len(told) == 1
    assert outcome.reason == "timed out after 0.01 s"
    await outcome_of(swallow, timeout=0.01)
    await asyncio.sleep(0.03)
    assert len(told) == 1


async def behind_a_long_call(
    attempt: Attempt, executor: Executor, until: threading.Event
) -> AttemptOutcome:
    """Run it while the only thread is in another call, which goes on until the event is set."""
    executor._threads.call(lambda: until.wait(PATIENCE))
    running = asyncio.create_task(run(attempt, executor))
    async with asyncio.timeout(PATIENCE):
        return await running


async def test_a_plain_handler_that_waits_for_a_thread_has_its_whole_timeout_from_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overruns: list[Attempt] = []
    monkeypatch.setattr(OverrunPolicy, "notice", lambda _, attempt: overruns.append(attempt))
    free = threading.Event()
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(lambda: "done", executor, timeout=0.5)
        asyncio.get_running_loop().call_later(0.7, free.set)
        outcome = await behind_a_long_call(attempt, executor, free)
    assert outcome.end is End.SUCCEEDED
    assert overruns == []


async def test_a_plain_handler_that_waited_for_a_thread_overruns_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overruns = asyncio.Event()
    monkeypatch.setattr(OverrunPolicy, "notice", lambda *_: overruns.set())
    free, end = threading.Event(), threading.Event()
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(lambda: end.wait(PATIENCE), executor, timeout=0.05, retry=b"[]")
        asyncio.get_running_loop().call_later(0.12, free.set)
        running = asyncio.create_task(behind_a_long_call(attempt, executor, free))
        async with asyncio.timeout(PATIENCE):
            await overruns.wait()
        end.set()
        outcome = await running
    assert (outcome.end, outcome.reason) == (End.FAILED, "timed out after 0.05 s")
    assert attempt.took >= 0.05


async def test_an_attempt_that_was_given_up_is_not_settled_again_when_its_handler_ends() -> None:
    began, end = threading.Event(), threading.Event()

    def overrun() -> None:
        began.set()
        end.wait(PATIENCE)

    with closing(executor_of_one()) as executor:
        attempt = attempt_of(overrun, executor)
        running = asyncio.create_task(executor._run(attempt))
        executor._running.add(attempt, running)
        await asyncio.to_thread(began.wait, PATIENCE)
        executor._settle(attempt, after_overrun(attempt))
        end.set()
        await running
    settler = attempt.consumer.settler
    assert isinstance(settler, Settler)
    assert settler._waiting.qsize() == 1


async def test_a_plain_handler_that_ended_in_time_did_not_time_out_though_the_loop_was_late() -> (
    None
):
    ended = threading.Event()
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(ended.set, executor, timeout=0.3)
        running = asyncio.create_task(run(attempt, executor))
        await asyncio.sleep(0)
        assert ended.wait(PATIENCE)
        # The loop shall find the result and the deadline at once.
        time.sleep(0.4)  # noqa: ASYNC251  # time passes: the deadline
        assert (await running).end is End.SUCCEEDED


async def test_a_plain_handler_is_not_called_if_its_lease_lapsed_while_it_waited() -> None:
    called: list[bool] = []
    free = threading.Event()
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(lambda: called.append(True), executor)
        leases, loop = attempt.consumer.leases, asyncio.get_running_loop()
        loop.call_soon(leases.drop, attempt.claimed.id, attempt.claimed.token)
        loop.call_later(0.01, free.set)
        with pytest.raises(StartRefused, match="held up"):
            await behind_a_long_call(attempt, executor, free)
    assert called == []


async def test_a_plain_handler_is_not_called_if_it_was_withdrawn_while_it_waited() -> None:
    called: list[bool] = []
    free = threading.Event()
    with closing(executor_of_one()) as executor:
        attempt = attempt_of(lambda: called.append(True), executor)
        withdrawn: list[Attempt] = []
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, lambda: withdrawn.extend(executor.withdraw()))
        loop.call_later(0.02, free.set)
        with pytest.raises(Withdrawn):
            await behind_a_long_call(attempt, executor, free)
    assert withdrawn == [attempt]
    assert called == []
