"""Rolling deploys that change, add and remove series, back and forth."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from expirebridge import AsyncBridge, Series, every
from expirebridge.settings import Settings
from tests.kit.patience import PATIENCE
from tests.kit.witness import listening

pytestmark = pytest.mark.servers("oldest")


def declaring(**schedules: str) -> Callable[..., Any]:
    """A handler that declares a series for each of these."""

    async def tick() -> None:
        pass

    for id, when in schedules.items():
        every(when, id=id)(tick)
    return tick


OLD = {"kept": "1h", "changed": "1h", "removed": "1h"}
NEW = {"kept": "1h", "changed": "2h", "added": "1h"}


class Fleet:
    """Listeners of this process, with what they declare."""

    def __init__(self, settings: Settings, bridge: AsyncBridge) -> None:
        self._settings = Settings(url=settings.url, lease=1)
        self._bridge = bridge

    @asynccontextmanager
    async def running(self, schedules: dict[str, str]) -> AsyncIterator[None]:
        async with listening(self._settings, tick=declaring(**schedules)):
            yield

    async def series(self) -> dict[str, Series]:
        return {one.id: one for one in (await self._bridge.list_series()).series}

    async def until(self, **schedules: str) -> dict[str, Series]:
        """Wait until the series stand so. Nobody reports a takeover, so this has to ask."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.series()
                if {id: str(one.schedule) for id, one in found.items()} == {
                    id: f"every {when}" for id, when in schedules.items()
                }:
                    return found
                await asyncio.sleep(0.05)


@pytest.fixture
def fleet(settings: Settings, async_bridge: AsyncBridge) -> Fleet:
    return Fleet(settings, async_bridge)


async def test_a_deploy_goes_forth_and_back(fleet: Fleet, async_bridge: AsyncBridge) -> None:
    both = NEW | {"removed": "1h"}
    async with fleet.running(OLD):
        before = await fleet.until(**OLD)
        async with fleet.running(NEW):
            # The newer counts while both run; what it lacks lives on.
            during = await fleet.until(**both)
            assert during["kept"].next == before["kept"].next
            assert during["kept"].carriers == 2
            assert during["removed"].carriers == 1
            assert await async_bridge.prune_series() == []
        # The deploy goes back: the older takes over when nobody declares the newer.
        back = await fleet.until(**OLD, added="1h")
        assert back["kept"].next == before["kept"].next
        assert back["added"].carriers == 0
        # And forth, for good.
        async with fleet.running(NEW):
            await fleet.until(**both)
    async with fleet.running(NEW):
        after = await fleet.until(**both)
        assert after["removed"].next is not None  # it lives until somebody says that it may go
        assert await async_bridge.prune_series() == ["removed"]
        await fleet.until(**NEW)
        counts = await async_bridge.count()
    assert counts.pending == len(NEW)


async def test_the_same_code_changes_nothing(fleet: Fleet, async_bridge: AsyncBridge) -> None:
    async with fleet.running(OLD):
        before = await fleet.until(**OLD)
    at = before["kept"].next
    assert at is not None
    await async_bridge.reschedule(f"kept@{round(1000 * at.timestamp())}", "3h")
    moved = await fleet.series()
    async with fleet.running(OLD), fleet.running(OLD):
        after = await fleet.until(**OLD)
    assert {id: one.due for id, one in after.items()} == {id: one.due for id, one in moved.items()}
    assert (await async_bridge.count()).pending == len(OLD)


async def test_a_paused_series_stays_paused_over_a_deploy(
    fleet: Fleet, async_bridge: AsyncBridge
) -> None:
    async with fleet.running(OLD):
        await fleet.until(**OLD)
        await async_bridge.pause_series("changed")
    async with fleet.running(NEW):
        after = await fleet.until(**NEW, removed="1h")
    assert after["changed"].paused is not None
    assert after["changed"].next is None
