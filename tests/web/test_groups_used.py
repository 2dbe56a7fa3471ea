"""Groups on the dashboard, used in a browser."""

from playwright.sync_api import expect

from expirebridge import Bridge, State, Then
from expirebridge.store.client import Store
from tests.kit.steps import state_of
from tests.web.serving import IN_CHROMIUM, Open

pytestmark = IN_CHROMIUM


def test_a_group_is_found_closed_and_cancelled(visit: Open, bridge: Bridge, store: Store) -> None:
    later = {"func": "mail.send", "delay": "1h"}
    bridge.make_group("crawl", [later] * 3, then=Then("mail.report"), close=False)
    page = visit("/task?id=crawl@g1")
    page.get_by_role("link", name="crawl", exact=True).click()
    expect(page.locator("h1")).to_contain_text("crawl")
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("status")).to_have_text("Done: closed.")
    expect(page.get_by_role("button", name="Close")).to_have_count(0)
    button = page.get_by_role("button", name="Cancel this group")
    expect(button).to_be_hidden()  # until it is confirmed
    page.get_by_text("Cancel…").click()
    expect(page.locator(".confirm")).to_contain_text("3 members are cancelled")
    button.click()
    expect(page.get_by_role("status")).to_have_text("Done: cancelled.")
    expect(page.locator('td[data-label="State"]')).to_have_text(["cancelled"] * 3)
    assert state_of(store, "crawl@then") is State.CANCELLED
    page.get_by_role("link", name="Groups").click()
    expect(page.locator('td[data-label="Members"]')).to_contain_text("3 of 3")
