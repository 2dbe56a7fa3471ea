"""Tasks moved to another database while both are in use: each is in one place."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from _pytest.mark import ParameterSet
from prometheus_client import CollectorRegistry, generate_latest

from expirebridge import Bridge, Change, Outcome, ServerUnreachable, State, Then
from expirebridge.bridge import Operations
from expirebridge.checks import Finding, Level, examine
from expirebridge.cli.stats import store_of
from expirebridge.errors import InvalidSetting, MoveRefused
from expirebridge.hooks import Hooks
from expirebridge.moving import calls as migration
from expirebridge.moving.migrator import Migrator
from expirebridge.observe.server_metrics import OfTheServer
from expirebridge.settings import Settings
from expirebridge.store.acl import LoginRole
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import claiming, reconciling
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.producing import Obstacle
from expirebridge.task.task import to_ms
from tests.kit.cluster import Cluster
from tests.kit.invoked import invoke, invoke_json
from tests.kit.servers import AnyServer
from tests.kit.sides import Side, Sides, migrator_of, move
from tests.kit.steps import claim, server_ms
from tests.kit.steps import new as new_task_of
from tests.kit.waiting import declare, hold_slots, park

pytestmark = pytest.mark.servers("oldest")

HOUR = 3600.0
MANY = 230  # more than a batch


def rest(*case: Any) -> ParameterSet:
    """A case that make test leaves to make test-rest."""
    return pytest.param(case if len(case) > 1 else case[0], marks=pytest.mark.rest)


@pytest.fixture(
    params=[rest(1, 1), (1, 16), rest(4, 16), rest(16, 1)], ids=lambda p: f"{p[0]} to {p[1]}"
)
def sides(request: pytest.FixtureRequest, server: AnyServer) -> Iterator[Sides]:
    counts = request.param
    both = [
        Side(f"redis://127.0.0.1:{server.port}/{number}", count)
        for number, count in zip((1, 3), counts, strict=True)
    ]
    yield both[0], both[1]
    for side in both:
        side.close()


only_one = pytest.mark.parametrize("sides", [(1, 16)], indirect=True, ids=["1 to 16"])


def fill(old: Side) -> None:
    """Tasks in all states but running."""
    bridge = old.bridge
    bridge.make_tasks(
        [{"func": "mail.send", "args": [n], "delay": HOUR, "id": f"t{n}"} for n in range(MANY)]
    )
    bridge.make_task("mail.send", ["x" * 2000], "1d", id="long", timeout=1.5, retry=[5, 60])
    bridge.make_task("mail.send", [1], "2h", id="tagged", tags=["a", "b"])
    bridge.watch("watched", "alerts.silent", ["w"], ttl="30d")
    bridge.make_task("mail.send", [], "2h", id="paused")
    bridge.pause("paused")
    for id, outcome in (("done", "succeeded"), ("broken", "failed"), ("tried", "retry")):
        bridge.make_task("mail.send", [id], 0, id=id)
        old.run_due(outcome, delay=HOUR)


def test_a_moved_task_is_not_counted_as_cancelled(sides: Sides) -> None:
    old, new = sides
    for id in ("a", "b", "c"):
        old.bridge.make_task("mail.send", [], HOUR, id=id)
    old.bridge.cancel("c")
    move(old, new)
    for look_again in (False, True):
        counts = old.bridge.count()
        assert (counts.pending, counts.cancelled) == (0, 1)
        assert old.bridge.cancel("a") is Change.ELSEWHERE
        if not look_again:
            old.sweep()  # what is left behind stays for 15 s
    move(new, old)
    counts = old.bridge.count()
    assert (counts.pending, counts.cancelled) == (2, 1)
    assert new.bridge.count().cancelled == 0


def test_the_remains_of_a_moved_task_are_cleared(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [], HOUR, id="a")
    move(old, new)
    name = f"{old.layout.prefix_of(old.layout.partition_of('a'))}:cancelled"
    assert old.client.zincrby(name, -16_000, "a")  # as if 16 s had passed
    old.sweep()
    assert not old.record("a")
    assert not old.client.exists(name)


def test_each_task_moves_unchanged(sides: Sides) -> None:
    old, new = sides
    fill(old)
    before = {state: old.ids(state) for state in State}
    records = {id: old.record(id) for ids in before.values() for id in ids}
    dues = {id: old.bridge.get(id) for id in records}
    migrator = migrator_of(old, new)
    migrator.begin()
    assert migrator.run()
    assert migrator.moved.tasks == len(records)
    assert migrator.moved.stayed == 0
    assert {state: new.ids(state) for state in State} == before
    for id, record in records.items():
        assert new.record(id) == record
        task, was = new.bridge.get(id), dues[id]
        assert task is not None
        assert was is not None
        assert (task.state, task.tags) == (was.state, was.tags)
        if was.state is State.PENDING:
            assert task.due == was.due
            earliest = server_ms(new.client)
            ends = to_ms(task.due) - new.client.pttl(task.key.decode())
            assert earliest - 10 <= ends <= server_ms(new.client) + 10
        if was.state is State.PAUSED:
            assert new.client.ttl(task.key) == -1
    assert {task.id for task in new.bridge.list(tag="a").tasks} == {"tagged"}
    assert not any(old.ids(state) for state in State if state is not State.CANCELLED)
    assert new.bridge.cancel("t1") is Change.CANCELLED
    assert new.bridge.cancel("nobody") is Change.NOT_FOUND
    assert old.bridge.cancel("t1") is Change.ELSEWHERE


def test_and_back(sides: Sides) -> None:
    old, new = sides
    fill(old)
    before = {state: old.ids(state) for state in State if state is not State.CANCELLED}
    for source, target in ((old, new), (new, old), (old, new)):
        migrator = migrator_of(source, target)
        migrator.begin()
        assert migrator.run()
        found = {state: target.ids(state) for state in before}
        assert found == before
        assert not any(source.ids(state) for state in before)


@only_one
def test_while_listeners_beat_they_keep_what_is_due_soon(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], 3, id="soon")
    old.bridge.make_task("mail.send", [1], HOUR, id="later")
    old.bridge.make_task("mail.send", [1], 0, id="failed")
    old.run_due("failed")
    old.beat()
    migrator = move(old, new)
    has_listeners = [migrator.has_listeners]
    assert old.ids(State.PENDING) == {"soon"}
    assert new.ids(State.PENDING) == {"later"}
    assert old.ids(State.FAILED) == {"failed"}
    old.leave()
    migrator.run_pass()
    assert [*has_listeners, migrator.has_listeners] == [True, False]
    assert new.ids(State.PENDING) == {"soon", "later"}
    assert new.ids(State.FAILED) == {"failed"}


@only_one
def test_a_waiting_task_moves_as_pending_and_out_of_its_lanes(sides: Sides) -> None:
    old, new = sides
    for id in ("w", "granted", "other"):
        old.bridge.make_task("mail.send", [1], 0, id=id)
    declare(old.client, {"sms": {"most": 1}})
    due = park(old.client, "w", "sms=17")
    park(old.client, "other", "sms=18")
    hold_slots(old.client, "sms=17", "granted")
    old.beat()
    migrator = move(old, new)
    assert old.ids(State.WAITING) == {"w", "other"}
    old.leave()
    migrator.run_pass()
    assert new.ids(State.PENDING) == {"w", "granted", "other"}
    task = new.bridge.get("w")
    assert task is not None
    assert to_ms(task.due) == due
    assert not {b"slots", b"queue", b"state"} & {*new.record("w"), *new.record("granted")}
    assert old.client.keys("expirebridge:lane*") == old.client.keys("expirebridge:queue*") == []


@only_one
def test_a_batch_of_none_takes_a_paused_task_out_of_its_lanes(sides: Sides) -> None:
    old, new = sides
    key = old.bridge.make_task("mail.send", [1], 0, id="granted").key
    declare(old.client, {"sms": {"most": 1}})
    hold_slots(old.client, "sms=17", "granted")
    old.client.set(key, "")  # pauses it, and no listener has heard of it
    [nonce, *_] = old.store.run(migration.begin_move("redis://other"))
    old.store.run(migration.pack_batch(0, nonce, 0, 10.0, State.PENDING, 0))
    assert old.ids(State.PAUSED) == {"granted"}
    assert old.client.keys("expirebridge:lane*") == []
    assert new.ids(State.PENDING) == set()


@only_one
def test_what_a_plain_client_did_is_followed(sides: Sides) -> None:
    old, new = sides
    keys = {
        id: old.bridge.make_task("mail.send", [1], HOUR, id=id).key
        for id in ("put off", "persisted", "deleted")
        for id in (id.replace(" ", "-"),)
    }
    earliest = server_ms(old.client)
    old.client.expire(keys["put-off"], 7200)
    latest = server_ms(old.client)
    old.client.persist(keys["persisted"])
    old.client.delete(keys["deleted"])
    old.beat()
    migrator = move(old, new)
    migrator.run_pass()
    task = new.bridge.get("put-off")
    assert task is not None
    assert earliest - 1000 <= to_ms(task.due) - 7_200_000 <= latest + 1000
    assert new.ids(State.PAUSED) == {"persisted"}
    # A listener may be about to hear of it; unheard, a deletion changes nothing.
    assert old.ids(State.PENDING) == {"deleted"}
    old.leave()
    migrator.run_pass()
    assert new.ids(State.PENDING) == {"put-off", "deleted"}


@only_one
def test_a_late_event_of_a_task_that_is_elsewhere_makes_nothing(sides: Sides) -> None:
    old, new = sides
    task = old.bridge.make_task("mail.send", [1], HOUR, id="a")
    move(old, new)
    for heard in reconciling.EventKind:
        hint = reconciling.KeyEvent(task.key, "a", b"mail.send?[1]", heard)
        old.store.run(reconciling.adopt([hint], old.settings))
    assert old.ids(State.PENDING) == set()


@pytest.mark.rest
def test_to_a_cluster_and_back(url: str, client: redis.Redis, cluster: Cluster) -> None:
    settings = Settings(url=url), Settings(url=cluster.url)
    made = {f"t{n}" for n in range(MANY)}
    with ExitStack() as stack:
        old, new = (stack.enter_context(Bridge(each.url)) for each in settings)
        stores = [stack.enter_context(closing(store_of(each))) for each in settings]
        old.make_tasks([{"func": "f.g", "args": [1], "delay": HOUR, "id": id} for id in made])
        for source, target in ((0, 1), (1, 0)):
            migrator = Migrator(stores[source], stores[target], settings[source], settings[target])
            migrator.begin()
            assert migrator.run()
            assert migrator.moved.tasks == len(made)
            found = [
                {task.id for task in side.list(state="pending", limit=1000).tasks}
                for side in (old, new)
            ]
            assert found == ([set(), made] if target else [made, set()])
            if target:
                spread = [
                    counts.pending
                    for counts in stores[1].run(Operations(settings[1], Hooks()).list_partitions())
                ]
                assert len(spread) == 16
                assert min(spread) > 0


# Holds and weights


def give_weight(side: Side, weight: str) -> None:
    """As any client may: no listener has declared the limit."""
    first = side.parts[0]
    first.client.hset(f"{first.database.prefix}:weights", "sms acme", weight)


def numbers_in(side: Side) -> object:
    """The numbers that were set for limits."""
    return side.parts[0].client.hgetall(f"{side.parts[0].database.prefix}:numbers")


def held_in(side: Side) -> dict[str, str]:
    """What is on hold, with the reasons; each partition has the same."""
    names = [set(part.client.hgetall(f"{part.database.prefix}:holds")) for part in side.parts]
    assert all(each == names[0] for each in names)
    return {hold.name: hold.reason for hold in side.bridge.holds()}


def test_what_is_on_hold_waits_there_too(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], 0, id="by-function")
    old.bridge.make_task("other.call", [1], 0, id="by-tag", tags=["customer-9"])
    old.bridge.make_task("other.call", [1], 0, id="free")
    old.bridge.hold(func="mail.send", reason="down")
    old.bridge.hold(tag="customer-9", until=datetime.now(UTC) + timedelta(hours=1))
    give_weight(old, "3.0")
    first = old.parts[0]
    first.client.hset(f"{first.database.prefix}:numbers", mapping={"sms acme": 5, "sms": "x"})
    assert old.run_due() == ["free"]
    assert old.ids(State.WAITING) == {"by-function", "by-tag"}
    holds = [replace(hold, waiting=0) for hold in old.bridge.holds()]
    move(old, new)
    assert held_in(new).keys() == {"func mail.send", "tag customer-9"}
    assert new.bridge.holds() == holds
    assert {
        value
        for part in new.parts
        if (value := part.client.hget(f"{part.database.prefix}:weights", "sms acme"))
    } == {b"3.0"}
    assert numbers_in(new) == {b"sms acme": b"5", b"sms": b"x"}
    assert new.run_due() == []
    assert new.ids(State.WAITING) == {"by-function", "by-tag"}
    new.bridge.release(func="mail.send")
    assert new.run_due() == ["by-function"]


@only_one
def test_the_holds_and_weights_that_are_there_stay(sides: Sides) -> None:
    old, new = sides
    for side, word in zip(sides, ("old", "new"), strict=True):
        side.bridge.hold(func="mail.send", reason=word)
        give_weight(side, "2.0" if side is old else "4.0")
        first = side.parts[0]
        name = f"{first.database.prefix}:numbers"
        first.client.hset(name, mapping={f"of {word}": 7, "sms": 2 if side is old else 4})
    old.bridge.hold(func="other.call", until=datetime.now(UTC) + timedelta(hours=1))
    old.client.hset("expirebridge:holds", "tag garbage", "x")
    old.client.hset("expirebridge:holds", "tag over", '{"until": 1}')
    move(old, new)
    assert held_in(new) == {"func mail.send": "new", "func other.call": "", "tag garbage": ""}
    first = new.parts[0]
    assert first.client.hget(f"{first.database.prefix}:weights", "sms acme") == b"4.0"
    assert numbers_in(new) == {b"sms": b"4", b"of old": b"7", b"of new": b"7"}


@only_one
def test_what_was_released_there_stays_released(sides: Sides) -> None:
    old, new = sides
    old.bridge.hold(func="mail.send")
    move(old, new)
    new.bridge.release(func="mail.send")
    old.leave()
    for _ in range(2):  # it is resumed; it is over, and started once more
        again = migrator_of(old, new)
        again.begin()
        assert held_in(new) == {}
        assert again.run()


@only_one
def test_what_is_on_hold_goes_back_and_comes_again(sides: Sides) -> None:
    old, new = sides
    move(old, new)
    for source, target, name in ((new, old, "first"), (old, new, "second")):
        source.bridge.hold(tag=name)
        move(source, target)
        assert f"tag {name}" in held_in(target)


@only_one
def test_a_hash_of_holds_that_another_client_overwrote_stops_no_move(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a")
    old.bridge.hold(func="mail.send")
    old.client.set("expirebridge:weights", "x")
    old.client.set("expirebridge:numbers", "x")
    part = new.parts[0]
    part.client.set(f"{part.database.prefix}:holds", "x")
    move(old, new)
    assert held_in(new) == {"func mail.send": ""}
    assert new.ids(State.PENDING) == {"a"}


# Killed


KILLED_AFTER = (
    "begin_arrival", "begin_move", "read_holds_and_weights", "receive_holds_and_weights",
    "pack_batch", "receive_batch", "drop_batch",
)  # fmt: skip


class Killed(BaseException):
    """The migrator is killed here."""


def dying(store: Partitions, script: str, *, before: bool) -> Callable[[Any], Any]:
    """`store.run` of a migrator that is killed around the first call of a script."""
    run = store.run

    def run_or_die(call: Any) -> Any:
        if getattr(call, "name", "") != script:
            return run(call)
        if not before:
            run(call)
        raise Killed

    return run_or_die


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    "script",
    [script if script.endswith("_batch") else rest(script) for script in KILLED_AFTER],
)
@pytest.mark.parametrize("sides", [(1, 16), rest(4, 1)], indirect=True, ids=["1 to 16", "4 to 1"])
def test_a_killed_mover_is_started_again(
    sides: Sides, script: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = sides
    made = {f"t{n}" for n in range(30)}
    for id in made:
        old.bridge.make_task("mail.send", [1], HOUR, id=id)
    old.bridge.hold(func="other.call", reason="down")
    with monkeypatch.context() as patch:
        for side in sides:
            patch.setattr(side.store, "run", dying(side.store, script, before=before))
        with pytest.raises(Killed):
            move(old, new)
    # Nowhere can a task be run by both.
    assert not old.ids(State.PENDING) & new.ids(State.PENDING)
    assert held_in(new) or old.ids(State.PENDING) == made
    # What has arrived runs, and is forgotten: it must not come again.
    ran = set[str]()
    for id in new.ids(State.PENDING):
        new.bridge.run_now(id)
    ran |= set(new.run_due())
    for part in new.parts:
        part.client.delete(*part.client.keys(f"{part.database.prefix}:task:*") or ["-"])
        part.client.delete(f"{part.database.prefix}:succeeded")
    migrator = migrator_of(old, new)
    migrator.begin()
    assert migrator.run()
    assert new.ids(State.PENDING) == made - ran
    assert held_in(new) == {"func other.call": "down"}


@only_one
def test_two_movers_do_no_harm(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stalls with a batch in transit, while the other goes on."""
    old, new = sides
    for id in ("a", "b"):
        old.bridge.make_task("mail.send", [1], HOUR, id=id)
    first, second = migrator_of(old, new), migrator_of(old, new)
    first.begin()
    late: list[Any] = []
    run = first._target.run
    with monkeypatch.context() as patch:

        def noted(call: Any) -> Any:
            late.append(call)
            return run(call)

        patch.setattr(first._target, "run", noted)
        patch.setattr(first._source, "run", dying(first._source, "drop_batch", before=True))
        with pytest.raises(Killed):
            first.run_pass()
    second.begin()
    second.run_pass()
    assert new.bridge.cancel("a") is Change.CANCELLED
    old.bridge.make_task("mail.send", [1], HOUR, id="c")
    second.run_pass()
    # The second one's next batch is on its way.
    old.bridge.make_task("mail.send", [1], HOUR, id="d")
    with monkeypatch.context() as patch:
        patch.setattr(new.store, "run", dying(new.store, "receive_batch", before=True))
        with pytest.raises(Killed):
            second.run_pass()
    for call in late:
        new.store.run(call)
    old.store.run(migration.drop_batch(0, first._nonces[0], 1))
    second.run_pass()
    assert new.ids(State.PENDING) == {"b", "c", "d"}


@only_one
def test_a_source_that_forgot_its_batches_goes_on(sides: Sides) -> None:
    """As after a failover: what it forgot is in both, what it makes from then on is moved."""
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a")
    migrator = move(old, new)
    [nonce] = migrator._nonces
    old.client.hset("expirebridge:move", "number", 0)
    old.bridge.make_task("mail.send", [1], HOUR, id="b")
    migrator.run_pass()
    assert new.ids(State.PENDING) == {"a", "b"}
    assert old.client.hget("expirebridge:move", "number") == b"2"
    assert new.store.run(migration.last_received(nonce)) == 2


# Producers on both sides


@pytest.mark.parametrize(
    ("if_exists", "args", "wins"),
    [("reject", [2], "new"), ("keep", [2], "new"), ("replace", [2], "old"),
     ("extend", [1], "moved"), ("extend", [2], "old")],
)  # fmt: skip
@only_one
def test_an_id_that_is_known_there(
    sides: Sides, if_exists: Any, args: list[int], wins: str
) -> None:
    """The old database does not know it any longer: what was asked for happens where it is."""
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a", tags=["first"])
    migrator = move(old, new)
    made = old.bridge.make_task("mail.send", args, 2 * HOUR, id="a", if_exists=if_exists)
    assert made.outcome is Outcome.CREATED
    migrator.run_pass()
    task = new.bridge.get("a")
    assert task is not None
    kept, later = list(task.tags) == ["first"], task.due == made.due
    assert (kept, later) == {
        "new": (True, False), "old": (False, True), "moved": (True, True)
    }[wins]  # fmt: skip
    assert migrator.moved.stayed == (wins == "new")
    assert b"asked" not in new.record("a")
    assert old.ids(State.PENDING) == set()


@only_one
def test_a_plain_key_puts_off_what_is_there(sides: Sides) -> None:
    old, new = sides
    task = old.bridge.make_task("mail.send", [1], HOUR, id="a", tags=["first"], retry=[1])
    migrator = move(old, new)
    old.client.set(task.key, "", px=7_200_000)
    hint = reconciling.KeyEvent(task.key, "a", b"mail.send?[1]", reconciling.EventKind.LIVE)
    old.store.run(reconciling.adopt([hint], old.settings))
    migrator.run_pass()
    moved = new.bridge.get("a")
    assert moved is not None
    assert moved.due.timestamp() == pytest.approx(old.client.time()[0] + 7200, abs=5)
    assert new.record("a")[b"retry"] == b"[1.0]"


@only_one
def test_an_id_that_runs_there_runs_once_more(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a")
    migrator = move(old, new)
    new.bridge.run_now("a")
    part = new.parts[new.layout.partition_of("a")]
    claim = part.run(claiming.claim("t", new.settings, places=1, idle=True))
    assert [one.id for one in claim.tasks] == ["a"]
    old.bridge.make_task("mail.send", [2], HOUR, id="a", if_exists="replace")
    migrator.run_pass()
    part.run(claiming.settle([claiming.Settlement("a", "t", "succeeded")], new.settings))
    task = new.bridge.get("a")
    assert task is not None
    assert (task.state, list(task.args)) == (State.PENDING, [2])


# Seen from outside


def told_of(side: Side) -> Finding | None:
    """What the doctor says of a move."""
    found = examine(side.store, side.settings, LoginRole.PRODUCER)
    return next((one for one in found if one.check == "move"), None)


@pytest.mark.parametrize("sides", [(4, 16)], indirect=True, ids=["4 to 16"])
def test_a_move_shows_how_far_it_is(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = sides
    assert told_of(old) is None
    assert old.bridge.count().moving is None
    ids = [f"t{n}" for n in range(40)]
    old.bridge.make_tasks([{"func": "f.g", "delay": HOUR, "id": id} for id in ids])
    old.bridge.schedule("s", "mail.send", [1], every="1h")
    old.beat()
    began = time.monotonic()
    with monkeypatch.context() as patch:
        patch.setattr(new.store, "run", dying(new.store, "receive_batch", before=True))
        with pytest.raises(Killed):
            move(old, new)
    first = sum(old.layout.partition_of(id) == 0 for id in ids)
    moving = old.bridge.count().moving
    assert moving is not None
    assert moving.leaves
    assert (moving.on_their_way, moving.series) == (first, 1)
    assert moving.way == f"to {new.url} expirebridge"
    assert moving.idle is not None
    assert moving.idle <= time.monotonic() - began + 1
    goes_on = told_of(old)
    assert goes_on is not None
    assert goes_on.level is Level.OK
    for prefix in old.layout.prefixes():
        old.client.hincrby(f"{prefix}:move", "at", -180_000)
    left = told_of(old)
    assert left is not None
    assert left.level is Level.WARNING
    assert (
        f"half-way, to {new.url} expirebridge: no command has continued it for 3m" in left.message
    )
    assert f"{first} are in transit, where nobody can run them" in left.message
    assert "moving to redis://" in invoke("stats", url=old.url)
    assert invoke_json("count", url=old.url)["moving"]["on_their_way"] == first
    exposed = scraped(old.settings)
    assert f"expirebridge_move_on_their_way {float(first)}" in exposed
    [idle] = re.findall(r"^expirebridge_move_idle_seconds (\S+)$", exposed, re.MULTILINE)
    assert float(idle) > 180
    arrives = told_of(new)
    assert arrives is not None
    assert arrives.level is Level.OK
    assert arrives.message.startswith(f"tasks arrive from {old.url} expirebridge, the last ")
    migrator = migrator_of(old, new)
    migrator.begin()
    old.leave()
    assert migrator.run()
    over = told_of(old)
    assert over is not None
    assert str(over) == f"all was moved to {new.url} expirebridge"
    assert told_of(new) is None


def scraped(settings: Settings) -> str:
    """What a listener's metrics say of the server."""
    registry = CollectorRegistry()
    registry.register(OfTheServer(settings, []))
    return generate_latest(registry).decode()


# Series


@only_one
def test_series_go_with_the_last_listener(sides: Sides) -> None:
    old, new = sides
    old.bridge.schedule("s", "mail.send", [1], every="1h")
    old.beat()
    migrator = move(old, new)
    assert new.ids(State.PENDING) == set()
    [tick] = old.ids(State.PENDING)
    before = old.client.hgetall("expirebridge:series:s")
    old.leave()
    migrator.run_pass()
    assert new.ids(State.PENDING) == {tick}
    assert migrator.moved.series == 1
    prefix = new.layout.prefix_of(new.layout.partition_of("s"))
    assert new.client.hgetall(f"{prefix}:series:s") == before
    assert new.client.zscore(f"{prefix}:series", "s") == int(before[b"due"])
    assert old.client.zcard("expirebridge:series") == 0


# Refused


@only_one
def test_what_cannot_be_moved(sides: Sides) -> None:
    old, new = sides
    with pytest.raises(InvalidSetting, match="the database to move from"):
        migrator_of(old, old).begin()
    alias = Side(old.url.replace("127.0.0.1", "localhost"), 1)
    with closing(alias), pytest.raises(MoveRefused, match="that is this very database"):
        migrator_of(old, alias).begin()
    move(old, new)
    old.client.hset("expirebridge:ledger", "nonce", "n")
    with pytest.raises(MoveRefused, match="has a ledger"):
        migrator_of(old, new).begin()


def test_groups_end_where_they_were_made(sides: Sides) -> None:
    old, new = sides
    due = [{"func": "mail.send", "delay": 0}]
    old.bridge.make_group("g", due, then=Then("mail.send", delay=HOUR))
    with pytest.raises(MoveRefused, match="a group of this database has not ended"):
        migrator_of(old, new).begin()
    old.run_due()
    move(old, new)
    assert new.ids(State.PENDING) == {"g@then"}
    with pytest.raises(MoveRefused, match=r"is being moved to redis://.*: make the group there"):
        old.bridge.make_group("h", due)
    new.bridge.make_group("h", due, then=Then("mail.send", delay=HOUR))
    new.run_due()
    assert new.ids(State.PENDING) == {"g@then", "h@then"}


def test_a_follow_up_goes_after_its_task(sides: Sides) -> None:
    """A task that runs when the move begins succeeds there, and has its follow-up there."""
    old, new = sides
    old.bridge.make_task("mail.send", [1], 0, id="a")
    part = old.parts[old.layout.partition_of("a")]
    claim(part)
    move(old, new)
    then = new_task_of("a@next", 3_600_000, fields={"after": "a"})
    settled = Settlement("a", "t", "succeeded", then=then)
    assert part.run(claiming.settle_then([settled], old.settings))[0].code is Settled.DONE
    assert new.ids(State.PENDING) == set()
    move(old, new)
    assert new.ids(State.PENDING) == {"a@next"}
    found = new.bridge.get("a@next")
    assert found is not None
    assert found.after == "a"
    assert part.run(claiming.settle_then([settled], old.settings))[0].code is not Obstacle.EXISTS


@only_one
def test_a_move_that_was_turned_round_ends(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a")
    migrator = move(old, new)
    back = migrator_of(new, old)
    back.begin()
    with pytest.raises(MoveRefused, match="turned round"):
        migrator.run_pass()
    assert back.run()
    assert old.ids(State.PENDING) == {"a"}


@only_one
def test_it_is_not_turned_round_while_a_batch_is_in_transit(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a")
    with monkeypatch.context() as patch:
        patch.setattr(new.store, "run", dying(new.store, "receive_batch", before=True))
        with pytest.raises(Killed):
            move(old, new)
    with pytest.raises(MoveRefused, match="some are on their way"):
        migrator_of(new, old).begin()
    migrator_of(old, new).begin()
    third = Side(old.url[:-1] + "5", 1)
    with closing(third), pytest.raises(MoveRefused, match="on their way to"):
        migrator_of(old, third).begin()


@only_one
def test_a_server_that_is_away_is_waited_for(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], HOUR, id="a")
    migrator = migrator_of(old, new)
    migrator.begin()
    monkeypatch.setattr("expirebridge.moving.migrator.RETRY_PAUSE", 0.01)
    run, left = new.store.run, [2]

    def sometimes(call: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise ServerUnreachable("away")
        return run(call)

    monkeypatch.setattr(new.store, "run", sometimes)
    assert migrator.run()
    assert new.ids(State.PENDING) == {"a"}


@only_one
def test_a_claim_sees_that_a_task_was_elsewhere_when_it_was_due(sides: Sides) -> None:
    old, new = sides
    old.bridge.make_task("mail.send", [1], 0, id="overdue")
    old.bridge.make_task("mail.send", [1], HOUR, id="ahead")
    move(old, new)
    new.bridge.run_now("ahead")
    claims = [
        part.run(claiming.claim("t", new.settings, places=5, idle=True)) for part in new.parts
    ]
    given_back = {task.id: task.given_back for claim in claims for task in claim.tasks}
    assert given_back == {"overdue": True, "ahead": False}
    task = new.bridge.get("overdue")
    assert task is not None
    assert task.attempt == 1
