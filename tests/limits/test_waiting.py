"""A task that waits for a slot, as those see it who look at it."""

from datetime import datetime
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, QueuePlace, State
from expirebridge.fleet.comparing import scope_of
from expirebridge.observe.server_metrics import OfTheServer
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import inspection
from expirebridge.task.calls.pages import BEGINNING
from expirebridge.task.task import from_ms
from tests.kit.invoked import invoke, invoke_json
from tests.kit.waiting import declare, hold_slots, park

pytestmark = pytest.mark.servers("oldest")

LANE = "sms=17"


@pytest.fixture
def due(bridge: Bridge, client: redis.Redis) -> datetime:
    """When task `w` was due, which waits; another is pending, and one is paused."""
    bridge.make_task("mail.send", [1], 3600, id="w", tags=["t"])
    bridge.make_task("mail.send", [2], 3600, id="p", tags=["t"])
    bridge.make_task("mail.send", [3], 3600, id="halted", tags=["t"])
    bridge.pause("halted")
    return from_ms(park(client, "w", LANE))


def test_it_is_looked_up_listed_and_counted(bridge: Bridge, due: datetime) -> None:
    task = bridge.get("w")
    assert task is not None
    assert (task.state, task.due, task.state.finished) == (State.WAITING, due, False)
    assert [one.id for one in bridge.list(state="waiting").tasks] == ["w"]
    assert [one.id for one in bridge.list().tasks] == ["p", "w", "halted"]
    assert {one.id for one in bridge.list(tag="t").tasks} == {"p", "w", "halted"}
    counts = bridge.count()
    assert (counts.pending, counts.waiting, counts.paused, counts.overdue) == (1, 1, 1, 0)
    assert counts.unfinished == 3


def test_it_is_not_overdue_and_its_age_is_read_apart(
    due: datetime, store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("mail.send", [4], 3600, id="younger")
    park(client, "younger", LANE, due_since=1)
    health = store.run(inspection.read_health(10))
    assert (health.overdue, health.waited, health.waiting) == (0, 0, 2)
    assert 60 <= health.oldest_waiting < 120


@pytest.mark.usefixtures("due")
def test_the_command_shows_it(url: str) -> None:
    assert "state    waiting" in invoke("show", "w", url=url)
    listed = invoke_json("list", "--state", "waiting", url=url)
    assert [task["id"] for task in listed["tasks"]] == ["w"]
    assert "waiting    1" in invoke("count", url=url)
    text = invoke("stats", url=url)
    assert "pending 1   waiting 1   paused 1" in text
    assert "waiting 1, the first for 1m" in text
    shown = invoke_json("stats", url=url)
    assert shown["states"]["waiting"] == 1
    assert shown["oldest_waiting"] >= 60


@pytest.mark.usefixtures("due")
def test_metrics_count_it(settings: Settings) -> None:
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in OfTheServer(settings, []).collect()
        for sample in metric.samples
    }
    assert found["expirebridge_tasks", "waiting"] == 1
    assert found["expirebridge_waiting_tasks",] == 1
    assert found["expirebridge_oldest_waiting_seconds",] >= 60
    assert found["expirebridge_overdue_tasks",] == 0


def test_it_is_exported_as_pending_with_its_due_time(
    url: str, bridge: Bridge, client: redis.Redis, tmp_path: Path, due: datetime
) -> None:
    file = tmp_path / "tasks.ndjson"
    invoke("export", str(file), url=url)
    client.flushdb()
    invoke("import", str(file), url=url)
    task = bridge.get("w")
    assert task is not None
    assert (task.state, task.due) == (State.PENDING, due)
    assert bridge.count().overdue == 1
    assert client.hget("expirebridge:task:w", "queue") is None


def test_compat_compares_it(store: Store, due: datetime) -> None:
    assert store.run(scope_of()).counts[State.WAITING] == 1
    assert store.run(scope_of(due_within=60)).counts == {
        State.PENDING: 0, State.WAITING: 1, State.RUNNING: 0
    }  # fmt: skip
    [call] = store.run(inspection.calls_page(State.WAITING, BEGINNING)).calls
    assert (call.id, call.due) == ("w", round(due.timestamp() * 1000))


def test_what_was_cancelled_keeps_its_due_time(bridge: Bridge, due: datetime) -> None:
    bridge.cancel("w")
    task = bridge.get("w")
    assert task is not None
    assert (task.state, task.due) == (State.CANCELLED, due)
    assert bridge.count().waiting == 0


# Where it waits


def place(bridge: Bridge, id: str = "w") -> str:
    task = bridge.get(id)
    assert task is not None
    return str(task.queued)


@pytest.mark.usefixtures("due")
def test_a_task_says_where_it_stands_in_line(bridge: Bridge, client: redis.Redis) -> None:
    for n in (1, 2):
        bridge.make_task("mail.send", [n], 3600, id=f"before-{n}")
        park(client, f"before-{n}", LANE, due_since=100)
    hold_slots(client, LANE, "x", "y")
    assert place(bridge) == "waits for a slot of sms=17: its limit is not declared, 3rd in line"
    declare(client, {"sms": {"most": 2, "wait": 300_000}})
    assert place(bridge) == "waits for a slot of sms=17: 2 of 2 taken, 3rd in line"
    assert place(bridge, "before-2") == "waits for a slot of sms=17: 2 of 2 taken, 2nd in line"
    declare(client, {"sms": {"starts": 1, "every": 600_000, "burst": 20}})
    waits = "waits for a start of sms=17: one start every 600ms, 20 at once, 3rd in line"
    assert place(bridge) == waits
    task = bridge.get("w")
    assert task is not None
    assert task.queued is not None
    assert (task.queued.lane, task.queued.position, task.queued.held) == (LANE, 3, 2)
    assert [task.queued for task in bridge.list(state="waiting").tasks] == [None] * 3
    pending = bridge.get("p")
    assert pending is not None
    assert pending.queued is None


def test_a_task_on_hold_says_so(bridge: Bridge, client: redis.Redis) -> None:
    bridge.make_task("mail.send", [1], 3600, id="w")
    park(client, "w", "hold tag customer-9")
    client.hset("expirebridge:holds", "tag customer-9", "for now")
    assert place(bridge) == "on hold: tag customer-9, 1st in line"
    said = b'{"until": 1798000000000, "by": "ann", "reason": "he moves"}'
    client.hset("expirebridge:holds", "tag customer-9", said)
    until = "until 2026-12-23 04:26:40 UTC"
    assert place(bridge) == f"on hold: tag customer-9, {until}, by ann: he moves, 1st in line"


@pytest.mark.parametrize(
    "spec",
    [
        b"", b"[]", b"7", b'{"most": true}', b'{"most": "2"}', b'{"starts": 1, "every": null}',
        b"\xff",
        b'{"most": 1e400}', b'{"most": 1' + b"0" * 30 + b"}",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("due")
def test_what_another_client_wrote_there_stops_no_reader(
    bridge: Bridge, client: redis.Redis, spec: bytes
) -> None:
    client.hset("expirebridge:limits", "l sms", spec)
    assert place(bridge) == "waits for a slot of sms=17: its limit is not declared, 1st in line"
    for name in (f"queue:{LANE}", f"lane:{LANE}", "limits"):
        client.set(f"expirebridge:{name}", "x")
    assert place(bridge) == "waits for a slot of sms=17: its limit is not declared"


@pytest.mark.usefixtures("due")
def test_the_command_says_where_it_waits(url: str, client: redis.Redis) -> None:
    declare(client, {"sms": {"most": 2}})
    hold_slots(client, LANE, "x", "y")
    text = invoke("show", "w", url=url)
    assert "queued   waits for a slot of sms=17: 2 of 2 taken, 1st in line" in text
    shown = invoke_json("show", "w", url=url)["queued"]
    assert (shown["lane"], shown["position"], shown["held"]) == (LANE, 1, 2)
    assert shown["limit"]["most"] == 2


@pytest.mark.parametrize("number", [1, 2, 3, 4, 11, 12, 13, 21, 101, 111, 1002])
def test_places_in_line_are_said_as_people_say_them(number: int) -> None:
    stands = QueuePlace(lane="x", position=number, held=0, limit=None)
    endings = {1: "st", 2: "nd", 3: "rd", 21: "st", 101: "st", 1002: "nd"}
    assert str(stands).endswith(f" {number:,}{endings.get(number, 'th')} in line")
