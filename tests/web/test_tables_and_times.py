"""What each page does alike: tables that a narrow screen can show, and times in two zones."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
import redis
from playwright.sync_api import Page, expect

from expirebridge import Bridge, web
from expirebridge.ledger import Ledger
from expirebridge.store.client import Store
from tests.kit.invoked import end_due_tasks
from tests.kit.ledgers import LedgerHarness
from tests.kit.waiting import declare, park
from tests.web.serving import IN_CHROMIUM, Open, served

pytestmark = IN_CHROMIUM

HOUR = 3_600_000
WIDTHS = [375, 1600]
PAGES = {
    "/": 2, "/tasks": 1, "/tasks?state=failed": 1, "/tasks?tag=x": 1, "/task?id=a": 1, "/series": 1,
    "/series?id=hourly": 1, "/limits": 3, "/actions": 1, "/ledger?rows=time": 1,
    "/ledger?rows=refused": 1, "/ledger?ext=ann": 2,
}  # fmt: skip
"""The pages, and how many tables each has."""
CELLS = """() => [...document.querySelectorAll("table")].map((table) => {
    const headings = [...table.querySelectorAll("th")].map((th) => th.textContent);
    const rows = [...table.querySelectorAll("tbody tr")].filter((row) => row.cells.length > 1);
    return rows.map((row) => [...row.cells].map((cell, at) => [
        headings[at], cell.dataset.label, getComputedStyle(cell, "::before").content,
        getComputedStyle(cell).paddingLeft, getComputedStyle(cell).textAlign,
    ]));
})"""
TIMES = """() => [...document.querySelectorAll("time[datetime]:not(.local)")].map((time) => {
    const local = time.nextElementSibling;
    return [time.dateTime, local && local.matches("time.local") ? local.textContent : null,
            local ? local.getClientRects().length : 0, time.getClientRects().length];
})"""


@pytest.fixture
def full(
    url: str, ledger: str, harness: LedgerHarness, bridge: Bridge, store: Store, client: redis.Redis
) -> Iterator[str]:
    """The address of a dashboard on which each table has a row."""
    bridge.make_task("mail.send", [1], 0, id="a", tags=["x"])
    bridge.make_task("mail.send", [1], 0, id="b")
    bridge.schedule("hourly", "db.tidy", every="1h")
    bridge.run_series("hourly")
    end_due_tasks(store)
    bridge.run_now("a")
    with harness.engine.begin() as connection:
        Ledger(ledger).schedule(connection, "daily", "db.tidy", every="24h")
    harness.insert("kept", HOUR, ext_string="ann")
    harness.insert("bad", params="no JSON", ext_string="ann")
    harness.settle_down()
    declare(client, {"sms": {"most": 2}})
    bridge.make_task("mail.send", [1], 3600, id="w")
    park(client, "w", "sms=17")
    bridge.hold(tag="x", reason="x")
    client.zadd("expirebridge:listeners", {"box:77:x": 4_000_000_000_000})
    with served(web.app(url, ledger=ledger, actions=True, loopback_only=True)) as address:
        yield address


def act_once(page: Page) -> None:
    page.get_by_role("button", name="Put off").click()
    expect(page.get_by_role("status")).to_have_text("Done: moved.")


@pytest.mark.parametrize("width", WIDTHS)
def test_each_cell_is_labelled_by_its_heading_where_a_table_has_none(
    visit: Open, full: str, width: int
) -> None:
    page = visit("/task?id=a", at=full, width=width)
    act_once(page)
    for path, count in PAGES.items():
        page.goto(full + path, wait_until="domcontentloaded")
        tables = page.evaluate(CELLS)
        assert len(tables) == count, path
        for rows in tables:
            assert rows, path
            for heading, label, shown, *place in (cell for row in rows for cell in row):
                assert label == heading, path
                assert shown == (f'"{heading}"' if width == 375 else "none"), path
                assert width != 375 or place == ["80px", "left"], (path, heading)
        for heading in page.locator("thead").all():
            expect(heading).to_be_visible(visible=width == 1600)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.goto("about:blank")


def in_zone(utc: str, zone: str) -> str:
    moment = datetime.fromisoformat(utc)
    local = moment.astimezone(ZoneInfo(zone))
    offset = re.sub(r"(\d\d)(\d\d)$", r"\1:\2", f"{local:%z}").replace("-", "\u2212")
    day = "" if local.date() == moment.date() else f"{local:%m-%d} "
    return f"{day}{local:%H:%M} {offset}"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("zone", ["Asia/Tehran", "Pacific/Kiritimati", "America/St_Johns"])
def test_local_times_are_beside_those_in_utc(visit: Open, full: str, zone: str, width: int) -> None:
    page = visit("/task?id=a", at=full, width=width, zone=zone)
    act_once(page)
    for path in PAGES:
        page.goto(full + path, wait_until="domcontentloaded")
        times = page.evaluate(TIMES)
        assert bool(times) is (path != "/"), path
        for utc, local, shows_local, shows_utc in times:
            assert local == in_zone(utc, zone), path
            assert bool(shows_local) is bool(shows_utc) is True, path
        assert f"beside them in {zone}" in (page.locator("footer").text_content() or "")
    page.goto("about:blank")


def test_a_browser_in_utc_shows_one_time(visit: Open, full: str) -> None:
    page = visit("/tasks", at=full, zone="UTC")
    assert page.evaluate(TIMES)
    assert all(local == "" and not shown for _, local, shown, _ in page.evaluate(TIMES))
    expect(page.locator("footer")).not_to_contain_text("beside")
    page.goto("about:blank")


def test_times_that_come_later_are_local_as_well(visit: Open, full: str, bridge: Bridge) -> None:
    page = visit("/task?id=a", at=full, zone="Asia/Tehran")
    bridge.cancel("a")
    expect(page.locator(".state")).to_have_text("cancelled")
    times = page.evaluate(TIMES)
    assert len(times) > 3
    assert all(local == in_zone(utc, "Asia/Tehran") for utc, local, *_ in times)
    page.goto("about:blank")


def test_a_column_of_a_chart_tells_its_local_time(visit: Open, full: str) -> None:
    page = visit(at=full, zone="Asia/Tehran")
    column = page.locator(".chart.whole svg:visible .column").nth(30)
    column.locator(".hit").hover()
    told = page.locator(".chart.whole .told")
    time = told.locator("time")
    start = time.get_attribute("datetime") or ""
    begins, _, offset = in_zone(start, "Asia/Tehran").rpartition(" ")
    ends = datetime.fromisoformat(start) + timedelta(minutes=1)
    ends_at = in_zone(ends.isoformat(), "Asia/Tehran").split()[-2]
    expect(time).to_have_text(f"{begins}\u2013{ends_at} {offset}")
    expect(told).to_contain_text(start[11:16])
    page.goto("about:blank")
