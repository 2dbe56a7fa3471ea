"""Many orders for a few ids, while two listeners run what is due: nothing runs unasked."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, TaskExists, current_task
from expirebridge.settings import Settings
from expirebridge.task.task import Task
from tests.kit.witness import Witness, listening

pytestmark = pytest.mark.servers("oldest")

IDS = ("a", "b", "c", "d")
ORDERS = 400
DELAYS = (0, 0.005, 0.02, 0.05, 0.1)


class Producer:
    """Gives each task that it makes a number of its own, and remembers which id had it."""

    def __init__(self, bridge: AsyncBridge, client: redis.Redis, seed: int) -> None:
        self._bridge = bridge
        self._client = client
        self._random = random.Random(seed)  # noqa: S311 - nothing is kept secret by it
        self.id_of: dict[int, str] = {}

    async def order(self) -> None:
        """Do one thing to one id."""
        id, delay = self._random.choice(IDS), self._random.choice(DELAYS)
        orders: list[Callable[[str, float], Awaitable[Any]]] = [
            self._replace, self._replace, self._replace, self._make, self._reschedule, self._edit,
            lambda name, _: self._bridge.cancel(name),
            lambda name, _: self._bridge.pause(name),
            lambda name, _: self._bridge.resume(name),
            lambda name, _: self._bridge.run_now(name),
        ]  # fmt: skip
        await self._random.choice(orders)(id, delay)
        await asyncio.sleep(self._random.choice((0, 0, 0.005, 0.02)))

    async def finish(self) -> list[int]:
        """Give each id one last task; return their numbers."""
        for id in IDS:
            await self._replace(id, 0.05)
        return list(self.id_of)[-len(IDS) :]

    async def _replace(self, id: str, delay: float) -> None:
        await self._bridge.make_task(
            "test.note", [self._next(id)], delay, id=id, if_exists="replace"
        )

    async def _make(self, id: str, delay: float) -> None:
        try:
            await self._bridge.make_task("test.note", [self._next(id)], delay, id=id)
        except TaskExists:
            self.id_of.popitem()

    async def _reschedule(self, id: str, delay: float) -> None:
        await self._bridge.reschedule(id, delay=delay)

    async def _edit(self, id: str, delay: float) -> None:
        if task := await self._bridge.get(id):
            self._client.pexpire(task.key, round(delay * 1000) + 1)

    def _next(self, id: str) -> int:
        number = len(self.id_of)
        self.id_of[number] = id
        return number


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.rest)])
async def test_what_runs_was_asked_for_under_that_id(
    settings: Settings, async_bridge: AsyncBridge, client: redis.Redis, seed: int
) -> None:
    ran: list[tuple[int, Task]] = []

    async def note(number: int) -> None:
        ran.append((number, current_task()))
        await asyncio.sleep(0.01 * (number % 3))

    witness, producer = Witness(), Producer(async_bridge, client, seed)
    async with listening(settings, witness, note=note), listening(settings, witness, note=note):
        for _ in range(ORDERS):
            await producer.order()
        last = await producer.finish()
        await witness.until(lambda: {number for number, _ in ran} >= set(last))
    assert [(number, task.id) for number, task in ran] == [
        (number, producer.id_of[number]) for number, _ in ran
    ]
    assert {task.id for task in (await async_bridge.list()).tasks} == set(IDS)
