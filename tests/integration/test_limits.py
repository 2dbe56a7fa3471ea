"""Handlers with limits, in real listeners."""

import asyncio
import time
from dataclasses import replace

from expirebridge import AsyncBridge, Busy, Limit, Rate, handler
from expirebridge.hooks import End
from expirebridge.settings import Settings
from tests.kit.witness import Witness, listening


async def test_at_most_so_many_run_for_each_customer_and_all_in_the_end(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    running: dict[str, int] = {"a": 0, "b": 0}
    most = {"a": 0, "b": 0}

    @handler(limit=Limit(2, per="customer"))
    async def export(customer: str) -> None:
        running[customer] += 1
        most[customer] = max(most[customer], running[customer])
        await asyncio.sleep(0.005)
        running[customer] -= 1

    tasks = [{"func": "test.export", "args": ["ab"[n % 2]], "delay": 0} for n in range(60)]
    await async_bridge.make_tasks(tasks)
    async with listening(replace(settings, concurrency=20), witness, export=export):
        await witness.until_ended(60)
    assert most == {"a": 2, "b": 2}


async def test_a_busy_provider_is_left_alone_by_all_tasks(
    settings: Settings, async_bridge: AsyncBridge
) -> None:
    witness = Witness()
    started: list[float] = []

    @handler(rate=Rate(1000, "1s", per="account", burst=10), retry=[])
    async def send(account: str) -> None:
        started.append(time.monotonic())
        if len(started) == 1:
            raise Busy(after=0.3, per="account")

    async with listening(replace(settings, concurrency=1), witness, send=send):
        await async_bridge.make_task("test.send", ["a"], 0)
        await witness.until_ended(1, End.SNOOZED)
        await async_bridge.make_tasks([{"func": "test.send", "args": ["a"], "delay": 0}] * 5)
        await witness.until_ended(6, End.SUCCEEDED)
    assert len(started) == 7
    assert started[1] - started[0] > 0.29
