"""A listener that is asked to stop: it claims no more, and finishes or gives back what it holds."""

import asyncio
import logging

import pytest

from expirebridge import AsyncBridge, State
from expirebridge.hooks import End, Started
from expirebridge.settings import Settings
from tests.kit.steps import found
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")


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
