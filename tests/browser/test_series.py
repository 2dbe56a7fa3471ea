"""The dashboard's page of series, asked without a browser."""

import re

import pytest
import redis

from expirebridge import Bridge
from expirebridge.store.store import Store
from tests.browser.serving import Asking
from tests.kit.invoked import end_due_tasks


async def test_series_are_shown_with_their_next_and_last_ticks(
    asking: Asking, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    async with asking() as pages:
        assert "There is no series." in (await pages.get("/series")).text
        bridge.schedule("nightly", "db.tidy", cron="30 2 * * *", tz="Europe/Berlin")
        tick = bridge.run_series("nightly")
        assert tick is not None
        end_due_tasks(store, reason="the disk is full")
        bridge.schedule("held", "db.tidy", every="1h")
        bridge.pause_series("held")
        client.hset("expirebridge:series:held", "call", "<script>?[]")
        page = (await pages.get("/series")).text
    assert "30 2 * * * Europe/Berlin" in page
    assert f'href="/task?id={tick.id}"' in page.replace("%40", "@")
    assert re.search(r"<td>failed</td>", page)
    assert "<td>paused</td>" in page
    assert "<script>?" not in page
    assert "&lt;script&gt;" in page


async def test_there_are_pages_of_series(asking: Asking, bridge: Bridge) -> None:
    for number in range(101):
        bridge.schedule(f"s{number:03}", "db.tidy", every="1h")
    async with asking() as pages:
        first = (await pages.get("/series")).text
        [following] = re.findall(r'href="(/series\?cursor=\d+)"', first)
        rest = (await pages.get(following)).text
        bad = await pages.get("/series?cursor=x")
    assert len(re.findall(r">s\d\d\d<", first)) == 100
    assert len(re.findall(r">s\d\d\d<", rest)) == 1
    assert bad.status_code == 400


# One that is too large for a rank, for the server, for a cursor of the server, and for Python.
@pytest.mark.parametrize("number", ["9" * 16, f"{2**63 - 1}", "9" * 30, "9" * 5000])
@pytest.mark.parametrize("partitions", [1, 2])
async def test_a_cursor_that_cannot_be_is_refused(
    asking: Asking, bridge: Bridge, number: str, partitions: int
) -> None:
    if partitions > 1:
        bridge.create_partitions(partitions)
    async with asking() as pages:
        for cursor in (number, f"{number}.0", f"0.0-{number}.0"):
            assert (await pages.get(f"/series?cursor={cursor}")).status_code == 400
