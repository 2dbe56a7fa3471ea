"""How much a listener claims, what it holds at once, and which claim is cancelled."""

import asyncio
from dataclasses import replace

import pytest

from expirebridge import AsyncBridge, current_task
from expirebridge.hooks import Claimed, End, Started
from expirebridge.listener.execution import settler
from expirebridge.listener.execution.attempt import FinishedAttempt
from expirebridge.listener.execution.settler import Settler
from expirebridge.settings import Settings
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")


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


async def test_what_ended_takes_no_room_while_it_is_recorded_up_to_a_limit(
    settings: Settings, async_bridge: AsyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settler, "MOST_ENDED", 1)
    witness = Witness()
    record, may_record = Settler._settle, asyncio.Event()

    async def later(self: Settler, batch: list[FinishedAttempt]) -> None:
        await may_record.wait()
        await record(self, batch)

    monkeypatch.setattr(Settler, "_settle", later)

    async def send() -> None: ...

    async with listening(replace(settings, concurrency=1), witness, send=send) as listener:
        await async_bridge.make_tasks([{"func": "test.send", "delay": 0}] * 3)
        await witness.until(lambda: len(witness.seen(Started)) == 2)
        [consumer] = listener._servers.consumers
        assert (consumer.settler.claim_limit(), witness.ended()) == (0, [])
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
        listener._executor.cancel([("a", "the token of its former claim")])
        await asyncio.sleep(0)
        go_on.set()
        [ended] = await witness.until_ended()
    assert ended.end is End.SUCCEEDED
