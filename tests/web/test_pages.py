"""The dashboard as a person uses it: in a browser, with the keyboard too, on a small screen too."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.routing import Mount

from expirebridge import Bridge, State, Then, web
from expirebridge.series.schedule import MAX_ID
from expirebridge.store.client import Store
from tests.kit.invoked import end_due_tasks
from tests.kit.processes import listener
from tests.web.serving import IN_CHROMIUM, Open, served

pytestmark = IN_CHROMIUM

EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"`${1}'
WIDTHS = [375, 1600]
THEMES = ["light", "dark"]
REFUSED = "mail.example: connection refused"


def state_of(bridge: Bridge, id: str) -> State | None:
    task = bridge.get(id)
    return task.state if task else None


# Looking


def test_the_overview_stays_right_by_itself(
    visit: Open, bridge: Bridge, client: redis.Redis
) -> None:
    page = visit()
    pending = page.locator("a.count.pending b")
    expect(pending).to_have_text("0")
    expect(page.locator(".alarms")).to_contain_text("no listener beats")
    bridge.make_task("mail.send", [1], 600, id="a")
    client.zadd("expirebridge:listeners", {"box:77:x": 4_000_000_000_000})
    expect(pending).to_have_text("1")
    expect(page.locator("table.plain")).to_contain_text("box")
    pending.click()
    expect(page.locator("td.id")).to_have_text("a")


def test_a_chart_tells_its_columns_by_pointer_and_by_keys(
    visit: Open, bridge: Bridge, client: redis.Redis
) -> None:
    seconds, _ = client.time()
    start = (int(seconds) // 60 + 10) * 60
    at = datetime.fromtimestamp(start + 5, UTC)
    bridge.make_tasks([{"func": "mail.send", "at": at} for _ in range(3)])
    page = visit()
    chart = page.locator(".chart.whole")
    column = chart.locator(f'svg:visible .column[data-told^="{at:%H:%M}"]')
    told = chart.locator(".told")
    expect(told).to_have_text("")
    column.locator(".hit").hover()
    expect(told).to_contain_text("3 due")
    box = chart.bounding_box()
    page.mouse.move(0, 0)
    expect(told).to_have_text("")
    chart.locator("svg:visible").focus()
    for _ in range(60):
        if "3 due" in (told.text_content() or ""):
            break
        page.keyboard.press("ArrowRight")
    assert chart.bounding_box() == box
    page.keyboard.press("Enter")
    expect(page.locator("td.id")).to_have_count(3)


def test_the_charts_of_the_past_show_an_hour_or_a_day(visit: Open, client: redis.Redis) -> None:
    minute = int(client.time()[0]) // 60
    client.hset(f"expirebridge:minute:{minute - 5}", mapping={"s1": 98, "f5": 2, "new": 7})
    client.hset(f"expirebridge:minute:{minute - 300}", mapping={"r17": 15})
    page = visit()
    throughput = page.locator(
        ".chart", has=page.locator('[aria-label^="Attempts that ended"]')
    ).first
    lateness = page.locator(".lateness .chart svg:visible")
    expect(throughput.locator('svg:visible [data-told*="98 succeeded"]')).to_have_count(1)
    late = lateness.locator('[data-told*="half within"]')
    expect(late).to_have_attribute("data-told", re.compile("half within 1ms, 99 % within 20ms$"))
    page.get_by_role("link", name="last day").click()
    expect(throughput.locator('svg:visible [data-told*="15 to be retried"]')).to_have_count(1)
    expect(lateness.locator('[data-told*="after more than 10m"]')).to_have_count(1)
    expect(throughput.locator("svg:visible .column")).to_have_count(96)


def test_tasks_are_found_by_filters_pages_and_ids(visit: Open, bridge: Bridge) -> None:
    bridge.make_tasks(
        [
            {"func": "mail.send" if n % 10 else "orders.rate", "delay": 600 + n, "id": f"t-{n:03}",
             "tags": [f"mod-{n % 3}"]}
            for n in range(120)
        ]
    )  # fmt: skip
    page = visit("/tasks")
    ids = page.locator("td.id")
    expect(ids).to_have_count(50)
    expect(page.locator(".pages")).to_contain_text("1\u201350 of 120")
    page.get_by_role("link", name="Next").click()
    expect(ids.first).to_have_text("t-050")
    page.get_by_role("link", name="Next").click()
    expect(ids).to_have_count(20)
    page.get_by_role("link", name="Previous").click()
    expect(ids.first).to_have_text("t-050")
    page.get_by_label("Function").fill("orders.rate")
    page.get_by_role("button", name="Filter").click()
    expect(ids).to_have_count(12)
    expect(page.locator(".pages")).to_contain_text("all that can match")
    page.get_by_role("link", name="Clear").click()
    page.get_by_label("Tag", exact=True).fill("mod-1")
    page.get_by_role("button", name="Filter").click()
    expect(ids).to_have_count(40)
    page.get_by_label("Find a task by its id").fill("t-077")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("mail.send")
    due = bridge.list(limit=1).tasks[0].due.replace(microsecond=0, tzinfo=None)
    page.goto(page.url.partition("/task")[0] + f"/tasks?before={due.isoformat()}")
    expect(page.locator("td.none")).to_contain_text("No task matches")


def test_a_task_shows_why_it_failed_and_its_arguments_if_asked(
    visit: Open, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("mail.send", ["a secret"], 600, id="a", tags=["x"])
    page = visit("/task?id=a")
    expect(page.locator(".state")).to_have_text("pending")
    assert "a secret" not in page.content()
    page.get_by_role("button", name="Show arguments").click()
    expect(page.locator("#arguments")).to_contain_text('"a secret"')
    before = page.locator(".due small").text_content()
    expect(page.locator(".due small")).not_to_have_text(before or "")
    bridge.cancel("a")
    expect(page.locator(".state")).to_have_text("cancelled")
    client.hset("expirebridge:task:a", mapping={"error": "Traceback:\n  x\nValueError: no"})
    expect(page.locator("pre.error")).to_contain_text("ValueError: no")


def test_a_traceback_is_opened_at_its_end(visit: Open, bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("mail.send", [], 600, id="a")
    bridge.cancel("a")
    lines = [f"  line {n} of what led there" for n in range(2000)]
    client.hset("expirebridge:task:a", "error", "\n".join([*lines, "ValueError: the end"]))
    for width in WIDTHS:
        page = visit("/task?id=a", width=width)
        shown = page.evaluate(
            """() => {
                const text = document.querySelector("pre.error").firstChild;
                const range = document.createRange();
                range.setStart(text, text.length - "ValueError: the end".length);
                range.setEnd(text, text.length);
                const end = range.getBoundingClientRect();
                const box = document.querySelector(".from-end").getBoundingClientRect();
                return [range.toString(), box.top <= end.top && end.bottom <= box.bottom];
            }"""
        )
        assert shown == ["ValueError: the end", True]


def test_no_failures_are_not_red(visit: Open, bridge: Bridge, client: redis.Redis) -> None:
    color = "getComputedStyle(document.querySelector('.count.{} b')).color"
    page = visit()
    assert page.evaluate(color.format("failed")) == page.evaluate(color.format("cancelled"))
    client.zadd("expirebridge:failed", {"a": 4_000_000_000_000})
    expect(page.locator("a.count.failed b")).to_have_text("1")
    assert page.evaluate(color.format("failed")) != page.evaluate(color.format("cancelled"))


# Acting


def test_each_action_on_a_task(visit: Open, bridge: Bridge) -> None:
    task = bridge.make_task("mail.send", [1], 600, id="a")
    page = visit("/task?id=a")
    steps = [
        ("Pause", "paused", "paused"),
        ("Resume", "resumed", "pending"),
        ("Put off", "moved", "pending"),
        ("Cancel", "cancelled", "cancelled"),
        ("Run again", "due now", "pending"),
        ("Run now", "due now", "pending"),
    ]
    for label, told, state in steps:
        if label == "Cancel":
            page.get_by_text("Cancel…").click()
            expect(page.locator(".confirm")).to_contain_text("It will not run.")
            assert state_of(bridge, "a") is State.PENDING
            label = "Cancel this task"  # noqa: PLW2901 - what its button says
        page.get_by_role("button", name=label, exact=True).click()
        expect(page.get_by_role("status")).to_have_text(f"Done: {told}.")
        expect(page.locator(".state")).to_have_text(state)
        if label == "Put off":
            moved = bridge.get("a")
            assert moved is not None
            assert 3599 < (moved.due - task.due).total_seconds() < 3700
    page.get_by_role("link", name="Actions").click()
    expect(page.locator("tbody tr")).to_have_count(len(steps))
    expect(page.locator("tbody")).to_contain_text("1 cancelled")


def test_a_failed_task_is_retried(visit: Open, bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("mail.send", [1], 600, id="a")
    bridge.cancel("a")
    client.hset("expirebridge:task:a", "state", "failed")
    client.zadd("expirebridge:failed", {"a": 4_000_000_000_000})
    client.zrem("expirebridge:cancelled", "a")
    page = visit("/tasks?state=failed")
    page.locator("td.id a").click()
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".state")).to_have_text("pending")


def test_what_can_be_done_follows_the_state_while_the_page_is_open(
    visit: Open, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [1], 0, id="a")
    end_due_tasks(store)
    page = visit("/task?id=a")
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".state")).to_have_text("pending")
    expect(page.get_by_text("Cancel…")).to_have_count(1)
    end_due_tasks(store)
    expect(page.locator(".state")).to_have_text("failed")
    expect(page.get_by_role("button", name="Retry")).to_have_count(1)
    expect(page.get_by_text("Cancel…")).to_have_count(0)


def test_an_action_on_all_that_match_is_previewed_first(visit: Open, bridge: Bridge) -> None:
    bridge.make_tasks(
        [{"func": "mail.send", "delay": 600, "id": f"m-{n}"} for n in range(30)]
        + [{"func": "orders.rate", "delay": 600, "id": f"o-{n}"} for n in range(450)]
    )
    page = visit("/tasks?func=mail.send")
    page.get_by_label("Action on all that match").select_option("pause")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("h1")).to_have_text("Pause 30 tasks?")
    assert bridge.count().paused == 0
    page.get_by_role("button", name="Pause 30").click()
    expect(page.get_by_role("status")).to_have_text("30 paused")
    assert (bridge.count().paused, bridge.count().pending) == (30, 450)
    page.goto(page.url.partition("/bulk")[0] + "/tasks?state=pending")
    page.get_by_label("Action on all that match").select_option("put_off")
    page.get_by_label("Put off by").fill("2h")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("h1")).to_have_text("Put off 450 tasks by 2h?")
    page.get_by_role("button", name="Put off 450").click()
    expect(page.get_by_role("status")).to_have_text("450 moved")


def test_a_night_incident(visit: Open, bridge: Bridge, url: str, tmp_path: Path) -> None:
    """A handler begins to fail: see it, find it, mend it, and retry all that failed."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    mail = "from expirebridge import handler\n@handler(retry=[])\nasync def send(user):\n    "
    (folder / "mail.py").write_text(f'{mail}raise ConnectionError("{REFUSED}")\n')
    (folder / "orders.py").write_text("async def rate(order): ...\n")
    bridge.make_tasks(
        {"func": func, "args": [n], "delay": 0}
        for n in range(31)
        for func in ("mail.send", "orders.rate")
    )
    page = visit()
    failed, succeeded = page.locator("a.count.failed b"), page.locator("a.count.succeeded b")
    with listener(url, folder):
        expect(failed).to_have_text("31")
        expect(succeeded).to_have_text("31")
        failed.click()
        expect(page.locator("td.func")).to_have_text(["mail.send"] * 31)
        expect(page.locator("td.error").first).to_have_text(f"ConnectionError: {REFUSED}")
        page.locator("td.id a").first.click()
        expect(page.locator("pre.error")).to_contain_text("raise ConnectionError")
    (folder / "mail.py").write_text(f"{mail}pass\n")
    with listener(url, folder):
        page.get_by_role("link", name="Tasks", exact=True).click()
        page.get_by_role("navigation", name="States").get_by_role("link", name="failed").click()
        page.get_by_label("Function").fill("mail.send")
        page.get_by_role("button", name="Filter").click()
        page.get_by_label("Action on all that match").select_option("retry")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("h1")).to_have_text("Retry 31 tasks?")
        page.get_by_role("button", name="Retry 31").click()
        expect(page.get_by_role("status")).to_have_text("31 due now")
        page.get_by_role("link", name="Overview").click()
        expect(failed).to_have_text("0")
        expect(succeeded).to_have_text("62")


# What is slipped in


@pytest.mark.parametrize("theme", THEMES)
def test_what_is_slipped_in_is_text(
    visit: Open, bridge: Bridge, client: redis.Redis, theme: str
) -> None:
    bridge.make_task("mail.send", [EVIL, {EVIL: EVIL}], 600, id="a", tags=["x"])
    bridge.make_task("mail.send", [EVIL], 600, id="b")
    bridge.cancel("b")
    bridge.pause("b")
    tag = EVIL.replace(" ", "_")
    client.hset(
        "expirebridge:task:a", mapping={"call": f'{EVIL}?["{EVIL}"]', "tags": tag, "error": EVIL}
    )
    client.hset("expirebridge:task:b", mapping={"error": EVIL, "result": EVIL})
    client.zadd("expirebridge:listeners", {f"{EVIL}:1:x": 4_000_000_000_000})
    client.set(f'f:?shop/faq.ask?["{EVIL}"]', "", px=600_000)
    page = visit(theme=theme)
    expect(page.locator("table.plain")).to_contain_text("<img src=x")
    for path in ("/tasks", "/tasks?state=cancelled", "/task?id=b", "/task?id=a"):
        page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/")[2] + path)
        expect(page.locator("main")).to_contain_text("<img src=x")
        expect(page.locator("main img")).to_have_count(0)
    page.get_by_role("button", name="Show arguments").click()
    expect(page.locator("#arguments pre").first).to_contain_text("<img src=x")
    page.get_by_label("Find a task by its id").fill(EVIL)
    # Bad input is answered with a status that the browser reports.
    assert page.evaluate("document.querySelector('.find').checkValidity()")


# How it looks


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_pages_fit_the_screen_in_both_themes(
    visit: Open, bridge: Bridge, client: redis.Redis, theme: str, width: int
) -> None:
    long = "x" * 120
    args = [long * 9]
    bridge.make_task("path/to/" + long + ".run", args, 600, id=long, tags=[long])
    client.hset(f"expirebridge:task:{long}", "error", "word " * 200 + long * 9)
    series = "s" * MAX_ID
    bridge.schedule(series, long + ".run", every="1h", tags=[long])
    bridge.run_series(series)
    group = "g" * 100
    bridge.make_group(group, [{"func": long + ".run", "delay": 600}], then=Then(long + ".run"))
    client.hset(f"expirebridge:task:{group}@g0", "error", "word " * 200 + long * 9)
    bridge.hold(tag=long, reason=long, until=datetime(2100, 1, 1, tzinfo=UTC))
    client.zadd("expirebridge:listeners", {f"{long}:1:x": 4_000_000_000_000})
    page = visit(width=width, theme=theme)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 24)"
    assert dark is (theme == "dark")
    base = page.url.rstrip("/")
    for path in (
        "/", "/tasks", f"/task?id={long}", "/actions", "/bulk?action=pause&state=pending",
        "/series", f"/series?id={series}", "/limits", "/groups", f"/groups?name={group}",
        f"/task?id={group}@then", f"/task/edit?id={long}",
    ):  # fmt: skip
        page.goto(base + path, wait_until="domcontentloaded")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.get_by_label("Keyword").fill(f'{{"{long}": "{long}"}}')
    page.get_by_role("button", name="Show the difference").click()
    expect(page.get_by_role("button", name="Change the arguments")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#theme").click()
    other = "light" if theme == "dark" else "dark"
    assert page.locator("html").get_attribute("data-theme") == other
    page.reload(wait_until="domcontentloaded")
    assert page.locator("html").get_attribute("data-theme") == other


def test_the_keyboard_reaches_everything(visit: Open, bridge: Bridge) -> None:
    bridge.make_task("mail.send", [1], 600, id="a")
    page = visit("/tasks")
    page.wait_for_load_state("load")
    reached: list[str] = []
    while True:
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body") or len(reached) > 60:
            break
        # Each has a ring: where it has none, this waits in vain.
        page.wait_for_function("getComputedStyle(document.activeElement).outlineStyle !== 'none'")
        reached.append(
            page.evaluate(
                "(e => (e.textContent || e.ariaLabel || e.name || '').trim().split('\\n')[0])"
                "(document.activeElement)"
            )
        )
    for wanted in ("Skip to content", "Overview", "Tasks", "Find", "Filter", "Preview", "a"):
        assert wanted in reached, (wanted, reached)


# Elsewhere


def test_it_can_be_mounted_anywhere(visit: Open, bridge: Bridge, url: str) -> None:
    bridge.make_task("mail.send", [1], 600, id="a")
    mounted = web.app(url)
    host = Starlette(
        routes=[Mount("/ops/tasks", mounted)], lifespan=mounted.router.lifespan_context
    )
    with served(host) as address:
        page = visit("/ops/tasks/", at=address)
        expect(page.locator(".badge")).to_have_text("read only")
        page.get_by_role("link", name="Tasks", exact=True).click()
        page.locator("td.id a").click()
        assert page.url == f"{address}/ops/tasks/task?id=a"
        expect(page.locator(".acts")).to_have_count(0)
        page.wait_for_load_state("domcontentloaded")  # before that a click is nobody's
        page.get_by_role("button", name="Show arguments").click()
        expect(page.locator("#arguments pre").first).to_be_visible()
        bridge.cancel("a")
        expect(page.locator(".state")).to_have_text("cancelled")
        page.goto("about:blank")
