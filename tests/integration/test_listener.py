"""The one path of a task, from make_task to settle, against real servers."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import (
    AsyncBridge,
    Discard,
    Retry,
    ServerUnsuitable,
    Spread,
    State,
    Task,
    current_task,
    handler,
)
from expirebridge.hooks import Claimed, End, Gap, Scanned, Started
from expirebridge.listener.listener import Listener, ListenerStuck
from expirebridge.listener.node import subscriber
from expirebridge.listener.runner import settler
from expirebridge.listener.runner.leases import Leases
from expirebridge.listener.runner.settler import Finished, Settler
from expirebridge.listener.server_clock import ServerClock
from expirebridge.settings import Doorbells, Settings
from expirebridge.store import calls
from expirebridge.store.store import AsyncStore
from tests.kit.witness import Witness, listening, logged, registry_of


async def found(bridge: AsyncBridge, task: Task) -> Task:
    read = await bridge.get(task.id)
    assert read is not None
    return read


async def test_what_is_found_late_runs_is_skipped_or_is_spread_and_told_once(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO, "expirebridge")
    witness = Witness()
    hour_ago = datetime.now(UTC) - timedelta(hours=1)

    async def plain() -> None: ...

    @handler(late_after="1m", misfire="skip")
    async def code() -> None: ...

    late: dict[str, dict[str, Any]] = {
        "runs": {"func": "test.plain"},
        "skipped": {"func": "test.plain", "late_after": 60, "misfire": "skip"},
        "spread": {"func": "test.code", "late_after": 60, "misfire": Spread("1h")},
        "soon": {"func": "test.plain", "late_after": 60, "misfire": Spread(0.001)},
        "by its handler": {"func": "test.code"},
        "after all": {"func": "test.code", "misfire": "run"},
        "not too late": {"func": "test.plain", "late_after": "2h", "misfire": "skip"},
    }
    made = await async_bridge.make_tasks([{**item, "at": hour_ago} for item in late.values()])
    # A foreign task that was adopted in time takes its handler's policy, too.
    client.hset("expirebridge:task:foreign", mapping={"call": "test.code?[]", "made": 1})
    client.zadd("expirebridge:pending", {"foreign": hour_ago.timestamp() * 1000})
    async with listening(settings, witness, plain=plain, code=code):
        await asyncio.wait_for(logged("after the gap: ", caplog), 20)
        await witness.until(lambda: len(witness.ended(End.SUCCEEDED)) == 4)
    tasks = {name: await found(async_bridge, task) for name, task in zip(late, made, strict=True)}
    assert {name: task.state for name, task in tasks.items()} == {
        "runs": State.SUCCEEDED, "skipped": State.FAILED, "spread": State.PENDING,
        "soon": State.SUCCEEDED, "by its handler": State.FAILED, "after all": State.SUCCEEDED,
        "not too late": State.SUCCEEDED,
    }  # fmt: skip
    assert str(tasks["skipped"].error).startswith("skipped: found 1h")
    assert (tasks["spread"].attempt, tasks["soon"].attempt) == (0, 1)
    assert datetime.now(UTC) - timedelta(minutes=1) < tasks["spread"].due
    assert tasks["spread"].due < datetime.now(UTC) + timedelta(hours=1)
    [report] = [vars(r)["fields"] for r in caplog.records if "after the gap" in r.getMessage()]
    assert report["done"] == {"run": 3, "skipped": 3, "spread": 2}
    assert report["functions"] == {"test.plain": 4, "test.code": 4}
    assert report["longest_ms"] >= 3_600_000


async def test_what_was_late_is_reported_although_nothing_follows(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO, "expirebridge")
    witness = Witness()

    async def plain() -> None: ...

    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    await async_bridge.make_tasks([{"func": "test.plain", "at": hour_ago}] * 3)
    client.mset({f"shop:{number}": "" for number in range(5000)})  # the scan is done last
    async with listening(settings, witness, plain=plain):
        await logged("after the gap: 3 late", caplog)
    last = [type(event) for event in witness.events if isinstance(event, Started | Scanned)][-1]
    assert last is Scanned


async def test_an_async_handler_runs_when_its_task_is_due(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int, *, subject: str) -> str:
        return f"{user} {subject}"

    async with listening(settings, witness, send=send):
        task = await async_bridge.make_task("test.send", [42], 0.05, kwargs={"subject": "hi"})
        await witness.until_ended()
    read = await found(async_bridge, task)
    assert read.state is State.SUCCEEDED
    assert read.result == "42 hi"
    assert read.due == task.due
    assert read.started is not None
    assert read.started >= task.due
    assert read.attempt == 1


async def test_a_plain_handler_runs_in_a_thread_and_knows_its_task(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    def send() -> list[Any]:
        return [current_task().id, current_task().attempt, threading.current_thread().name]

    async with listening(settings, witness, send=send):
        task = await async_bridge.make_task("test.send", [], 0, tags=["a"])
        await witness.until_ended()
    read = await found(async_bridge, task)
    assert read.result[:2] == [task.id, 1]
    assert read.result[2].startswith("expirebridge-handler")
    assert witness.seen(Started)[0].task.tags == ("a",)


async def test_arguments_in_the_record_arrive(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    text = "x?y:\n{}\0😀" * 500

    async def measure(text: str) -> int:
        return len(text)

    async with listening(settings, witness, measure=measure):
        task = await async_bridge.make_task("test.measure", [text], 0)
        await witness.until_ended()
    assert task.key.endswith(b"?@")
    assert (await found(async_bridge, task)).result == len(text)


@pytest.mark.parametrize("doorbell", [Doorbells.CLOCK, Doorbells.EVENTS, Doorbells.BOTH])
async def test_each_doorbell_alone_runs_tasks_once_and_never_early(
    url: str, async_bridge: AsyncBridge, doorbell: Doorbells
) -> None:
    witness = Witness()
    started: list[tuple[str, float]] = []

    async def note() -> None:
        started.append((current_task().id, time.time() - current_task().due.timestamp()))

    async with listening(Settings(url=url, doorbell=doorbell), witness, note=note):
        made = [await async_bridge.make_task("test.note", [], 0.02 * n) for n in range(1, 20)]
        await witness.until_ended(len(made))
    assert sorted(id for id, _ in started) == sorted(task.id for task in made)
    assert min(lateness for _, lateness in started) >= 0


async def test_a_producer_rings_a_listener_that_sleeps(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    """Without the doorbell channel the task would wait for the clock's next look, up to 1 s."""
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=settings.url, doorbell=Doorbells.CLOCK), witness, note=note):
        await async_bridge.make_task("test.note", [], 3600)
        for _ in range(5):
            await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(5)
    assert sorted(event.lateness for event in witness.seen(Started))[2] < 0.5


async def test_a_failure_is_retried_by_the_task_s_own_policy_and_then_succeeds(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def flaky() -> int:
        if current_task().attempt < 3:
            raise ConnectionError("no answer")
        return current_task().attempt

    async with listening(settings, witness, flaky=flaky):
        task = await async_bridge.make_task("test.flaky", [], 0, retry=[0.01, 0.01])
        await witness.until_ended(end=End.SUCCEEDED)
    assert [event.end for event in witness.ended()] == [End.RETRY, End.RETRY, End.SUCCEEDED]
    read = await found(async_bridge, task)
    assert (read.result, read.attempt, read.error) == (3, 3, None)


@pytest.mark.parametrize(
    ("reschedules", "attempts"), [("first", [1, 1, 1, 1]), ("last", [1, 2, 1, 2])]
)
async def test_a_task_that_repeats_itself_is_retried_if_it_reschedules_last(
    settings: Settings, async_bridge: AsyncBridge, reschedules: str, attempts: list[int]
) -> None:
    """Once it is re-armed, a failure of the run is dropped. Every other run fails here."""
    seen: list[int] = []

    async def poll() -> None:
        seen.append(current_task().attempt)
        if reschedules == "first":
            await async_bridge.reschedule(current_task().id, 0)
        if len(seen) % 2:
            raise ValueError("no answer")
        if reschedules == "last":
            await async_bridge.reschedule(current_task().id, 0)

    witness = Witness()
    async with listening(settings, witness, poll=poll):
        await async_bridge.make_task("test.poll", [], 0, retry=[0, 0])
        await witness.until(lambda: len(seen) >= len(attempts))
    assert seen[: len(attempts)] == attempts


async def test_after_the_last_attempt_it_is_kept_as_failed_with_the_traceback(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    @handler(retry=[0.01])
    def broken() -> None:
        raise ZeroDivisionError("that was too much")

    async with listening(settings, witness, broken=broken):
        task = await async_bridge.make_task("test.broken", [], 0)
        await witness.until_ended(end=End.FAILED)
    read = await found(async_bridge, task)
    assert (read.state, read.attempt) == (State.FAILED, 2)
    assert read.error is not None
    assert read.error.startswith("Traceback")
    assert read.error.endswith("ZeroDivisionError: that was too much")
    assert "in broken" in read.error
    assert "attempt.py" not in read.error


async def test_a_traceback_begins_with_the_handler(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def broken() -> None:
        raise ZeroDivisionError

    async with listening(settings, witness, broken=broken):
        task = await async_bridge.make_task("test.broken", [], 0, retry=[])
        await witness.until_ended(end=End.FAILED)
    read = await found(async_bridge, task)
    assert read.error is not None
    assert read.error.splitlines()[1].endswith("in broken")


@pytest.mark.parametrize(
    ("raised", "end", "reason"),
    [
        (lambda: Discard("no such user"), End.FAILED, "no such user"),
        (lambda: Retry(after=0.01, reason="busy"), End.RETRY, "busy"),
        (lambda: SystemExit(3), End.FAILED, "SystemExit: 3"),
        (lambda: StopIteration("over"), End.FAILED, "StopIteration"),
        (asyncio.CancelledError, End.FAILED, "cancelled from within"),
    ],
)
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_what_a_handler_raises_decides_the_outcome(
    settings: Settings,
    async_bridge: AsyncBridge,
    raised: Callable[[], BaseException],
    end: End,
    reason: str,
    kind: str,
) -> None:
    witness = Witness()

    async def asynchronous() -> None:
        if current_task().attempt == 1:
            raise raised()

    def plain() -> None:
        if current_task().attempt == 1:
            raise raised()

    handlers = {"async": asynchronous, "plain": plain}
    async with listening(settings, witness, act=handlers[kind]):
        await async_bridge.make_task("test.act", [], 0, retry=[])
        await witness.until_ended()
        if end is End.RETRY:  # obeyed although the policy allows one attempt only
            await witness.until_ended(end=End.SUCCEEDED)
    assert witness.ended()[0].end is end
    assert reason in witness.ended()[0].reason


async def test_arguments_that_do_not_fit_fail_at_once(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def send(user: int) -> None: ...

    async def inner() -> None:
        raise TypeError("the handler's own")

    async with listening(settings, witness, send=send, inner=inner):
        wrong = await async_bridge.make_task("test.send", [1, 2], 0)
        await witness.until_ended(1)
        await async_bridge.make_task("test.inner", [], 0)
        await witness.until_ended(2)
    read = await found(async_bridge, wrong)
    assert read.state is State.FAILED
    assert "do not fit: send(user: int) -> None: too many positional arguments" in str(read.error)
    assert witness.ended()[1].end is End.RETRY


@pytest.mark.parametrize("own", ["task", "handler"])
async def test_an_async_handler_is_cancelled_at_its_timeout(
    settings: Settings, async_bridge: AsyncBridge, own: str
) -> None:
    witness = Witness()
    cancelled = asyncio.Event()

    @handler(timeout=0.05 if own == "handler" else 60)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with listening(settings, witness, slow=slow):
        await async_bridge.make_task(
            "test.slow", [], 0, retry=[], timeout=0.05 if own == "task" else None
        )
        await witness.until_ended()
    assert cancelled.is_set()
    assert witness.ended()[0].reason == "timed out after 0.05 s"


async def test_a_handler_s_own_timeout_error_is_not_the_task_s(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def fetch() -> None:
        raise TimeoutError("the shop did not answer")

    async with listening(settings, witness, fetch=fetch):
        await async_bridge.make_task("test.fetch", [], 0, retry=[])
        await witness.until_ended()
    assert witness.ended()[0].reason.endswith("TimeoutError: the shop did not answer")


async def test_a_plain_handler_keeps_its_task_after_its_timeout_until_it_returns(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    go_on = threading.Event()

    def slow() -> None:
        go_on.wait(10)

    async with listening(settings, witness, slow=slow):
        task = await async_bridge.make_task("test.slow", [], 0, retry=[], timeout=0.05)
        await witness.until(lambda: witness.seen(Started))
        # Its timeout is over well before the second task has come and gone.
        other = await async_bridge.make_task("test.slow", [1], 0.2)
        await witness.until_ended()
        assert witness.ended()[0].task.id == other.id  # which failed for its arguments
        assert (await found(async_bridge, task)).state is State.RUNNING
        go_on.set()
        await witness.until_ended(2)
    assert witness.ended()[1].reason == "timed out after 0.05 s"


async def test_a_listener_whose_thread_never_returns_gives_up(
    url: str, async_bridge: AsyncBridge
) -> None:
    go_on = threading.Event()

    def stuck() -> None:
        go_on.wait(30)

    listener = Listener(Settings(url=url, grace=0.05), registry_of(stuck=stuck))
    await async_bridge.make_task("test.stuck", [], 0, timeout=0.05)
    try:
        with pytest.raises(ListenerStuck, match=r"test\.stuck did not return"):
            await listener.run()
    finally:
        go_on.set()


async def test_a_listener_whose_event_loop_is_blocked_for_good_lets_its_leases_lapse(
    url: str, async_bridge: AsyncBridge
) -> None:
    told: list[ListenerStuck] = []
    go_on = threading.Event()

    def notice(error: ListenerStuck) -> None:
        told.append(error)
        go_on.set()

    async def block() -> None:
        go_on.wait(30)

    settings = Settings(url=url, lease=0.5, grace=0.05)
    listener = Listener(settings, registry_of(block=block), on_blocked=notice)
    await async_bridge.make_task("test.block", [], 0, timeout=0.05)
    with pytest.raises(ListenerStuck, match=r"test\.block did not return"):
        await listener.run()
    assert [str(error) for error in told] == [str(ListenerStuck("test.block", 0.05))]


async def test_the_heartbeat_outlives_any_error(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the listener would run tasks whose leases nobody keeps."""
    beats = 0
    again = threading.Event()
    beat = Leases.beat

    def count(leases: Leases) -> calls.Beat:
        nonlocal beats
        beats += 1
        if beats == 2:  # the first is made before the thread begins
            raise MemoryError
        if beats == 4:
            again.set()
        return beat(leases)

    monkeypatch.setattr(Leases, "beat", count)
    async with listening(Settings(url=url, lease=0.5)):
        assert await asyncio.to_thread(again.wait, 20)
    assert "the heartbeat failed" in caplog.text
    assert "MemoryError" in caplog.text


async def test_what_waits_behind_a_blocked_event_loop_is_given_back(
    url: str, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    """It is claimed again, by whoever can run it; nobody counts what did not begin."""
    witness = Witness()
    attempts: list[int] = []

    async def block() -> None:
        threading.Event().wait(1)

    async def wait() -> None:
        attempts.append(current_task().attempt)

    past = datetime.now(UTC) - timedelta(seconds=1)
    await async_bridge.make_task("test.block", [], at=past)
    task = await async_bridge.make_task("test.wait", [], 0)
    async with listening(Settings(url=url, lease=0.5), witness, block=block, wait=wait):
        await witness.until_ended(2, end=End.SUCCEEDED)
    # A claim that was about to be sent looks as old as the block is long, and is given back, too.
    released = witness.ended(End.RELEASED)
    assert {event.task.id for event in released} == {task.id}
    assert released[0].reason == "its listener's event loop was blocked"
    assert [started.task.func for started in witness.seen(Started)] == ["test.block", "test.wait"]
    assert attempts == [1]
    assert "test.block blocks the event loop" in caplog.text


async def test_an_unknown_function_waits_uncounted_with_its_reason_shown(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def known() -> None: ...

    async with listening(settings, witness, known=known):
        task = await async_bridge.make_task("os.system", ["true"], 0)
        await witness.until_ended()
    read = await found(async_bridge, task)
    assert (read.state, read.attempt) == (State.PENDING, 0)
    assert "no handler 'os.system'" in str(read.error)
    assert timedelta(seconds=10) < read.due - datetime.now(UTC) < timedelta(seconds=16)


async def test_an_unknown_function_fails_after_a_day(
    async_store: AsyncStore, settings: Settings, client: redis.Redis
) -> None:
    await async_store.run(calls.make([new_task("a", 0)]))
    client.hset("expirebridge:task:a", "unknown", int(time.time() * 1000) - 86_400_000)
    claim = await async_store.run(calls.claim("t", Settings(), room=1, idle=True))
    assert [task.id for task in claim.tasks] == ["a"]
    unknown = calls.Settlement("a", "t", "unknown", 15, "no handler")
    await async_store.run(calls.settle([unknown], settings))
    read = await async_store.run(calls.get("a"))
    assert read is not None
    assert read.state is State.FAILED


def new_task(id: str, ms: int) -> calls.NewTask:
    when = calls.When(ms, relative=True)
    return calls.NewTask(id=id, drawn=False, if_exists="reject", call=b"test.f?[]", when=when)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ({"a": [1]}, {"a": [1]}),
        (object(), "(a object, which JSON cannot hold)"),
        ("x" * 5000, "(5,002 bytes of JSON, more than the 4,096 kept)"),
    ],
)
async def test_a_result_that_cannot_be_kept_becomes_a_note(
    settings: Settings, async_bridge: AsyncBridge, value: object, stored: object
) -> None:
    witness = Witness()

    async def give() -> object:
        return value

    async with listening(settings, witness, give=give):
        task = await async_bridge.make_task("test.give", [], 0)
        await witness.until_ended(end=End.SUCCEEDED)
    assert (await found(async_bridge, task)).result == stored


async def test_a_blocked_event_loop_keeps_its_leases(url: str, async_bridge: AsyncBridge) -> None:
    witness = Witness()

    async def block() -> None:
        threading.Event().wait(1.5)  # blocks the loop, as a careless handler would

    async with listening(Settings(url=url, lease=0.5), witness, block=block):
        await async_bridge.make_task("test.block", [], 0)
        await witness.until_ended()
    assert witness.ended()[0].end is End.SUCCEEDED


async def test_stopping_waits_for_handlers_within_the_grace_time(
    url: str, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    witness = Witness()
    go_on = asyncio.Event()

    async def finish() -> None:
        await go_on.wait()

    async with listening(Settings(url=url, grace=20), witness, finish=finish) as listener:
        task = await async_bridge.make_task("test.finish", [], 0)
        await witness.until(lambda: witness.seen(Started))
        listener.stop()
        await logged("claiming no more", caplog)
        late = await async_bridge.make_task("test.finish", [], 0)
        go_on.set()
    assert (await found(async_bridge, task)).state is State.SUCCEEDED
    assert (await found(async_bridge, late)).state is State.PENDING  # nothing more was claimed


async def test_after_the_grace_time_async_handlers_are_cancelled_and_their_tasks_released(
    url: str, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def endless() -> None:
        await asyncio.Event().wait()

    async with listening(Settings(url=url, grace=0.05), witness, endless=endless):
        task = await async_bridge.make_task("test.endless", [], 0)
        await witness.until(lambda: witness.seen(Started))
    read = await found(async_bridge, task)
    assert (read.state, read.attempt, read.due) == (State.PENDING, 0, task.due)
    assert witness.ended()[0].end is End.RELEASED
    assert (await async_bridge.count()).listeners == 0


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
async def test_it_reconnects_by_itself_and_sweeps_after_the_gap(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, kind: str
) -> None:
    witness = Witness()

    async def note() -> None: ...

    async with listening(settings, witness, note=note):
        await witness.until(lambda: any("subscription" in gap.reason for gap in witness.seen(Gap)))
        gaps = len(witness.seen(Gap))
        client.execute_command("CLIENT", "KILL", "TYPE", kind)
        if kind == "pubsub":
            await witness.until(lambda: len(witness.seen(Gap)) > gaps)
        task = await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()
    assert (await found(async_bridge, task)).state is State.SUCCEEDED


async def test_it_runs_no_more_than_its_concurrency_and_all_in_the_end(
    url: str, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    running = 0
    most = 0

    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    await async_bridge.make_tasks([{"func": "test.count", "delay": 0} for _ in range(50)])
    async with listening(Settings(url=url, concurrency=3), witness, count=count):
        await witness.until_ended(50)
    assert 1 <= most <= 3


async def test_hooks_that_raise_harm_nothing(
    settings: Settings, async_bridge: AsyncBridge, caplog: pytest.LogCaptureFixture
) -> None:
    done = asyncio.Event()

    def hook(_: object) -> None:
        raise RuntimeError("a bad hook")

    async def note() -> None:
        done.set()

    async with listening(settings, hook, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await asyncio.wait_for(done.wait(), 10)
    assert "a hook raised on Started" in caplog.text


@pytest.mark.parametrize("doorbell", [Doorbells.CLOCK, Doorbells.EVENTS])
async def test_a_task_that_is_due_at_once_needs_no_event(
    url: str, async_bridge: AsyncBridge, doorbell: Doorbells
) -> None:
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=url, doorbell=doorbell), witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()
    assert witness.ended()[0].end is End.SUCCEEDED


async def test_a_task_that_is_due_at_once_runs_though_the_servers_time_is_not_known_exactly(
    url: str, async_bridge: AsyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerClock, "seconds_until", lambda *_: 0.001)
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=url, doorbell=Doorbells.EVENTS), witness, note=note):
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended()  # this one may be found by what is done at the start
        await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(2)


async def test_a_subscription_that_is_not_answered_is_told_of(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "FRESH", 0.05)  # the second ping comes after a second
    async with listening(Settings(url=url)):
        await logged("no answer to a ping for 0.05 s", caplog)


async def test_events_alone_are_refused_where_there_are_none(url: str, client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "")
    with pytest.raises(ServerUnsuitable, match="CONFIG SET notify-keyspace-events Exg"):
        await Listener(Settings(url=url, doorbell=Doorbells.EVENTS), registry_of()).run()


async def test_a_claim_leaves_room_for_the_next_which_comes_while_its_tasks_run(
    url: str, async_bridge: AsyncBridge
) -> None:
    running: set[str] = set()
    all_run = asyncio.Event()

    async def note() -> None:
        running.add(current_task().id)
        if len(running) == 4:
            all_run.set()
        await all_run.wait()

    await async_bridge.make_tasks([{"func": "test.note", "delay": 0} for _ in range(5)])
    witness = Witness()
    async with listening(Settings(url=url, concurrency=4), witness, note=note):
        await witness.until_ended(5)
    assert max(event.count for event in witness.seen(Claimed)) == 2


async def test_an_orderly_stop_leaves_nothing_claimed(url: str, async_bridge: AsyncBridge) -> None:
    """Stopped at any moment of a stream of claims."""

    async def note() -> None:
        await asyncio.sleep(0)

    for n in range(10):
        await async_bridge.make_tasks([{"func": "test.note", "delay": 0} for _ in range(200)])
        witness = Witness()
        async with listening(Settings(url=url, concurrency=20), witness, note=note):
            await witness.until_ended(10 * n)
        assert (await async_bridge.count()).running == 0


async def test_what_ended_takes_no_room_while_it_is_recorded_up_to_a_limit(
    settings: Settings, async_bridge: AsyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "MOST_ENDED", 1)
    witness = Witness()
    record, may_record = Settler._settle, asyncio.Event()

    async def later(self: Settler, batch: list[Finished]) -> None:
        await may_record.wait()
        await record(self, batch)

    monkeypatch.setattr(Settler, "_settle", later)

    async def send() -> None: ...

    async with listening(replace(settings, concurrency=1), witness, send=send) as listener:
        await async_bridge.make_tasks([{"func": "test.send", "delay": 0}] * 3)
        await witness.until(lambda: len(witness.seen(Started)) == 2)
        [station] = listener._node.stations
        assert (station._settler.capacity(), witness.ended()) == (0, [])
        may_record.set()
        await witness.until_ended(3)


async def test_only_the_claim_that_was_cancelled_is_stopped(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    """A heartbeat's answer may come when the id has its next task."""
    witness = Witness()
    go_on = asyncio.Event()

    async def send() -> None:
        await go_on.wait()

    async with listening(settings, witness, send=send) as listener:
        await async_bridge.make_task("test.send", [], 0, id="a")
        await witness.until(lambda: witness.seen(Started))
        listener._runner.cancel([("a", "the token of its former claim")])
        await asyncio.sleep(0)
        go_on.set()
        [ended] = await witness.until_ended()
    assert ended.end is End.SUCCEEDED
