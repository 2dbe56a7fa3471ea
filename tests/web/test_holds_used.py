"""Holds on the dashboard, used in a browser."""

from playwright.sync_api import expect

from expirebridge import Bridge
from tests.web.serving import IN_CHROMIUM, Open

pytestmark = IN_CHROMIUM


def test_a_tag_is_put_on_hold_and_released(visit: Open, bridge: Bridge) -> None:
    page = visit("/limits")
    page.get_by_label("Function, tag or all tasks").select_option("Tag")
    page.get_by_label("Name").fill("customer-9")
    page.get_by_label("Reason").fill("their import floods us")
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Done: on hold.")
    [hold] = bridge.holds()
    assert (hold.tag, hold.until, hold.reason) == ("customer-9", None, "their import floods us")
    expect(page.get_by_role("cell", name="their import floods us")).to_be_visible()
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("status")).to_have_text("Done: released.")
    assert bridge.holds() == []
    page.get_by_role("link", name="Actions").click()
    expect(page.locator('td[data-label="Action"]')).to_have_text(["release", "hold"])
    page.locator('td[data-label="On"] a').first.click()
    expect(page.locator("h1")).to_have_text("Limits and holds")


def test_all_tasks_are_put_on_hold_and_released(visit: Open, bridge: Bridge) -> None:
    page = visit("/limits")
    page.get_by_label("Function, tag or all tasks").select_option("All tasks")
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page.get_by_role("status")).to_have_text("Done: on hold.")
    assert [hold.name for hold in bridge.holds()] == ["all"]
    page.get_by_label("Over how long").fill("10m")
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("status")).to_have_text("Done: released.")
    assert bridge.holds() == []
    page.get_by_role("link", name="Actions").click()
    page.locator('td[data-label="On"] a').first.click()
    expect(page.locator("h1")).to_have_text("Limits and holds")
