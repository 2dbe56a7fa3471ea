"""What the overview says, asked without a browser."""

import html
import re
from collections.abc import Iterator

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, LateCause, Lateness
from expirebridge.listener.execution.outcome import OutcomeBuilder
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.fleet import digest_of
from expirebridge.task.durations import human
from expirebridge.task.missing_ability import NOT_OPENED
from expirebridge.task.objective import Objective
from expirebridge.web.overview import Backlog, Readings
from tests.kit.invoked import end_due_tasks, invoke_json
from tests.kit.steps import claim, settle
from tests.web.serving import Asking


@pytest.fixture
def beating(client: redis.Redis) -> Iterator[None]:
    """What the checks take for a listener that works: it beats, and it is subscribed."""
    client.zadd("expirebridge:listeners", {"box:77:x": 4_000_000_000_000})
    with client.pubsub() as pubsub:
        pubsub.subscribe("expirebridge:doorbell:1", "__keyevent@1__:expired")
        yield


@pytest.mark.usefixtures("beating")
async def test_without_an_alarm_it_says_what_was_looked_for(asking: Asking) -> None:
    async with asking() as client:
        shown = (await client.get("/")).text
    assert "No alarm" in shown
    assert "no task is more than 30s overdue" in shown
    assert "Backlog" not in shown


@pytest.mark.usefixtures("beating")
async def test_a_backlog_is_shown_and_how_fast_it_drains(
    asking: Asking, async_bridge: AsyncBridge, client: redis.Redis
) -> None:
    await async_bridge.make_tasks([{"func": "a.b", "delay": 0} for _ in range(1500)])
    async with asking() as pages:
        shown = (await pages.get("/")).text
        assert "nothing waits" not in shown
        assert "1,500 tasks are overdue, the first for" in shown
        assert "no task is more than 30s overdue" in shown
        client.zremrangebyrank("expirebridge:pending", 0, 1000)
        while "tasks are overdue" in shown and "drains by" not in shown:
            shown = (await pages.get("/")).text
        assert "499 tasks are overdue" in shown
        assert "a second: gone in about" in shown


def test_how_a_backlog_changes_is_told_from_the_last_readings() -> None:
    readings = Readings()

    def told(at: float, overdue: int) -> str:
        readings.note(at, overdue)
        return str(Backlog(overdue=overdue, waited=4.0, per_second=readings.per_second))

    assert told(0, 7509) == (
        "7,509 tasks are overdue, the first for 4s. How fast they drain is known in a moment."
    )
    assert told(10, 6509).endswith("The backlog drains by 100 a second: gone in about 1m 5s.")
    assert told(12, 7629).endswith("The backlog grows by 10 a second.")
    assert told(24, 6509).endswith("The backlog stays as it is.")  # since the one at 10
    assert told(30, 6500).endswith("The backlog drains by 90 a minute: gone in about 1h 12m.")
    # Nobody looked for a while: what was read before says nothing of now.
    assert told(600, 10).endswith("is known in a moment.")
    assert told(601, 1).startswith("1 task is overdue, the first for 4s.")


async def test_functions_are_shown_with_the_numbers_of_stats(
    asking: Asking, bridge: Bridge, store: Store, url: str
) -> None:
    for n in range(3):
        bridge.make_task("mail.send", [n], 0)
    end_due_tasks(store, "succeeded", "")
    for n in range(2):
        bridge.make_task("orders.rate", [n], 0)
    end_due_tasks(store)
    async with asking() as pages:
        shown = (await pages.get("/")).text
    rows = re.findall(r"<tr><td class=\"mono\" data-label=\"Function\">(.*?)</tr>", shown)
    cells = [re.sub(r"<[^>]+>", " ", row).split() for row in rows]
    stats = invoke_json("stats", url=url)["functions"]
    assert [(row[0], int(row[1]), int(row[2])) for row in cells] == [
        (name, stats[name]["succeeded"], stats[name]["failed"])
        for name in ("orders.rate", "mail.send")
    ]
    mail = stats["mail.send"]
    assert " ".join(cells[1][3:]) == f"{human(mail['lateness'])} {human(mail['duration'])}"
    assert 'href="/tasks?func=orders.rate&amp;state=failed"' in rows[0]


async def test_why_tasks_began_late_is_said_in_the_overview_and_on_their_page(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [], 0, id="a")
    store.run(claiming.claim("t", Settings(), places=1, idle=True))
    late = Lateness(90, LateCause.NO_ROOM)
    missed = Objective(1, is_kept=False)
    settle(store, Settlement("a", "t", "succeeded", late=late, objective=missed))
    async with asking() as pages:
        shown = (await pages.get("/")).text
        page = (await pages.get("/task?id=a")).text
    assert "Late tasks, by so much in all: no room in the listeners 1m 30s." in shown
    assert "<small>1m 30s late: no room in the listeners</small>" in page
    assert 'data-label="Within">0.00 %</td>' in shown
    assert 'data-label="Burn rate">100.0</td>' in shown


async def test_functions_that_no_listener_knows_are_named(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.sned", [], 3600)
    known = {"mail.send": "(to)"}
    store.run(claiming.heartbeat("host:1:aa", 10, [], code=digest_of(known), functions=1))
    store.run(fleet.declare(digest_of(known), known))
    async with asking() as pages:
        shown = html.unescape((await pages.get("/")).text)
    assert "mail.sned: no listener knows it (did you mean 'mail.send'?)" in shown


async def test_a_key_that_listeners_lack_is_an_alarm_and_their_functions_are_not(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [], 0, id="a")
    [task] = claim(store).tasks
    lacking = OutcomeBuilder(task).not_opened(f"{NOT_OPENED}it is sealed with key k1").settlement
    assert settle(store, lacking) == [Settled.DONE]
    async with asking() as pages:
        shown = (await pages.get("/")).text
    assert "1 task waits, because a listener lacks the key that opens them: mail.send (1)" in shown
    assert "wait for functions that the listeners do not know" not in shown


async def test_it_is_explained_why_more_can_run_than_there_are_places(asking: Asking) -> None:
    async with asking() as pages:
        assert "So more tasks can run than listeners" in (await pages.get("/")).text


async def test_retries_are_told_from_first_waits(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.make_tasks([{"func": "a.b", "delay": 0, "id": id} for id in ("tried", "tried-2")])
    end_due_tasks(store, "retry", delay=600)
    bridge.make_tasks([{"func": "a.b", "delay": 700, "id": f"first-{n}"} for n in range(1100)])
    bridge.make_task("a.b", [], 600, id="away", tags=["x"])

    async def ids(query: str) -> list[str]:
        shown = (await pages.get(f"/tasks?{query}")).text
        return re.findall(r"href=\"/task\?id=([^\"]+)\"", shown)

    async with asking() as pages:
        assert "2 retries in the next 1,000</small>" in (await pages.get("/")).text
        assert await ids("wait=retry") == ["tried", "tried-2"]
        assert (await ids("wait=first"))[:2] == ["away", "first-0"]
        bridge.pause("tried")
        bridge.cancel_all([f"first-{n}" for n in range(1100)])
        assert await ids("state=paused&wait=retry") == ["tried"]
        assert await ids("state=paused&wait=first") == []
        # What has ended waits for nothing, and is not left out for it.
        assert len(await ids("state=cancelled&wait=first")) >= 50
        bridge.cancel("away")
        assert await ids("tag=x") == ["away"]
        assert await ids("tag=x&wait=first") == []
    async with asking() as pages:
        assert "1 retry</small>" in (await pages.get("/")).text


async def test_functions_can_be_chosen_from_those_that_come_or_ended(
    asking: Asking, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.ended", [], 0)
    end_due_tasks(store)
    bridge.make_tasks([{"func": f"mail.next{n % 3}", "delay": 60} for n in range(9)])
    async with asking() as pages:
        shown = (await pages.get("/tasks")).text
    assert re.findall(r"<option value=\"(mail[^\"]*)\">", shown) == [
        "mail.ended", "mail.next0", "mail.next1", "mail.next2",
    ]  # fmt: skip
    assert 'name="func" value="" maxlength="200" placeholder="mail.send" list="functions"' in shown
