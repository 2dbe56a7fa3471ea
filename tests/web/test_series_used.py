"""The dashboard's pages of series, used in a browser."""

from playwright.sync_api import expect

from expirebridge import Bridge
from expirebridge.store.client import Store
from tests.kit.invoked import end_due_tasks
from tests.web.serving import IN_CHROMIUM, Open

pytestmark = IN_CHROMIUM


def test_a_series_is_steered_from_the_list_and_from_its_page(visit: Open, bridge: Bridge) -> None:
    bridge.schedule("nightly", "db.tidy", cron="30 2 * * *", tags=["db"])
    page = visit("/series")
    buttons = page.locator("tbody button")
    expect(buttons).to_have_text(["Run now", "Pause"])
    buttons.get_by_text("Pause").click()
    expect(page.get_by_role("status")).to_have_text("Done: paused.")
    found = bridge.get_series("nightly")
    assert found is not None
    assert found.paused is not None
    expect(page.locator(".acts button")).to_have_text(["Run now", "Resume"])
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("status")).to_have_text("Done: resumed.")
    assert bridge.count().pending == 1
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("status")).to_have_text("Done: due now.")
    assert bridge.count().pending == 2
    page.get_by_role("link", name="Actions").click()
    expect(page.locator('td[data-label="Action"]')).to_have_text(
        ["run series", "resume series", "pause series"]
    )
    page.get_by_role("link", name="nightly").first.click()
    expect(page.locator("h1")).to_contain_text("nightly")


def test_links_lead_from_a_series_to_its_tasks_and_back(
    visit: Open, bridge: Bridge, store: Store
) -> None:
    bridge.schedule("tenant:7", "db.tidy", every="1h")
    bridge.schedule("tenant:7@b", "db.tidy", every="1h")
    bridge.make_task("db.tidy", [], "1h", id="tenant:7@x")
    ran = []
    for outcome in ("failed", "succeeded"):
        tick = bridge.run_series("tenant:7")
        assert tick is not None
        ran.append(tick.id)
        end_due_tasks(store, outcome)
    page = visit("/series")
    page.get_by_role("link", name="tenant:7", exact=True).click()
    ids = page.locator("td.id")
    expect(ids).to_have_count(3)
    expect(page.locator('td[data-label="State"]')).to_have_text(["pending", "succeeded", "failed"])
    expect(ids.nth(1)).to_have_text(ran[1])
    ids.nth(2).get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text(ran[0])
    page.get_by_role("link", name="tenant:7", exact=True).click()
    expect(page.locator("h1")).to_contain_text("a series")
    page.locator(".due a").click()
    expect(page.locator(".state")).to_have_text("pending")
    page.get_by_role("link", name="tenant:7", exact=True).click()
    expect(ids).to_have_count(3)
