"""A signal from the dashboard, in a browser."""

from playwright.sync_api import expect

from expirebridge import Bridge
from tests.web.serving import IN_CHROMIUM, Open

pytestmark = IN_CHROMIUM


def test_a_task_that_waits_for_a_signal_is_signalled(visit: Open, bridge: Bridge) -> None:
    bridge.make_task("orders.cancel", [42], "15m", id="pay-42", on_signal="orders.ship")
    page = visit("/task?id=pay-42")
    expect(page.locator(".why")).to_contain_text("then orders.ship, else orders.cancel")
    page.get_by_role("link", name="Signal").click()
    page.get_by_label("What the signal says").fill('{"ref": 7}')
    page.get_by_role("button", name="Signal").click()
    expect(page.get_by_role("status")).to_have_text("Done: signalled.")
    expect(page.locator("h1")).to_contain_text("orders.ship")
    expect(page.get_by_role("link", name="Signal")).to_have_count(0)
    page.get_by_role("button", name="Show arguments, key, signal and result").click()
    expect(page.locator("#arguments")).to_contain_text('"ref": 7')
    page.get_by_role("link", name="Actions").click()
    expect(page.locator('td[data-label="Action"]')).to_have_text(["signal"])
    task = bridge.get("pay-42")
    assert task is not None
    assert task.signal is not None
    assert (task.func, task.signal.payload) == ("orders.ship", {"ref": 7})
