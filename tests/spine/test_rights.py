"""The rights of each role: they suffice, and none is too many."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from expirebridge import AsyncBridge, Bridge, Change, Outcome, ServerUnsuitable, State, Then
from expirebridge.bridge import Operations
from expirebridge.checks import Level, check_health, check_server
from expirebridge.checks.server import check_rights
from expirebridge.cli.stats import store_of
from expirebridge.connection import clients, redis_client
from expirebridge.errors import InvalidSetting, NotPermitted, ServerError
from expirebridge.fleet.comparing import compare, scope_of
from expirebridge.foreign import function_library
from expirebridge.hooks import End, Hooks
from expirebridge.lateness import calls as forecasting
from expirebridge.limits.calls import declare_limits
from expirebridge.listener.partition.key_events import KeyEventHandler
from expirebridge.moving import calls as migration
from expirebridge.moving.migrator import Migrator
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole, grants, line
from expirebridge.store.client import Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import actions, claiming, fleet, inspection, producing, reconciling
from expirebridge.task.calls import partitions as partitions_commands
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.reconciling import Adoption, EventKind, KeyEvent
from expirebridge.task.keys import parse_key
from tests.kit.invoked import app
from tests.kit.logins import NAME, login
from tests.kit.nodes import Process
from tests.kit.servers import AnyServer
from tests.kit.steps import age, claim, new, server_ms, settle
from tests.kit.waiting import declare, hold_slots, park
from tests.kit.witness import Witness, listening, logged, registry_of

pytestmark = pytest.mark.servers("ends")

GRANTED = {
    role: [grant.rule for grant in grants(role, prefix="expirebridge", database=1)]
    for role in LoginRole
}
RULES = [
    pytest.param(role, rule, id=f"{role} {rule}", marks=() if number % 8 == 0 else pytest.mark.rest)
    for role, rules in GRANTED.items()
    for number, rule in enumerate(rules)
]
"""Every eighth is enough to see that a right is missed."""


def rules_of(role: LoginRole, client: redis.Redis) -> list[str]:
    """The role's rules, as this server takes them."""
    old = client.info("server")["redis_version"].startswith("6.")
    return [grant.rule for grant in grants(role, prefix="expirebridge", database=1, redis_6=old)]


@contextmanager
def store_at(url: str) -> Iterator[Store]:
    with closing(Store(clients.producer_client(url), prefix="expirebridge")) as store:
        yield store


# What each role does. What is refused inside of a script may be taken for nothing there, so all
# that is done is looked at.


def produce(url: str) -> None:
    with (
        Bridge(url) as bridge,
        redis.Redis.from_url(url, protocol=2, **redis_client.NAMELESS) as plain,
    ):
        bridge.make_task("mail.send", [1], 60, id="a", tags=["x"])
        bridge.make_task("mail.send", [1], 90, id="a", if_exists="extend")
        task = bridge.make_task("mail.send", [2], 60, id="a", if_exists="replace", tags=["y"])
        assert bridge.list(tag="x").tasks == []
        assert [found.id for found in bridge.list(tag="y").tasks] == ["a"]
        hold_timer(plain, task.key)
        steer(url)
        assert bridge.watch("w", "mail.send", ttl=60).outcome is Outcome.CREATED
        assert bridge.beat("w") is Change.MOVED
        made = bridge.make_tasks([{"func": "mail.send", "delay": 60}, {"func": "a.b", "delay": 0}])
        assert len(made) == 2
        group_some(bridge)
    read_groups(url)


def group_some(bridge: Bridge) -> None:
    """Make a group that grows; cancel it, and look at it."""
    bridge.make_group("g", [{"func": "a.b", "delay": 60}], then=Then("a.b"), close=False)
    bridge.make_tasks([{"func": "a.b", "delay": 60}], group="g")
    bridge.cancel_group("g")
    assert [(group.total, group.left) for group in bridge.list_groups().groups] == [(2, 0)]


def await_signals(url: str, client: redis.Redis) -> None:
    """Make tasks that wait for a signal, and send it: to one of them while it is paused."""
    with Bridge(url) as bridge:
        for id in ("s0", "s1"):
            bridge.make_task("mail.send", [1], 60, id=id, on_signal="mail.answer")
        assert client.hkeys("expirebridge:signals") == [b"since"]
        bridge.pause("s1")
        signal_each(url, client, "s0", "s1")


def signal_each(url: str, client: redis.Redis, *ids: str) -> None:
    """Signal the tasks that wait for it, and cancel them."""
    with Bridge(url) as bridge:
        assert {bridge.signal(id, {"ref": 7}) for id in ids} == {Change.SIGNALLED}
        assert client.hget("expirebridge:signals", "signalled") == b"%d" % len(ids)
        assert {bridge.cancel(id) for id in ids} == {Change.CANCELLED}


def decide(url: str, store: Store, client: redis.Redis) -> None:
    """Claim a task whose deadline has passed; its handler makes another one, which is signalled."""
    make_awaiting(client, "d0", 0)
    assert [task.func for task in claim(store).tasks] == ["mail.send"]
    assert client.hget("expirebridge:signals", "passed") == b"1"
    client.delete("expirebridge:signals", "expirebridge:meta")
    await_signals(url, client)
    assert settle(store, Settlement("d0", "t", "succeeded")) == [Settled.DONE]


def make_awaiting(client: redis.Redis, id: str, delay: float) -> None:
    """Make a task that waits for a signal, with all rights."""
    port = client.get_connection_kwargs()["port"]
    with Bridge(f"redis://127.0.0.1:{port}/1") as admin:
        admin.make_task("mail.send", [1], delay, id=id, on_signal="mail.answer")


def steer_group(url: str) -> None:
    """Find the group `g`, which is open; close and cancel it."""
    with Bridge(url) as bridge:
        assert [group.state for group in bridge.list_groups().groups] == ["open"]
        assert bridge.close_group("g").state == "closed"
        assert [task.id for task in bridge.list(group="g").tasks] == ["g@g0"]
        reason = bridge.why("g@then")
        assert reason is not None
        assert reason.text == "waits for group g: 1 of 1 member left"
        assert bridge.cancel_group("g").cancelled == 1
        found = bridge.get_group("g")
        assert found is not None
        assert found.state == "cancelled"


def read_groups(url: str) -> None:
    """Read groups whole, as an export does."""
    with store_at(url) as store:
        [group] = store.run(migration.stored_groups("0")).groups
    assert group.members


def end_group(store: Store, bridge: Bridge, client: redis.Redis) -> None:
    """A group ends, and is forgotten."""
    bridge.make_group("e", [{"func": "a.b", "delay": 0}], then=Then("a.b", delay=60))
    assert [task.id for task in claim(store, "te").tasks] == ["e@g0"]
    assert settle(store, Settlement("e@g0", "te", "succeeded")) == [Settled.DONE]
    assert client.zscore("expirebridge:pending", "e@then") is not None
    age(client, "groups", "e", 1)
    store.run(reconciling.sweep(Settings()))
    assert client.exists("expirebridge:group:e") == 0


def look_at_lanes(url: str, client: redis.Redis) -> None:
    """Ask where a task stands in line."""
    with Bridge(f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}/1") as bridge:
        bridge.make_task("mail.send", [1], 60, id="waits")
    declare(client, {"sms": {"most": 1}})
    hold_slots(client, "sms=17", "x")
    park(client, "waits", "sms=17")
    with Bridge(url) as bridge:
        found = bridge.get("waits")
        assert found is not None
        assert str(found.queued) == "waits for a slot of sms=17: 1 of 1 taken, 1st in line"
        reason = bridge.why("waits")
        assert reason is not None
        assert reason.text == f"{found.queued}; taken by x (gone)"
    look_at_limits(url)


def look_at_limits(url: str) -> None:
    """Read the one limit, and its one lane, as metrics do, too."""
    with Bridge(url) as bridge:
        [lane] = [one for one in bridge.limits().lanes if one.name.startswith("sms")]
    assert (lane.held, lane.waiting) == (1, 1)
    assert lane.limit is not None


def look_for_reasons(url: str, client: redis.Redis) -> None:
    """Ask why tasks have not run: one that is due, and one that was granted a start."""
    with Bridge(f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}/1") as admin:
        admin.make_tasks([{"func": "mail.send", "delay": at, "id": f"due{at}"} for at in (0, 60)])
    age(client, "pending", "due0", 1000)
    client.zadd("expirebridge:listeners", {"somebody": server_ms(client)})
    client.hset("expirebridge:task:due60", "slots", "rate=18")
    client.zadd("expirebridge:grants", {"due60": server_ms(client)})
    client.hset("expirebridge:limits", "l rate", '{"starts":1,"every":1000}')
    with Bridge(url) as bridge:
        reasons = [bridge.why(id) for id in ("due0", "due60", "nobody")]
    assert [reason and reason.code for reason in reasons] == ["due", "rate", None]


def hold_timer(plain: redis.Redis, key: bytes) -> None:
    """By each plain command that docs/reference/wire-protocol.md names."""
    now = server_ms(plain)
    assert plain.persist(key)
    assert plain.expire(key, 120)
    assert plain.expireat(key, now // 1000 + 130)
    assert plain.pexpire(key, 140_000)
    assert plain.pexpireat(key, now + 150_000)
    assert plain.ttl(key) > 100
    assert plain.pttl(key) > 100_000
    with plain.pipeline(transaction=True) as both:
        both.set(key, "")
        both.expire(key, 160)
        assert both.execute() == [True, True]


def produce_by_functions(url: str, admin: redis.Redis) -> None:
    """The same as other languages do it: by functions, which an administrator has loaded."""
    old = admin.info("server")["redis_version"].startswith("6.")
    if not old:
        admin.function_load(function_library.library_text(), replace=True)
    with redis.Redis.from_url(url, protocol=2, **redis_client.NAMELESS) as plain:

        def call(name: str, *words: str) -> Any:
            if old:
                return plain.eval(function_library.script(name).text, 1, "expirebridge", *words)
            return plain.fcall(f"expirebridge_{name}", 1, "expirebridge", *words)

        assert call("make", "mail.send", "[1]", "60000", "id", "z", "tags", "x y")[0] == b"created"
        if not old:
            assert plain.fcall_ro("expirebridge_get", 1, "expirebridge", "z")
        for name in ("pause", "resume", "run_now", "get", "cancel"):
            assert call(name, "z")
        assert call("make", "mail.send", "[1]", "60000")[0] == b"created"


def steer(url: str) -> None:
    """Find and change the task `a`, which waits and has the tag `y`."""
    with Bridge(url) as bridge:
        assert bridge.count().pending == 1
        assert bridge.pause("a") is Change.PAUSED
        assert bridge.resume("a") is Change.RESUMED
        assert bridge.beat("a") is Change.NOT_WATCHED
        assert bridge.reschedule("a", "1h") is Change.MOVED
        assert bridge.put_off_tag("y", "1h")[Change.MOVED] == 1
        assert bridge.edit("a", [3]) is Change.EDITED_UNCHECKED
        assert bridge.signal("a") is Change.NOT_AWAITED
        found = bridge.get("a")
        assert found is not None
        assert found.state is State.PENDING
        assert bridge.cancel("a") is Change.CANCELLED
        assert [found.id for found in bridge.list(state="cancelled").tasks] == ["a"]
        assert bridge.run_now("a") is Change.DUE_NOW
        assert [found.id for found in bridge.list().tasks] == ["a"]
        compare_one(url)
        assert bridge.cancel_tag("y")[Change.CANCELLED] == 1


def steer_series(url: str, client: redis.Redis) -> None:
    """Find and change the series `s`, whose tasks have a tag."""
    with Bridge(url) as bridge:
        assert [series.id for series in bridge.list_series().series] == ["s"]
        assert bridge.run_series("s") is not None
        assert client.scard("expirebridge:tag:z") == 2
        assert bridge.pause_series("s") is Change.PAUSED
        assert client.scard("expirebridge:tag:z") == 1
        assert bridge.resume_series("s") is Change.RESUMED
        assert bridge.get_series("s") is not None


def steer_waiting(url: str, client: redis.Redis) -> None:
    """End a hold, and cancel a task before others that wait for the same slot."""
    admin = f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}/1"
    with Bridge(url) as bridge, store_at(admin) as listener, Bridge(admin) as producer:
        bridge.hold(func="h.f")
        # First also by its id: all may be due in one millisecond.
        producer.make_task("h.f", [], 0, id="first")
        assert claim(listener).parked == 1
        assert [hold.waiting for hold in bridge.holds()] == [1]
        assert bridge.release(func="h.f")
        assert client.zscore("expirebridge:pending", "first") is not None
        assert bridge.run_now("first") is Change.DUE_NOW
        listener.run(declare_limits("aa", [("f h.f", b'[["m"]]'), ("l m", b'{"most":1}')]))
        producer.make_tasks([{"func": "h.f", "delay": 0, "id": f"h{n}"} for n in range(3)])
        assert claim(listener, "t9").parked == 3
        assert bridge.cancel("h0") is Change.CANCELLED
        assert client.zrange("expirebridge:queue:m", 0, -1) == [b"h1", b"h2"]
        for id in ("h1", "h2"):
            assert bridge.cancel(id) is Change.CANCELLED
        assert client.zcard("expirebridge:waiting") == 0
        settle(listener, Settlement("first", "t9", "succeeded"))


def compare_one(url: str) -> None:
    """Compare the one task that waits with a registry that does not know its function."""
    with store_at(url) as store:
        scope = store.run(scope_of(due_within=7200))
        assert store.run(compare(registry_of(), scope, progress=lambda _: None)).failing == 1
        [call] = store.run(inspection.calls_page(State.PENDING, "0 a")).calls
        assert call.id == "a"


def probe(url: str, client: redis.Redis) -> None:
    client.zadd("expirebridge:listeners", {"somebody": server_ms(client)})
    with store_at(url) as store:
        findings = store.run(check_health(store.database, Settings(url=url)))
        assert [finding.check for finding in findings] == ["listeners", "overdue", "subscriptions"]


def watch(url: str) -> None:
    """What only a dashboard asks of the store."""
    with store_at(url) as store:
        assert store.run(inspection.count_before(State.PENDING, [2**52])).before
        assert len(store.run(inspection.read_tally(spans=2, minutes=1))) == 2
        assert [beat.name for beat in store.run(inspection.list_listeners(10))] == ["somebody"]
        assert [each.name for each in store.run(fleet.read_fleet(10)).listeners] == ["somebody"]
        store.run(actions.note_action(who="ann", action="cancel", target="a", result="1 cancelled"))
        assert [action.who for action in store.run(actions.read_actions(10))] == ["ann"]
        store.run(forecasting.note_durations({"mail.send": forecasting.Took(2, 3)}))
        assert store.run(forecasting.read_durations()) == {"mail.send": forecasting.Took(2, 3)}


def listen(url: str, client: redis.Redis) -> None:
    """All that a listener asks of the store."""
    with store_at(url) as store, Bridge(url) as bridge:
        store.run(check_server(store.database))
        assert store.run(claiming.heartbeat("me", 10, [], code="aa", functions=1)).undeclared
        store.run(fleet.declare("aa", {"mail.send": "(to)"}))
        # A handler that makes tasks asks whether their function is known.
        assert store.run(fleet.read_fleet(10)).codes == {"aa": {"mail.send": "(to)"}}
        run_one(store, bridge)
        assert tallied(client)
        adopt_one(store, client)
        set_one_aside(store, client)
        reconcile(store, client)
        end_group(store, bridge, client)
        decide(url, store, client)
        limit_and_hold(store, client)
        findings = store.run(check_health(store.database, Settings(url=url)))
        assert findings[0].level is Level.OK
        store.run(claiming.leave("me"))
        assert client.zcard("expirebridge:listeners") == 0


def run_one(store: Store, bridge: Bridge) -> None:
    """A task is tried twice; its handler makes its successor, in place of itself."""
    bridge.make_task("mail.send", [1], 0, id="a", tags=["x"])
    assert [task.id for task in claim(store, "t0").tasks] == ["a"]
    assert settle(store, Settlement("a", "t0", "retry", 0.001)) == [Settled.DONE]
    while not claim(store).tasks:
        pass
    bridge.make_task("mail.send", [2], 0, id="a", tags=["y"], if_exists="replace")
    assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.DONE]
    assert [task.shown["tags"] for task in claim(store, "t2").tasks] == [("y",)]
    assert settle(store, Settlement("a", "t2", "succeeded")) == [Settled.DONE]


def tallied(client: redis.Redis) -> bool:
    """Whether what was settled is counted, for a day."""
    names = client.keys("expirebridge:minute:*")
    return bool(names) and all(client.ttl(name) > 80_000 for name in names)


def adopt_one(store: Store, client: redis.Redis) -> None:
    name = b"f:?mail.send?[1]"
    client.set(name, "", ex=60)
    assert store.run(reconciling.scan("0", 1000)).found == [name]
    assert store.run(reconciling.find_unexplained([name], EventKind.LIVE)) == {name}
    key = parse_key(name)
    assert key is not None
    hint = KeyEvent.of(key, name, EventKind.LIVE)
    assert store.run(reconciling.adopt([hint], Settings())) == [Adoption.ADOPTED]
    assert store.run(reconciling.find_unexplained([name], EventKind.LIVE)) == set()
    client.delete(name)
    store.run(reconciling.adopt([KeyEvent.of(key, name, EventKind.DELETED)], Settings()))
    assert client.zcard("expirebridge:cancelled") == 1


def set_one_aside(store: Store, client: redis.Redis) -> None:
    """Another client put something else in the place of a record."""
    client.set("expirebridge:task:bad", "x")
    client.zadd("expirebridge:pending", {"bad": 0})
    assert claim(store).broken == ["bad"]
    assert client.get("expirebridge:broken:bad") == b"x"


def reconcile(store: Store, client: redis.Redis) -> None:
    age(client, "succeeded", "a", 1)
    client.zadd("expirebridge:listeners", {"gone": 1})
    assert store.run(reconciling.sweep(Settings())).forgotten == 1
    assert client.exists("expirebridge:tag:y") == 0
    assert client.zrange("expirebridge:listeners", 0, -1) == [b"me"]


def limit_and_hold(store: Store, client: redis.Redis) -> None:
    """A task waits for the slot of another, and one for the end of a hold."""
    store.run(declare_limits("aa", [("f h.f", b'[["m"]]'), ("l m", b'{"most":1}')]))
    client.hset("expirebridge:holds", "tag held", "")
    store.run(producing.make([new(id, -1, call=b"h.f?[]") for id in ("h0", "h1")]))
    store.run(producing.make([new("h2", -1, call=b"h.f?[]", fields={"tags": "held"})]))
    claimed = store.run(claiming.claim("t9", Settings(), places=9, idle=True, limits="aa"))
    assert ([task.id for task in claimed.tasks], claimed.parked) == (["h0"], 2)
    assert settle(store, Settlement("h0", "t9", "released")) == [Settled.DONE]
    assert client.zscore("expirebridge:grants", "h0") is not None
    client.sadd("expirebridge:lane:m", "nobody")
    client.hdel("expirebridge:holds", "tag held")
    assert store.run(reconciling.sweep(Settings())).mended == 1
    assert client.zscore("expirebridge:pending", "h2") is not None
    assert claim(store, "t9").parked == 1
    settle(store, Settlement("h0", "t9", "succeeded"))
    assert client.smembers("expirebridge:lane:m") == {b"h1"}


def carry(url: str, client: redis.Redis) -> None:
    """Move all that a database can hold to another one, and back: the login is on either side."""
    server = f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}"
    fill(f"{server}/1", client)
    with Bridge(f"{server}/1") as here, Bridge(f"{server}/3") as there:
        for source, target, moved in ((url, f"{server}/3", there), (f"{server}/3", url, here)):
            before, after = Settings(url=source), Settings(url=target)
            with closing(store_of(before)) as old, closing(store_of(after)) as new:
                mover = Migrator(old, new, before, after)
                mover.begin()
                while mover.run_pass():
                    pass
                assert holds_nothing(old)
                if source == url:
                    assert client.keys("expirebridge:tag:*") == []
                    assert client.keys("expirebridge:lane*") == []
                assert mover.run()
            assert (mover.moved.tasks, mover.moved.series) == (11, 1)
            counts = moved.count()
            assert (counts.pending, counts.paused) == (7, 1)
            with redis.Redis.from_url(after.url.replace("limited:secret@", "")) as plain:
                assert plain.hkeys("expirebridge:signals") == [b"since"]
            assert (counts.succeeded, counts.failed) == (1, 2)
            assert [task.id for task in moved.list(tag="x").tasks] == ["a"]
            assert moved.list_series().series
            assert [hold.name for hold in moved.holds()] == ["func other.call"]
    assert client.get("expirebridge:broken:bad") == b"x"
    assert client.zcard("expirebridge:listeners") == 0


def fill(url: str, client: redis.Redis) -> None:
    """Make what the mover, who meets no listener, has to carry, or to clear away."""
    ordered = {"most": 1, "ordered": True, "blocks": True}
    declare(client, {"sms": {"most": 1, "fair": True}, "line": ordered})
    client.hset("expirebridge:limits", "f step.run", '[["line"]]')
    with store_at(url) as store, Bridge(url) as bridge:
        bridge.make_task("mail.send", [1], 60, id="a", tags=["x"])
        bridge.make_task("mail.send", [1], 60, id="paused")
        bridge.pause("paused")
        bridge.make_task("mail.send", [1], 60, id="awaits", on_signal="mail.answer")
        bridge.make_task("mail.send", [1], 60, id="w")
        park(client, "w", "sms=17")
        bridge.make_task("mail.send", [1], 0, id="done")
        [task] = claim(store, "t0").tasks
        assert settle(store, Settlement(task.id, "t0", "succeeded")) == [Settled.DONE]
        bridge.make_tasks([{"func": "mail.send", "delay": 60}])
        bridge.make_tasks([{"func": "step.run", "id": f"s{n}", "delay": 0} for n in range(3)])
        [step] = claim(store, "t1").tasks
        assert settle(store, Settlement(step.id, "t1", "failed")) == [Settled.DONE]
        bridge.schedule("nightly", "mail.send", every="1h")
        bridge.hold(func="other.call")
        bridge.weight("sms", "acme", 3)
    client.set("expirebridge:task:bad", "x")
    client.zadd("expirebridge:paused", {"bad": 0, task.id: 0})
    client.zadd("expirebridge:listeners", {"gone": 1})


def holds_nothing(store: Partitions) -> bool:
    counts = store.run(Operations(Settings(), Hooks()).count())
    assert counts.moving is not None
    return not (counts.unfinished + counts.succeeded + counts.failed + counts.moving.series)


class Remembering(KeyEventHandler):
    """Puts what it hears into a queue."""

    def __init__(self, heard: asyncio.Queue[object]) -> None:
        self._heard = heard

    def hear_doorbell(self, due: int) -> None:
        self._heard.put_nowait(due)

    def hear_event(self, event: str, name: bytes, *, fresh: bool) -> None:  # noqa: ARG002
        self._heard.put_nowait(event)

    def hear_after_gap(self, *, events: bool) -> None:
        self._heard.put_nowait(events)


async def hear(url: str, client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Hear key events and announcements, then announcements alone; whatever breaks is logged."""
    heard: asyncio.Queue[object] = asyncio.Queue()
    settings = Settings(url=url)
    node = Process(settings, registry_of()).node(settings.prefix)
    await node.find_consumers()
    [consumer], [server] = node.consumers, node.nodes.values()
    consumer.key_events = Remembering(heard)
    demand, subscriber = consumer.session.event_demand, server.subscriber
    store = consumer.store
    broken = asyncio.create_task(logged("the subscription failed", caplog))

    async def steps() -> None:
        assert [await heard.get() for _ in range(5)] == [False, True, True, True, True]
        while "cmdstat_ping" not in client.info("commandstats"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # only the server knows
        # What it says to the ping comes before what it says to this.
        client.publish(store.database.doorbell_channel, "7")
        client.set("x", "", ex=60)
        assert [await heard.get(), await heard.get()] == [7, "expire"]
        demand.want(consumer, False)
        while client.pubsub_numsub(store.database.events("expired"))[0][1]:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    client.config_resetstat()
    demand.want(consumer, True)
    running = asyncio.create_task(subscriber.run())
    changing = asyncio.create_task(subscriber.run_changes())
    walking = asyncio.create_task(steps())
    try:
        await asyncio.wait([broken, walking], return_when=asyncio.FIRST_COMPLETED)
        assert "the subscription failed" not in caplog.text
        walking.result()
    finally:
        tasks = (broken, running, changing, walking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await store.aclose()


async def work_as(
    role: LoginRole, url: str, client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Do all that the role is for."""
    match role:
        case LoginRole.PRODUCER:
            produce(url)
            await_signals(url, client)
            steer_waiting(url, client)
            produce_by_functions(url, client)
            look_at_lanes(url, client)
            look_for_reasons(url, client)
        case LoginRole.DASHBOARD:
            with Bridge(f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}/1") as bridge:
                bridge.make_task("mail.send", [1], 60, id="a", tags=["y"])
            steer(url)
            make_awaiting(client, "awaits", 60)
            signal_each(url, client, "awaits")
            with Bridge(f"redis://127.0.0.1:{client.get_connection_kwargs()['port']}/1") as bridge:
                members = [{"func": "a.b", "delay": 60}]
                bridge.make_group("g", members, then=Then("a.b"), close=False)
                bridge.schedule("s", "mail.send", every="1h", tags=["z"])
            steer_series(url, client)
            steer_group(url)
            read_groups(url)
            steer_waiting(url, client)
            probe(url, client)
            watch(url)
            look_at_lanes(url, client)
            look_for_reasons(url, client)
        case LoginRole.LISTENER:
            listen(url, client)
            declare(client, {"sms": {"most": 1}})
            hold_slots(client, "sms", "x")
            client.zadd("expirebridge:queue:sms", {"y": 1})
            look_at_limits(url)
            await hear(url, client, caplog)
        case LoginRole.MOVER:
            await asyncio.to_thread(carry, url, client)


@pytest.mark.parametrize("role", LoginRole)
async def test_a_role_s_rights_suffice_and_nothing_is_refused(
    server: AnyServer, client: redis.Redis, caplog: pytest.LogCaptureFixture, role: LoginRole
) -> None:
    client.script_flush()
    client.acl_log_reset()
    with login(server, rules_of(role, client)) as url:
        await work_as(role, url, client, caplog)
        with store_at(url) as store:
            assert store.run(check_rights(store.database, role)).level is Level.OK
    # A listener would like to see settings, and does without: they hold the server's own password.
    # While nothing is written yet, it is asked whether there are several partitions.
    assert {entry["object"] for entry in client.acl_log()} <= {
        "config|get",
        "config",
        "{021}expirebridge:meta",
    }


async def test_a_role_s_rights_suffice_in_several_partitions(
    server: AnyServer, client: redis.Redis
) -> None:
    """Those of one partition do not; the doctor says what is missing."""
    with Bridge(server.url) as bridge:
        bridge.create_partitions(16)
    old = client.info("server")["redis_version"].startswith("6.")
    witness = Witness()
    for partitions in (1, 16):
        rules = [
            grant.rule
            for role in LoginRole
            for grant in grants(
                role, prefix="expirebridge", database=1, partitions=partitions, redis_6=old
            )
        ]
        client.acl_log_reset()
        with login(server, dict.fromkeys(rules)) as url, Bridge(url) as bridge:
            if partitions == 1:
                with pytest.raises((ServerError, redis.RedisError)):
                    bridge.count()
                continue
            steer_in_partitions(bridge)
            async with listening(Settings(url=url), witness, note=lambda: None):
                await asyncio.to_thread(bridge.make_task, "test.note", [], 0, id="b")
                await witness.until_ended(1)
            with closing(Partitions(bridge._store.client, prefix="expirebridge")) as store:
                store.run(partitions_commands.read_partitions())
                assert store.run(check_rights(store.database, LoginRole.LISTENER)).level is Level.OK
    assert {entry["object"] for entry in client.acl_log()} <= {"config|get", "config"}


def steer_in_partitions(bridge: Bridge) -> None:
    made = bridge.make_tasks([{"func": "mail.send", "delay": 60, "tags": ["y"]}] * 32)
    assert bridge.put_off_tag("y", "1h")[Change.MOVED] == len(made)
    assert len(bridge.list(tag="y").tasks) == len(made)
    assert bridge.cancel_tag("y")[Change.CANCELLED] == len(made)


@pytest.mark.parametrize(("role", "rule"), RULES)
async def test_a_role_cannot_do_without_any_of_its_rights(
    server: AnyServer,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    role: LoginRole,
    rule: str,
) -> None:
    rules = rules_of(role, client)
    if rule not in rules:
        pytest.skip("Redis 6.2 does without it")
    # A server that knows the scripts does not need their text.
    client.script_flush()
    others = [other for other in rules if other != rule]
    refused = pytest.raises((ServerError, redis.RedisError, AssertionError))
    with login(server, others) as url, refused:
        await work_as(role, url, client, caplog)


@pytest.mark.parametrize("role", LoginRole)
def test_a_missing_right_is_found_with_the_command_that_grants_it(
    server: AnyServer, client: redis.Redis, role: LoginRole
) -> None:
    rules = rules_of(role, client)
    with store_at(server.url) as store:
        store.run(check_rights(store.database, role))  # the server knows the script, then
    for rule in GRANTED[role]:
        check_missing(server, client, role, rules, rule)


def check_missing(
    server: AnyServer, client: redis.Redis, role: LoginRole, rules: list[str], rule: str
) -> None:
    with login(server, [other for other in rules if other != rule]) as url, store_at(url) as store:
        finding = store.run(check_rights(store.database, role))
        if f"expirebridge acl {role}" in finding.remedy:
            assert finding.level is Level.ERROR
            assert rule in {"+eval", "+evalsha", "+select"}
            return
        if "+pexpiretime" not in rules and rule != "~expirebridge":
            assert finding.level is Level.OK
            return
        assert finding.level is Level.ERROR
        command, what, name, *found = finding.remedy.split()
        assert (command, what, name) == ("ACL", "SETUSER", NAME)
        assert found in ([rule], ["&expirebridge:doorbell:1", "+subscribe"])
        assert rule in found
        client.execute_command(*finding.remedy.split())
        assert store.run(check_rights(store.database, role)).level is Level.OK


@pytest.mark.parametrize(
    ("lost", "named"),
    [
        (["~expirebridge"], "~expirebridge"),
        (["~expirebridge", "~expirebridge:*"], "~expirebridge"),
        (["~expirebridge:*"], r"~expirebridge:* ~*:\?*\?*"),
        ([r"~*:\?*\?*"], r"~expirebridge:* ~*:\?*\?*"),
    ],
)
def test_an_error_names_the_patterns_of_keys_of_which_one_is_missing(
    server: AnyServer, client: redis.Redis, lost: list[str], named: str
) -> None:
    """The server does not say which key it refused."""
    rules = [rule for rule in rules_of(LoginRole.PRODUCER, client) if rule not in lost]
    with login(server, rules) as url, Bridge(url) as bridge:
        with pytest.raises(NotPermitted) as refused:
            bridge.make_task("mail.send", [1], 60)
        assert str(refused.value).endswith(f": ACL SETUSER {NAME} {named}")
        client.execute_command("ACL", "SETUSER", NAME, *lost)
        assert bridge.make_task("mail.send", [1], 60).outcome is Outcome.CREATED


def test_an_error_names_the_patterns_of_keys_of_several_partitions(
    server: AnyServer, client: redis.Redis
) -> None:
    with Bridge(server.url) as bridge:
        bridge.create_partitions(2)
    rules = rules_of(LoginRole.PRODUCER, client)  # those of one partition
    with login(server, rules) as url, Bridge(url) as bridge:
        for rule in ("~{???}expirebridge", "~{???}expirebridge:*"):
            with pytest.raises(NotPermitted) as refused:
                bridge.make_task("mail.send", [1], 60)
            command, granted = str(refused.value).rpartition("ACL SETUSER ")[1:]
            assert rule in granted.split()
            client.execute_command(*command.split(), NAME, rule)


async def test_a_listener_with_its_rights_runs_tasks_and_one_without_does_not_start(
    server: AnyServer, client: redis.Redis
) -> None:
    witness = Witness()

    async def note() -> None: ...

    rules = rules_of(LoginRole.LISTENER, client)
    with login(server, rules) as url:
        async with listening(Settings(url=url), witness, note=note), AsyncBridge(url) as bridge:
            await bridge.make_task("test.note", [], 0.02)
            client.set("f:?test.note?[]", "", px=20)
            assert {one.end for one in await witness.until_ended(2)} == {End.SUCCEEDED}
    if "+pexpiretime" not in rules:
        return
    rules.remove("+hmget")
    refused = pytest.raises(ServerUnsuitable, match=r"lacks rights of a listener: \+hmget;")
    with login(server, rules) as url, refused:
        async with listening(Settings(url=url), note=note):
            pass


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_move_without_its_rights_does_not_begin(
    server: AnyServer, client: redis.Redis, side: str
) -> None:
    """It would carry nothing over, and never end."""
    rules = rules_of(LoginRole.MOVER, client)
    if "+pexpiretime" not in rules:
        pytest.skip("Redis 6.2 does not report what a login may do")
    admin = f"redis://127.0.0.1:{server.port}/3"
    for lost in ("+hgetall", "+hexists"):
        with login(server, [rule for rule in rules if rule != lost]) as url:
            old, new = (url, admin) if side == "old" else (admin, url)
            with Bridge(old.replace("limited:secret@", "")) as bridge:
                bridge.make_task("mail.send", [1], 60)
            refused = CliRunner().invoke(app, ["move", "--url", old, "--to", new]).exception
            assert isinstance(refused, ServerUnsuitable)
            assert f"/1: the user {NAME!r} lacks rights of a mover: {lost}" in str(refused)
            assert f"ACL SETUSER {NAME} {lost}" in str(refused)
            assert "secret" not in str(refused)
    assert not client.hexists("expirebridge:meta", "moving")


def test_names_in_rules_match_nothing_else(server: AnyServer, client: redis.Redis) -> None:
    """What a prefix holds is no pattern."""
    old = client.info("server")["redis_version"].startswith("6.")
    found = grants(LoginRole.PRODUCER, prefix="a*[b]", database=1, redis_6=old)
    rules = [grant.rule for grant in found]
    with login(server, rules) as url, redis.Redis.from_url(url) as limited:
        for name in ("a*[b]", "a*[b]:x", "x:?f.g?[]", "x:?f.g?a?b"):
            assert limited.set(name, "")
        for name in ("aXb", "a*b:x", "a*[b]x", "x", "x:f.g?[]", "x:?f.g", "x?f.g?[]"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                limited.set(name, "")


@pytest.mark.parametrize("prefix", ["a b", "a\n", "a'b", 'a"b'])
def test_a_prefix_that_a_rule_cannot_hold_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidSetting, match="cannot hold spaces or quotes"):
        grants(LoginRole.PRODUCER, prefix=prefix, database=1)


def test_the_lines_are_for_redis_cli_or_for_a_file() -> None:
    command = line(LoginRole.DASHBOARD, prefix="eb", database=0, conf=False, redis_6=False)
    assert command.startswith(
        r"ACL SETUSER eb-dashboard reset on >PASSWORD resetchannels ~eb ~eb:* ~*:\?*\?* "
        "&eb:doorbell:0 +bitfield "
    )
    assert "+select" not in command
    stored = line(LoginRole.DASHBOARD, prefix="eb", database=0, conf=True, redis_6=True)
    assert stored.startswith("user eb-dashboard on >PASSWORD resetchannels ~eb ")
    assert "+pttl" in stored
    assert "+pexpiretime" not in stored
