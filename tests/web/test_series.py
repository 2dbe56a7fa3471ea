"""The dashboard's pages of series, asked without a browser."""

import re

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, web
from expirebridge.series.schedule import MAX_ID
from expirebridge.store.client import Store
from tests.kit.invoked import end_due_tasks
from tests.web.serving import OWN, Asking


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
    assert re.search(r"<td data-label=\"Ended\">failed</td>", page)
    assert '<td data-label="Standing">paused</td>' in page
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


# Acting


async def test_a_read_only_dashboard_steers_no_series(
    asking: Asking, async_bridge: AsyncBridge
) -> None:
    await async_bridge.schedule("nightly", "db.tidy", every="1h")
    form = {"id": "nightly", "action": "pause"}
    async with asking() as pages:
        for page in ("/series", "/series?id=nightly"):
            assert 'method="post"' not in (await pages.get(page)).text
        refused = await pages.post("/series", data=form, headers={"origin": OWN})
    assert (refused.status_code, refused.text) == (403, "This dashboard is read only.")
    async with asking(actions=True) as pages:
        assert (await pages.post("/series", data=form)).status_code == 403
        found = await async_bridge.get_series("nightly")
        assert found is not None
        assert found.paused is None
        assert (await pages.post("/series", data=form, headers={"origin": OWN})).status_code == 303
    found = await async_bridge.get_series("nightly")
    assert found is not None
    assert found.paused is not None


async def test_a_login_that_may_not_write_steers_no_series(
    asking: Asking, async_bridge: AsyncBridge, client: redis.Redis, url: str
) -> None:
    await async_bridge.schedule("nightly", "db.tidy", every="1h")
    client.acl_setuser(
        "looks", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all", "-hset"]
    )
    looks = redis.asyncio.Redis.from_url(url.replace("redis://", "redis://looks:x@"))
    try:
        async with looks, asking(actions=True, client=looks) as pages:
            form = {"id": "nightly", "action": "pause"}
            answer = await pages.post("/series", data=form, headers={"origin": OWN})
            assert (await pages.get("/series?id=nightly")).status_code == 200
    finally:
        client.acl_deluser("looks")
    assert answer.status_code == 503
    assert "hset" in answer.text
    found = await async_bridge.get_series("nightly")
    assert found is not None
    assert found.paused is None


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"id": "nightly", "action": "remove"}, 400),
        ({"id": "nightly"}, 400),
        ({"id": "a b", "action": "run"}, 400),
        ({"id": "x" * (MAX_ID + 1), "action": "run"}, 400),
        ({"id": "nightly", "action": "run", "in": "ledger"}, 400),
        ({"id": "nightly", "action": "run", "in": "x"}, 400),
        ({"id": "no-such", "action": "run"}, 303),
    ],
)
async def test_no_form_breaks_the_page_of_series(
    asking: Asking, form: dict[str, str], status: int
) -> None:
    async with asking(actions=True) as pages:
        answer = await pages.post("/series", data=form, headers={"origin": OWN})
        assert answer.status_code == status, answer.text
        if status == 303:
            assert (await pages.get(answer.headers["location"])).status_code == 404


# Links


def ids_in(page: str) -> list[str]:
    return re.findall(r'<td class="mono id"[^>]*><a [^>]*>([^<]*)<', page)


def run_once(bridge: Bridge, id: str) -> str:
    tick = bridge.run_series(id)
    assert tick is not None
    return tick.id


async def test_the_page_of_a_series_shows_its_latest_tasks(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.schedule("hourly", "db.tidy", every="1h")
    ran = []
    for number in range(25):
        ran.append(run_once(bridge, "hourly"))
        end_due_tasks(store, "succeeded" if number % 2 else "failed")
    async with asking() as pages:
        page = (await pages.get("/series?id=hourly")).text
        missing = await pages.get("/series?id=no-such")
    # The first is the one that waits for its hour.
    assert ids_in(page)[1:] == ran[:5:-1]
    assert "Not all ids" not in page
    assert (missing.status_code, "No series has the id no-such." in missing.text) == (404, True)


async def test_the_tasks_of_a_series_are_found_in_each_partition(
    asking: Asking, bridge: Bridge
) -> None:
    bridge.create_partitions(4)
    ran = {}
    for id in ("a", "b", "c", "d", "e"):
        bridge.schedule(id, "db.tidy", every="1h")
        ran[id] = run_once(bridge, id)
    async with asking() as pages:
        for id, tick in ran.items():
            shown = ids_in((await pages.get(f"/series?id={id}")).text)
            assert (len(shown), shown[1]) == (2, tick)


async def test_it_says_if_not_all_ids_were_looked_at(
    asking: Asking, bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expirebridge.series.page.MOST_LOOKED_AT", 1)
    bridge.schedule("late", "db.tidy", every="1h")
    bridge.make_tasks([{"func": "db.tidy", "delay": 5} for _ in range(2_001)])
    async with asking() as pages:
        page = (await pages.get("/series?id=late")).text
    assert ids_in(page) == []
    assert 'href="/tasks?state=any&amp;id=late%40">look further</a>' in page


async def test_redaction_hides_the_errors_of_a_series_tasks(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.schedule("nightly", "db.tidy", every="1h")
    bridge.run_series("nightly")
    end_due_tasks(store, reason="a secret")
    async with asking() as pages:
        assert "a secret" in (await pages.get("/series?id=nightly")).text
    async with asking(redact=web.without_arguments) as pages:
        assert "a secret" not in (await pages.get("/series?id=nightly")).text
