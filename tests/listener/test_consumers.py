"""Several consumers in one process: one capacity, one executor, and one task alone at a time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from expirebridge import AsyncBridge, Task, current_task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End, Hooks
from expirebridge.settings import Settings
from tests.kit.nodes import Process
from tests.kit.servers import FEW, SERVERS, hanging
from tests.kit.witness import Witness, registry_of

pytestmark = pytest.mark.servers("oldest")

ONE, TWO = "{a}one", "{b}two"
"""Prefixes that begin with different tags can share a database."""


class Gauge:
    """How many handlers run, and which."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.most = 0
        self.alone: dict[str, bool] = {}
        self.order: list[str] = []

    async def work(self, name: str, seconds: float) -> None:
        """Take so long, and note who else runs meanwhile."""
        id = current_task().id
        self.running.add(id)
        self.order.append(name)
        self.most = max(self.most, len(self.running))
        self.alone[id] = self.running == {id}
        await asyncio.sleep(seconds)
        self.alone[id] &= self.running == {id}
        self.running.discard(id)


@asynccontextmanager
async def producing(url: str, *prefixes: str) -> AsyncIterator[list[AsyncBridge]]:
    async with contextlib.AsyncExitStack() as stack:
        bridges = [AsyncBridge(url, prefix=prefix) for prefix in prefixes]
        yield [await stack.enter_async_context(bridge) for bridge in bridges]


async def make_many(bridge: AsyncBridge, name: str, count: int, seconds: float) -> list[Task]:
    """Tasks that take up to four times as long as the first of them, so that they end singly."""
    lengths = [seconds * (1 + n % 4) for n in range(count)]
    return await bridge.make_tasks(
        [{"func": "test.work", "args": [name, length], "delay": 0} for length in lengths]
    )


def poison(client: redis.Redis, prefix: str, task: Task) -> None:
    """Age a task: its listeners died twice while it ran."""
    client.hset(f"{prefix}:task:{task.id}", "lapses", 2)


async def test_consumers_share_one_room_and_take_turns(url: str) -> None:
    gauge, witness = Gauge(), Witness()
    settings = Settings(url=url, concurrency=4)
    process = Process(settings, registry_of(work=gauge.work), Hooks([witness]))
    async with producing(url, ONE, TWO) as (one, two):
        await make_many(one, "one", 100, 0.002)
        await make_many(two, "two", 100, 0.002)
        async with process.listening(process.node(ONE, TWO)):
            await witness.until_ended(200, End.SUCCEEDED)
    assert gauge.most == 4
    # While both have tasks that wait, neither is left behind.
    half = gauge.order[:100]
    assert 30 <= half.count("one") <= 70
    assert process.capacity.free == 4


async def test_a_poison_task_runs_alone_in_the_process(url: str, client: redis.Redis) -> None:
    gauge, witness = Gauge(), Witness()
    settings = Settings(url=url, concurrency=4)
    process = Process(settings, registry_of(work=gauge.work), Hooks([witness]))
    async with producing(url, ONE, TWO) as (one, two):
        poisons = []
        for bridge, prefix in ((one, ONE), (two, TWO)):
            for _ in range(2):
                [task] = await make_many(bridge, "poison", 1, 0.02)
                poison(client, prefix, task)
                poisons.append(task.id)
                await make_many(bridge, "other", 20, 0.002)
        async with process.listening(process.node(ONE, TWO)):
            await witness.until_ended(84, End.SUCCEEDED)
    assert gauge.most == 4
    assert [gauge.alone[id] for id in poisons] == [True] * 4


@pytest.fixture(params=FEW[:1])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    with (
        EmbeddedServer(binary=SERVERS[request.param]) as one,
        EmbeddedServer(binary=SERVERS[request.param]) as two,
    ):
        yield one, two


async def test_a_node_that_is_away_takes_no_room_from_the_others(
    pair: tuple[EmbeddedServer, EmbeddedServer],
) -> None:
    """Neither by the claim that it does not answer, nor by outcomes that it does not record."""
    away, there = pair
    gauge, witness = Gauge(), Witness()
    ended = asyncio.Event()

    async def end() -> None:
        await ended.wait()

    settings = Settings(url=there.url, concurrency=2, lease=1.0)
    process = Process(settings, registry_of(work=gauge.work, end=end), Hooks([witness]))
    nodes = [process.node("expirebridge", url=server.url) for server in pair]
    async with (
        producing(away.url, "expirebridge") as [far],
        producing(there.url, "expirebridge") as [near],
        process.listening(*nodes),
    ):
        await far.make_tasks([{"func": "test.end", "delay": 0}] * 2)
        await witness.until(lambda: process.capacity.free == 0)
        with hanging(away):
            # More than they can do in the second for which a claim is waited for.
            tasks = await make_many(near, "near", 24, 0.05)
            with redis.Redis.from_url(there.url) as client:
                poison(client, "expirebridge", tasks[0])
            ended.set()
            await witness.until_ended(24, End.SUCCEEDED)
            assert gauge.most == 2
            assert gauge.alone[tasks[0].id]
        await witness.until(lambda: len(witness.ended()) >= 26)
    assert process.capacity.free == 2


async def test_a_consumer_goes_on_on_another_node(
    pair: tuple[EmbeddedServer, EmbeddedServer],
) -> None:
    first, second = pair
    gauge, witness = Gauge(), Witness()
    process = Process(Settings(url=first.url), registry_of(work=gauge.work), Hooks([witness]))
    old, new = (process.node("expirebridge", url=server.url) for server in pair)
    async with (
        producing(first.url, "expirebridge") as [before],
        producing(second.url, "expirebridge") as [after],
        process.listening(old),
    ):
        await make_many(before, "before", 1, 0)
        await witness.until_ended(1, End.SUCCEEDED)
        [task] = await make_many(after, "after", 1, 0)
        [consumer] = old.consumers
        [server] = new.nodes.values()
        consumer.move_to(server.session_for("expirebridge"))
        consumer.wakeup.set()
        await witness.until_ended(2, End.SUCCEEDED)
        assert gauge.order == ["before", "after"]
        read = await after.get(task.id)
        assert read is not None
        assert read.state.finished
    await new.close()
