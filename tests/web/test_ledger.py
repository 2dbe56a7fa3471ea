"""The dashboard's page of the ledger: asked without a browser, and looked at in one."""

import re
from pathlib import Path

import pytest
import redis
from playwright.sync_api import expect, sync_playwright
from sqlalchemy import update

from expirebridge import Bridge, web
from expirebridge.ledger import Ledger
from tests.kit.ledgers import LedgerHarness
from tests.web.serving import CHROMIUM, OPTIONS, OWN, PATIENCE_MS, Asking, served

HOUR = 3_600_000
EVIL = "<img src=x onerror=alert(1)>"


def counts_in(page: str) -> dict[str, str]:
    pairs = re.findall(r"<b>([^<]*)</b><span>([^<]*)</span>", page)
    return {label: value for value, label in pairs}


async def test_series_of_the_ledger_stand_among_the_others(
    asking: Asking, harness: LedgerHarness, ledger: str, bridge: Bridge
) -> None:
    bridge.schedule("in-redis", "db.tidy", every="2h")
    for number in range(101):
        bridge.schedule(f"s{number:03}", "db.tidy", every="3h")
    with harness.engine.begin() as connection:
        Ledger(ledger).schedule(connection, "tenant:7@b", "db.tidy", every="1h")
    async with asking(ledger=ledger) as pages:
        page = (await pages.get("/series")).text
        [following] = re.findall(r'href="(/series\?cursor=[^"]+)"', page)
        rest = (await pages.get(following.replace("&amp;", "&"))).text
        bad = await pages.get("/series?cursor=x")
    assert page.index("tenant:7@b</a> <small>ledger</small>") < page.index("in-redis<")
    assert "in-redis</a> <small>" not in page
    assert len(re.findall(r">s\d\d\d<", page + rest)) == 101
    assert "tenant:7@b" not in rest
    assert bad.status_code == 400


async def test_a_series_of_the_ledger_is_steered_there(
    asking: Asking, harness: LedgerHarness, ledger: str, bridge: Bridge
) -> None:
    bridge.schedule("same", "db.tidy", every="2h")
    with harness.engine.begin() as connection:
        Ledger(ledger).schedule(connection, "same", "db.tidy", every="1h")

    def paused() -> tuple[bool, bool]:
        with harness.engine.connect() as connection:
            there = Ledger(ledger).get_series(connection, "same")
        here = bridge.get_series("same")
        assert here is not None
        assert there is not None
        return here.paused is not None, there.paused is not None

    async with asking(ledger=ledger, actions=True) as pages:

        async def act(action: str, place: str) -> str:
            form = {"id": "same", "action": action, "in": place}
            answer = await pages.post("/series", data=form, headers={"origin": OWN})
            assert answer.status_code == 303, answer.text
            return (await pages.get(answer.headers["location"])).text

        assert "Done: paused. A listener carries it" in await act("pause", "ledger")
        assert paused() == (False, True)
        assert "of the ledger" not in await act("pause", "redis")
        assert paused() == (True, True)
        assert "Done: resumed." in await act("resume", "ledger")
        assert paused() == (True, False)
        before = len(harness.all_rows())
        assert "Done: due now." in await act("run", "ledger")
        assert len(harness.all_rows()) == before + 1
        harness.settle_down()
        page = (await pages.get("/series?id=same")).text
    # Of two, the commands take that of the ledger as well.
    assert "a series of the ledger" in page
    assert len(re.findall(r'<td class="mono id"', page)) == 2


async def test_where_the_dashboard_may_not_write_it_says_how_to_steer_a_series(
    asking: Asking, harness: LedgerHarness, ledger: str
) -> None:
    with harness.engine.begin() as connection:
        Ledger(ledger).schedule(connection, "nightly", "db.tidy", every="1h")
    locked = f"{ledger.replace('///', '///file:')}?mode=ro&uri=true"
    async with asking(ledger=locked, actions=True) as pages:
        assert "nightly" in (await pages.get("/series")).text
        form = {"id": "nightly", "action": "pause", "in": "ledger"}
        answer = await pages.post("/series", data=form, headers={"origin": OWN})
        log = (await pages.get("/actions")).text
    assert answer.status_code == 503
    assert "expirebridge series pause nightly" in answer.text
    assert "failed midway" in log


async def test_series_of_redis_are_shown_while_the_ledger_is_away(
    asking: Asking, bridge: Bridge, tmp_path: Path
) -> None:
    bridge.schedule("in-redis", "db.tidy", every="2h")
    async with asking(ledger=f"sqlite:///{tmp_path}/empty.db") as pages:
        page = (await pages.get("/series")).text
    assert "in-redis" in page
    assert "Left out: the ledger: there is no table expirebridge_schema" in page


async def test_it_shows_what_waits_and_what_was_refused(
    asking: Asking, harness: LedgerHarness, ledger: str, client: redis.Redis
) -> None:
    harness.insert("a", HOUR, ext_string="ann")
    harness.insert("bad", params="no JSON", ext_string=EVIL)
    harness.settle_down()
    async with asking(ledger=ledger) as pages:
        page = (await pages.get("/ledger")).text
        assert counts_in(page)["refused in a day"] == "1"
        assert "args: invalid literal" in page
        assert "1 row was refused" in page
        assert EVIL not in page
        found = (await pages.get("/ledger", params={"ext": "ann"})).text
        assert 'href="/task?id=a"' in found
        assert "No task is called so." in (await pages.get("/ledger?ext=bob")).text
        assert (await pages.get("/ledger", params={"ext": "x" * 300})).status_code == 400
    harness.insert("old", HOUR, modified=1)
    client.zadd("expirebridge:dirty", {"a": 1})
    async with asking(ledger=ledger) as pages:
        page = (await pages.get("/ledger")).text
    assert counts_in(page)["rows to be carried"] == "1"
    assert counts_in(page)["to be written back"] == "1"
    assert "1 row waits to be carried to Redis, the first for" in page


async def test_rows_that_wait_are_listed_and_lead_to_their_tasks(
    asking: Asking, harness: LedgerHarness, ledger: str
) -> None:
    harness.insert("waits", HOUR)
    harness.insert("bad", params="no JSON")
    harness.settle_down()
    harness.insert("new", HOUR)
    harness.insert(EVIL[:20], HOUR)

    def cells(page: str) -> dict[str, str]:
        row = r'data-label="Id">(.*?)</td>.*?data-label="Reason">(.*?)</td>'
        return dict(re.findall(row, page, re.DOTALL))

    async with asking(ledger=ledger) as pages:
        relay = (await pages.get("/ledger?rows=relay")).text
        time = (await pages.get("/ledger?rows=time")).text
        refused = (await pages.get("/ledger?rows=refused")).text
        assert (await pages.get("/ledger?rows=x")).status_code == 400
        assert (await pages.get("/ledger?rows=relay&cursor=x")).status_code == 400
    assert cells(time) == {'<a href="/task?id=waits">waits</a>': "not due yet"}
    # Redis has no task of these.
    assert {"new", "bad"} & {*cells(relay), *cells(refused)} == {"new", "bad"}
    assert "it will be refused: id" in relay
    assert EVIL[:20] not in relay


async def test_rows_that_are_kept_back_are_shown_with_their_time(
    asking: Asking, harness: LedgerHarness, ledger: str, bridge: Bridge
) -> None:
    far = LedgerHarness(
        harness.engine, harness.made, harness.store, place=harness.place, horizon=3600.0
    )
    for number in range(51):
        far.insert(f"far{number:02}", (2 + number) * HOUR, ext_string="ann")
    far.insert("near", 0, ext_string="ann")
    far.insert("taken", 2 * HOUR)
    far.settle_down()
    bridge.make_task("other.task", [], "1h", id="taken")
    task = far.made.task
    with far.engine.begin() as connection:
        earlier = update(task).values(written=task.c.written - 3 * HOUR // 2)
        connection.execute(earlier.where(task.c.id == "taken"))
    far.settle_down()
    async with asking(ledger=ledger) as pages:
        first = (await pages.get("/ledger?rows=kept-back")).text
        [following] = re.findall(r'rel="next" href="([^"]+)"', first)
        second = (await pages.get(following.replace("&amp;", "&"))).text
        taken = (await pages.get("/ledger")).text
        found = (await pages.get("/ledger?ext=ann")).text
    assert counts_in(first)["rows to be carried"] == "0"
    assert counts_in(first)["kept back in SQL"] == "51"
    assert counts_in(first)["wait for their ids"] == "1"
    ids = re.findall(r'data-label="Id">(far\d\d)<', first + second)
    assert ids == [f"far{number:02}" for number in range(51)]
    assert len(re.findall("kept back in SQL until <time", first)) == 50
    assert "it waits for the end of that" in taken
    assert len(re.findall("<small>kept back in SQL until <time", found)) == 51


async def test_without_arguments_it_shows_no_messages(
    asking: Asking, harness: LedgerHarness, ledger: str
) -> None:
    harness.insert("a", status=20, todo=0, message="ValueError: a secret", ext_string="ann")
    async with asking(ledger=ledger) as pages:
        assert "a secret" in (await pages.get("/ledger?ext=ann")).text
    harness.insert("b", status=20, todo=0, message="refused: a secret")
    async with asking(ledger=ledger) as pages:
        assert "a secret" in (await pages.get("/ledger?rows=refused")).text
    async with asking(ledger=ledger, redact=web.without_arguments) as pages:
        for query in ("ext=ann", "rows=refused"):
            assert "a secret" not in (await pages.get(f"/ledger?{query}")).text


async def test_a_database_that_is_away_is_an_alarm(asking: Asking) -> None:
    away = "postgresql+psycopg://a:s3cret@127.0.0.1:1/d"
    async with asking(ledger=away) as pages:
        answer = await pages.get("/ledger?ext=ann")
    assert answer.status_code == 200
    assert "cannot be reached" in answer.text
    assert "s3cret" not in answer.text


async def test_the_overview_shows_the_alarms_of_the_ledger(
    asking: Asking, harness: LedgerHarness, ledger: str
) -> None:
    harness.settle_down()
    async with asking(ledger=ledger) as pages:
        assert "to be carried to Redis" not in (await pages.get("/")).text
    harness.insert("old", HOUR, modified=1)
    async with asking(ledger=ledger) as pages:
        page = (await pages.get("/")).text
    assert "1 row waits to be carried to Redis, the first for" in page
    assert "No alarm" not in page
    away = "postgresql+psycopg://a:s3cret@127.0.0.1:1/d"
    async with asking(ledger=away) as pages:
        page = (await pages.get("/")).text
    assert "cannot be reached" in page
    assert "s3cret" not in page


async def test_without_a_ledger_there_is_no_page(asking: Asking) -> None:
    async with asking() as pages:
        assert (await pages.get("/ledger")).status_code == 404
        assert "Ledger" not in (await pages.get("/")).text


@pytest.mark.rest
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [375, 1600])
def test_it_is_used_in_a_browser(harness: LedgerHarness, ledger: str, url: str, width: int) -> None:
    harness.insert("a", HOUR, ext_string="ann")
    harness.insert("bad", params="no JSON", ext_string=EVIL)
    harness.settle_down()
    complaints: list[str] = []
    with (
        served(web.app(url, ledger=ledger, loopback_only=True)) as address,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS) as browser,
    ):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type == "error" else None,
        )
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(address, wait_until="domcontentloaded")
        page.get_by_role("link", name="Ledger").click()
        expect(page.get_by_role("heading", name="that were refused within a day")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_label("Ext").fill("ann")
        page.get_by_role("button", name="Find").last.click()
        expect(page.get_by_role("heading", name="Ext ann")).to_be_visible()
        page.get_by_role("link", name="a", exact=True).first.click()
        expect(page).to_have_url(f"{address}/task?id=a")
    assert complaints == []


@pytest.mark.rest
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_one_pages_through_the_rows_in_a_browser(
    harness: LedgerHarness, ledger: str, url: str
) -> None:
    for number in range(60):
        harness.insert(f"r{number:02}", HOUR)
    harness.settle_down()
    harness.insert("fresh", HOUR)
    with (
        served(web.app(url, ledger=ledger, loopback_only=True)) as address,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS) as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{address}/ledger", wait_until="domcontentloaded")
        ids = page.locator('td[data-label="Id"]')
        expect(ids).to_have_text(["fresh"])
        page.get_by_role("link", name="wait for their time").click()
        expect(ids).to_have_count(50)
        page.get_by_role("link", name="Next").click()
        expect(ids).to_have_text([f"r{number}" for number in range(50, 60)])
        page.get_by_role("link", name="First").click()
        ids.first.get_by_role("link").click()
        expect(page.locator(".state")).to_have_text("pending")
        page.goto("about:blank")
