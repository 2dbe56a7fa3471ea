"""Handlers that take too long, never return, or block the event loop."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from expirebridge import AsyncBridge, State, current_task, handler
from expirebridge.hooks import End, Started
from expirebridge.listener.listener import Listener, ListenerStuck
from expirebridge.listener.runner.leases import Leases
from expirebridge.settings import Settings
from expirebridge.store import calls
from tests.kit.steps import found
from tests.kit.witness import Witness, listening, registry_of


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


async def test_a_blocked_event_loop_keeps_its_leases(url: str, async_bridge: AsyncBridge) -> None:
    witness = Witness()

    async def block() -> None:
        threading.Event().wait(1.5)  # blocks the loop, as a careless handler would

    async with listening(Settings(url=url, lease=0.5), witness, block=block):
        await async_bridge.make_task("test.block", [], 0)
        await witness.until_ended()
    assert witness.ended()[0].end is End.SUCCEEDED


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


async def test_the_heartbeat_outlives_any_error(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the listener would run tasks whose leases nobody keeps."""
    beats = 0
    again = threading.Event()
    beat = Leases.beat

    def count(leases: Leases) -> calls.HeartbeatReply:
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
