"""The one path of a task, from make_task by way of its handler to its outcome."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Discard, Retry, Snooze, State, current_task, handler
from expirebridge.hooks import End, Started
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore
from expirebridge.task.calls import claiming, looking, producing
from tests.kit.patience import PATIENCE
from tests.kit.steps import found, new
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("every")


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


async def test_a_listener_whose_url_asks_for_another_protocol_runs_tasks(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness, seen = Witness(), list[str]()

    async def note(text: str) -> None:
        seen.append(text)

    async with listening(replace(settings, url=f"{settings.url}?protocol=3"), witness, note=note):
        await async_bridge.make_task("test.note", ["soon"], 0.05)
        await witness.until_ended()
    assert seen == ["soon"]


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


async def test_a_task_says_which_listener_claimed_its_last_attempt(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    def send() -> str | None:
        if current_task().attempt == 1:
            raise Retry(60)
        return current_task().listener

    async with listening(settings, witness, send=send) as listener:
        task = await async_bridge.make_task("test.send", [], 0)
        assert task.listener is None
        await witness.until_ended()
        assert (await found(async_bridge, task)).listener == listener.name[-8:]
        await async_bridge.run_now(task.id)
        await witness.until_ended(2)
    read = await found(async_bridge, task)
    assert read.result == read.listener == listener.name[-8:]


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
    assert "listener/execution" not in read.error


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


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_handler_snoozes_so_often_and_then_its_attempts_count(
    settings: Settings, async_bridge: AsyncBridge, kind: str
) -> None:
    seen: list[tuple[int, int]] = []
    witness = Witness()

    def plain() -> None:
        task = current_task()
        seen.append((task.attempt, task.snoozes))
        raise Snooze(0.01, "a rate limit", times=3)

    async def asynchronous() -> None:
        plain()

    handlers = {"async": asynchronous, "plain": plain}
    async with listening(settings, witness, act=handlers[kind]):
        task = await async_bridge.make_task("test.act", [], 0, retry=[0.01])
        await witness.until_ended(end=End.FAILED)
    # The policy allows two attempts.
    assert seen == [(1, 0), (1, 1), (1, 2), (1, 3), (2, 3)]
    ends = [(event.end, event.brief, event.error) for event in witness.ended()]
    used_up = "snoozed 3 times, 3 allowed: a rate limit"
    assert ends == [
        *[(End.SNOOZED, "a rate limit", None)] * 3,
        (End.RETRY, used_up, None),
        (End.FAILED, used_up, None),
    ]
    read = await found(async_bridge, task)
    assert (read.state, read.attempt, read.snoozes, read.error) == (State.FAILED, 2, 3, used_up)
    assert [(entry.what, entry.times) for entry in read.history] == [
        ("created", 1), ("snoozed", 3), ("retry", 1), ("failed", 1)
    ]  # fmt: skip


async def test_a_handler_snoozes_until_a_time_and_looks_once_more_then(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    untils: list[datetime] = []

    async def act() -> None:
        # From its first attempt on: a busy machine may be slow to begin it.
        untils.append(untils[0] if untils else datetime.now(UTC) + timedelta(seconds=1))
        raise Snooze("1h", until=untils[0])

    async with listening(settings, witness, act=act):
        await async_bridge.make_task("test.act", [], 0, retry=[])
        await witness.until_ended(end=End.FAILED)
    until = untils[0]
    first, *others, last = witness.ended()
    assert {event.end for event in (first, *others)} == {End.SNOOZED}
    # It would be due in an hour. The listener estimates the clock of the server, and the busier
    # the machine, the less exactly.
    assert abs(last.task.due - until) < timedelta(minutes=10)
    assert last.brief.startswith("snoozed ")
    assert until.isoformat() in last.brief


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


async def test_an_unknown_function_waits_uncounted_with_its_reason_shown(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()

    async def known() -> None: ...

    async with listening(settings, witness, known=known):
        before = datetime.now(UTC)
        task = await async_bridge.make_task("os.system", ["true"], 0)
        await witness.until_ended()
        after = datetime.now(UTC)
    read = await found(async_bridge, task)
    assert (read.state, read.attempt) == (State.PENDING, 0)
    assert "no handler 'os.system'" in str(read.error)
    assert before + timedelta(seconds=10) < read.due < after + timedelta(seconds=16)


async def test_an_unknown_function_fails_after_a_day(
    async_store: AsyncStore, settings: Settings, client: redis.Redis
) -> None:
    await async_store.run(producing.make([new("a", call=b"test.f?[]")]))
    client.hset("expirebridge:task:a", "unknown", int(time.time() * 1000) - 86_400_000)
    claim = await async_store.run(claiming.claim("t", Settings(), places=1, idle=True))
    assert [task.id for task in claim.tasks] == ["a"]
    unknown = claiming.Settlement("a", "t", "unknown", 15, "no handler")
    await async_store.run(claiming.settle([unknown], settings))
    read = await async_store.run(looking.get("a"))
    assert read is not None
    assert read.state is State.FAILED


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
        await asyncio.wait_for(done.wait(), PATIENCE)
    assert "a hook raised on Started" in caplog.text
