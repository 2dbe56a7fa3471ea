"""Limits and their lanes, as those see them who look: bridge, command, metrics, doctor."""

import pytest
import redis

from expirebridge import AsyncBridge, Bridge, InvalidTask
from expirebridge.checks import Level
from expirebridge.limits.calls import declare_limits
from expirebridge.limits.checks import check_limits
from expirebridge.observe.server_metrics import OfTheServer
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, inspection
from expirebridge.task.task import from_ms
from tests.kit.invoked import invoke, invoke_json
from tests.kit.waiting import declare, hold_slots, park

pytestmark = pytest.mark.servers("oldest")


@pytest.fixture
def due(bridge: Bridge, client: redis.Redis) -> int:
    """The ms since which the first task waits: two limits, two lanes, and a hold."""
    declare(
        client, {"sms": {"most": 2, "wait": 300_000}, "mail.send": {"starts": 1, "every": 600_000}}
    )
    client.hset("expirebridge:limits", "f sms.send", '[["sms", 0, "account", null]]')
    client.hset("expirebridge:limits", "f sms.ask", '[["sms", 1, "to", "17"], ["x"]]')
    client.hset("expirebridge:limits", "f mail.send", '[["mail.send"]]')
    for n in range(4):
        bridge.make_task("mail.send", [n], 3600, id=f"w{n}")
    hold_slots(client, "sms=17", "x", "y")
    first = park(client, "w0", "sms=17", due_since=100)
    park(client, "w1", "sms=17")
    park(client, "w2", "mail.send")
    park(client, "w3", "hold tag c9")
    hold_slots(client, "mail.send", "granted")
    return first


def test_limits_and_the_fullest_lanes_are_read(bridge: Bridge, due: int) -> None:
    found = bridge.limits()
    mail, sms = found.limits
    assert (mail.name, mail.most, mail.interval, mail.burst) == ("mail.send", None, 0.6, 1)
    assert (sms.name, sms.most, sms.wait, sms.interval) == ("sms", 2, 300, None)
    assert (mail.functions, sms.functions) == (("mail.send",), ("sms.ask", "sms.send"))
    assert [str(mail), str(sms)] == ["one start every 600ms", "2 at once, waits 5m at most"]
    # Tasks on hold are in no lane of a limit.
    lanes = [(lane.name, lane.held, lane.waiting, lane.limit) for lane in found.lanes]
    assert lanes == [("sms=17", 2, 2, sms), ("mail.send", 1, 1, mail)]
    assert found.lanes[0].oldest_due == from_ms(due)
    assert [lane.name for lane in bridge.limits(lanes=1).lanes] == ["sms=17"]
    assert bridge.limits(lanes=1).limits == found.limits


async def test_where_nothing_is_limited_there_is_nothing(
    async_bridge: AsyncBridge, store: Store, url: str
) -> None:
    found = await async_bridge.limits()
    assert (found.limits, found.lanes, found.left_out) == ([], [], ())
    assert invoke("limits", url=url) == "no handler has a limit\n"
    assert store.run(check_limits(10)) is None


@pytest.mark.parametrize("lanes", [0, 1001, True, "7", 2.0])
def test_a_number_of_lanes_that_cannot_be_is_refused(bridge: Bridge, lanes: int) -> None:
    with pytest.raises(InvalidTask, match="lanes="):
        bridge.limits(lanes=lanes)


def test_a_limit_says_who_gets_its_slots(bridge: Bridge, store: Store) -> None:
    fields = [("f a.b", b'[["one"],["two"]]')]
    fields += [("l one", b'{"most":1,"ordered":true}'), ("l two", b'{"most":5,"fair":true}')]
    store.run(declare_limits("aa", fields))
    one, two = bridge.limits().limits
    assert (one.ordered, one.fair, two.ordered, two.fair) == (True, False, False, True)
    assert [str(one), str(two)] == ["1 at once, in order", "5 at once, by turns"]


@pytest.mark.usefixtures("due")
def test_what_other_clients_wrote_there_stops_no_reader(
    bridge: Bridge, client: redis.Redis, store: Store
) -> None:
    for field, value in (
        (b"l \xff", b'{"most": 1}'), (b"l bad", b"{"), (b"f x", b"{"), (b"f y", b"[7, [], [7]]"),
        (b"q", b""),
    ):  # fmt: skip
        client.hset("expirebridge:limits", field, value)
    assert [one.name for one in bridge.limits().limits] == ["mail.send", "sms", "\\xff"]
    client.zadd("expirebridge:lanes", {b"\xff=1": 9})
    ours = ("limits", "holds", "grants", "held", "weights", "numbers")
    for name in (*ours, "queue:sms=17", "lane:sms=17"):
        client.delete(f"expirebridge:{name}")
        client.set(f"expirebridge:{name}", "x")
    found = bridge.limits()
    assert found.limits == []
    assert [(lane.name, lane.held, lane.waiting) for lane in found.lanes][:2] == [
        ("\\xff=1", 0, 0), ("sms=17", 0, 0)
    ]  # fmt: skip
    assert set(store.run(inspection.find_overwritten())) == {
        f"expirebridge:{name}" for name in ours
    }
    client.delete("expirebridge:lanes")
    client.set("expirebridge:lanes", "x")
    assert bridge.limits().lanes == []


@pytest.mark.usefixtures("due")
def test_the_command_shows_them(url: str) -> None:
    text = invoke("limits", url=url)
    limits, _, lanes = text.partition("\n\n")
    assert [line.split()[0] for line in limits.splitlines()] == ["limit", "mail.send", "sms"]
    assert "2 at once, waits 5m at most  sms.ask sms.send" in limits
    assert lanes.splitlines()[1].split()[:4] == ["sms=17", "2", "2", "2"]
    shown = invoke_json("limits", "--lanes", "1", url=url)
    assert [lane["name"] for lane in shown["lanes"]] == ["sms=17"]
    assert shown["lanes"][0]["limit"]["most"] == 2
    assert len(shown["limits"]) == 2


def numbers_of(settings: Settings) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in OfTheServer(settings, []).collect()
        for sample in metric.samples
        if sample.name.startswith("expirebridge_lane_")
    }


def test_metrics_have_the_ten_fullest_lanes(
    settings: Settings, bridge: Bridge, client: redis.Redis, due: int
) -> None:
    assert due
    numbers = numbers_of(settings)
    assert numbers["expirebridge_lane_held_slots", "sms", "sms=17"] == 2
    assert numbers["expirebridge_lane_waiting_tasks", "sms", "sms=17"] == 2
    assert len(numbers) == 4
    for n in range(12):
        hold_slots(client, f"sms={n}", *(f"{n}-{m}" for m in range(10)))
    lanes = {lane for _, _, lane in numbers_of(settings)}
    assert len(lanes) == 10
    assert "mail.send" not in lanes
    client.flushdb()
    assert numbers_of(settings) == {}


@pytest.mark.usefixtures("due")
def test_the_doctor_names_lanes_that_stand_still(
    store: Store, bridge: Bridge, client: redis.Redis
) -> None:
    finding = store.run(check_limits(10))
    assert finding is not None
    assert (finding.level, finding.message) == (Level.OK, "3 tasks wait for a slot")
    for id, lane in (("a", "sms=18"), ("b", "hold tag c8")):
        bridge.make_task("mail.send", [], 3600, id=id)
        park(client, id, lane, due_since=700)
    hold_slots(client, "sms=18", "z")
    finding = store.run(check_limits(10))
    assert finding is not None
    assert finding.level is Level.WARNING
    assert finding.message == (
        "tasks that were due 10m ago wait for a slot of sms=18 (1 of 2 taken, 1 waits)"
    )


def test_the_doctor_names_fair_limits_that_make_nobody_wait(
    store: Store, client: redis.Redis
) -> None:
    declare(client, {"all": {"most": 40, "fair": True}, "few": {"most": 39, "fair": True}})
    declare(client, {"plain": {"most": 100}, "gone": {"most": 100, "fair": True}})
    client.hset("expirebridge:limits", "f a.b", '[["all"], ["few"]]')
    client.hset("expirebridge:limits", "f a.c", '[["plain"]]')
    for listener in ("one", "two"):
        store.run(claiming.heartbeat(listener, 10, [], code="aa =20"))
    finding = store.run(check_limits(10))
    assert finding is not None
    assert finding.level is Level.WARNING
    assert finding.message == (
        "fair limits without effect: all (40 at once, by turns); the listeners run 40 at once in "
        "all, so none waits for a slot"
    )
    # Of this one nobody knows how many it runs.
    store.run(claiming.heartbeat("three", 10, [], code="aa"))
    finding = store.run(check_limits(10))
    assert finding is not None
    assert finding.level is Level.OK
