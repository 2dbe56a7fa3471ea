"""A listener that is suspended: it claims nothing, finishes what runs, and claims again later."""

import asyncio

import redis

from expirebridge import AsyncBridge, State
from expirebridge.hooks import Claimed, Started
from expirebridge.settings import Settings
from tests.kit.logs import Log
from tests.kit.steps import found
from tests.kit.witness import Witness, listening


async def test_a_suspended_listener_finishes_what_runs_and_claims_nothing_until_it_is_resumed(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    async def finish() -> None:
        await go_on.wait()

    async with listening(Settings(url=url), witness, finish=finish) as listener:
        first = await async_bridge.make_task("test.finish", [], 0)
        await witness.until(lambda: witness.seen(Started))
        listener.suspend()
        await log.until("suspended")
        waiting = await async_bridge.make_task("test.finish", [], 0)
        assert log.events()["drained"] == 0
        go_on.set()
        await log.until("drained")
        assert (await found(async_bridge, first)).state is State.SUCCEEDED
        assert (await found(async_bridge, waiting)).state is State.PENDING
        assert (await async_bridge.count()).listeners == 1
        listener.resume()
        await witness.until_ended(2)
    assert (await found(async_bridge, waiting)).state is State.SUCCEEDED


async def test_a_full_listener_that_is_suspended_claims_nothing_when_places_become_free(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    async def finish() -> None:
        await go_on.wait()

    async with listening(Settings(url=url, concurrency=2), witness, finish=finish) as listener:
        await async_bridge.make_tasks([{"func": "test.finish", "delay": 0} for _ in range(10)])
        await witness.until(lambda: len(witness.seen(Started)) == 2)
        listener.suspend()
        await log.until("suspended")
        claims = len(witness.seen(Claimed))
        go_on.set()
        await log.until("drained")
        assert (await async_bridge.count()).pending == 8
        assert len(witness.seen(Claimed)) == claims
        listener.resume()
        await witness.until_ended(10)


async def test_nothing_is_claimed_or_runs_once_a_suspended_listener_is_drained(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    """Suspended at any moment of a stream of claims."""
    witness = Witness()

    async def note() -> None:
        await asyncio.sleep(0)

    async with listening(Settings(url=url, concurrency=20), witness, note=note) as listener:
        await async_bridge.make_tasks([{"func": "test.note", "delay": 0} for _ in range(1000)])
        for n in range(30):
            await witness.until_ended(10 * n)
            listener.suspend()
            await log.until("drained", n + 1)
            claims = len(witness.seen(Claimed))
            counts = await async_bridge.count()
            assert (counts.running, counts.succeeded) == (0, len(witness.ended()))
            assert len(witness.seen(Claimed)) == claims
            listener.resume()
        await witness.until_ended(1000)
    assert len(witness.ended()) == 1000


async def test_a_task_that_waits_to_run_alone_is_not_claimed_when_a_suspended_listener_is_idle(
    url: str, async_bridge: AsyncBridge, client: redis.Redis, log: Log
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    async def finish() -> None:
        await go_on.wait()

    async with listening(Settings(url=url), witness, finish=finish) as listener:
        poison = await async_bridge.make_task("test.finish", [], "1h")
        client.hset(f"expirebridge:task:{poison.id}", "lapses", 2)
        await async_bridge.make_task("test.finish", [], 0)
        await witness.until(lambda: witness.seen(Started))
        claims = len(witness.seen(Claimed))
        await async_bridge.run_now(poison.id)
        await witness.until(lambda: len(witness.seen(Claimed)) > claims)
        listener.suspend()
        await log.until("suspended")
        go_on.set()
        await log.until("drained")
        assert (await found(async_bridge, poison)).state is State.PENDING
        listener.resume()
        await witness.until_ended(2)
    assert (await found(async_bridge, poison)).state is State.SUCCEEDED


async def test_a_listener_that_stops_is_not_suspended_or_resumed(
    url: str, async_bridge: AsyncBridge, log: Log
) -> None:
    witness = Witness()
    go_on = asyncio.Event()

    async def finish() -> None:
        await go_on.wait()

    async with listening(Settings(url=url, grace=20), witness, finish=finish) as listener:
        await async_bridge.make_task("test.finish", [], 0)
        await witness.until(lambda: witness.seen(Started))
        listener.suspend()
        listener.suspend()
        await log.until("suspended")
        listener.stop()
        listener.resume()
        await log.until("stopping")
        listener.suspend()
        await async_bridge.make_task("test.finish", [], 0)
        go_on.set()
    assert (await async_bridge.count()).succeeded == 1
    assert (log.events()["suspended"], log.events()["resumed"]) == (1, 0)
