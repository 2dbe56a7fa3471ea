"""Tasks that are found late: they run, are skipped or are spread, and a report says so."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from expirebridge import AsyncBridge, Spread, State, handler
from expirebridge.hooks import End, Scanned, Started
from expirebridge.settings import Settings
from tests.kit.patience import PATIENCE
from tests.kit.steps import found
from tests.kit.witness import Witness, listening, logged

pytestmark = pytest.mark.servers("oldest")


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
        await asyncio.wait_for(logged("after the gap: ", caplog), PATIENCE)
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
