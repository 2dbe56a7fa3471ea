"""Tasks that a signal decides are moved: on both sides together it decides once."""

from collections.abc import Iterator
from typing import Any

import pytest

from expirebridge import Change, State
from expirebridge.task.calls import reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.reconciling import EventKind, KeyEvent
from tests.kit.servers import AnyServer
from tests.kit.sides import Side, Sides, migrator_of, move
from tests.kit.steps import claim, settle

pytestmark = pytest.mark.servers("oldest")

HOUR = 3600.0
LOST = b"orders.cancel?[42]"


@pytest.fixture
def sides(server: AnyServer) -> Iterator[Sides]:
    urls = [f"redis://127.0.0.1:{server.port}/{number}" for number in (1, 3)]
    both = Side(urls[0], 1), Side(urls[1], 16)
    yield both
    for side in both:
        side.close()


def make(side: Side, id: str = "a", delay: float = HOUR, **options: Any) -> None:
    side.bridge.make_task(
        "orders.cancel", [42], delay, id=id, **{"on_signal": "orders.ship", **options}
    )


def features(side: Side, id: str) -> bytes:
    """Those of the partition of an id."""
    prefix = side.layout.prefix_of(side.layout.partition_of(id))
    found: Any = side.client.hget(f"{prefix}:meta", "features")
    return bytes(found or b"")


def taken(side: Side, token: str = "t") -> dict[str, str]:
    """What a claim takes in each partition: the function of each."""
    return {task.id: task.func for part in side.parts for task in claim(part, token).tasks}


def end(side: Side, id: str, outcome: str, token: str = "t", delay: float = 0.0) -> None:
    part = side.parts[side.layout.partition_of(id)]
    settle(part, Settlement(id, token, outcome, delay, "x"))


STATES = ["waits", "paused", "signalled", "signalled and paused", "passed", "failed", "succeeded"]


@pytest.mark.parametrize("state", STATES)
def test_each_moves_with_what_was_decided(state: str, sides: Sides) -> None:
    old, new = sides
    make(old, delay=0 if state in {"passed", "failed", "succeeded"} else HOUR)
    if "paused" in state:
        old.bridge.pause("a")
    if "signalled" in state:
        assert old.bridge.signal("a", {"ref": 7}, by="psp") is Change.SIGNALLED
    if state in {"passed", "failed", "succeeded"}:
        assert taken(old) == {"a": "orders.cancel"}
        end(old, "a", "retry" if state == "passed" else state, delay=HOUR)
    before = old.record("a")
    move(old, new)
    after = new.record("a")
    for record in (before, after):
        record.pop(b"left", None)
    if state == "signalled":
        assert after.pop(b"attempt") == b"0"  # it was due in the other database
    assert after == before
    assert b"signals" in features(new, "a").split()
    prefix = new.layout.prefix_of(new.layout.partition_of("a"))
    assert new.client.hexists(f"{prefix}:signals", "since")
    assert old.bridge.signal("a", {"ref": 7}, by="psp") is Change.ELSEWHERE
    change = new.bridge.signal("a", {"ref": 7}, by="psp")
    if state in {"waits", "paused"} or "signalled" in state:
        assert change is Change.SIGNALLED
        assert new.bridge.signal("a", {"ref": 8}, by="psp") is Change.SIGNALLED_BEFORE
    else:
        assert change is (Change.BEGUN if state == "passed" else Change.FINISHED)
    new.bridge.run_now("a")
    assert taken(new, "u") == {
        "a": "orders.ship" if change is Change.SIGNALLED else "orders.cancel"
    }


def test_the_first_claim_decides_where_it_arrived(sides: Sides) -> None:
    old, new = sides
    make(old, delay=0)
    move(old, new)
    assert taken(new) == {"a": "orders.cancel"}
    assert new.bridge.signal("a") is Change.RUNNING
    end(new, "a", "retry", delay=HOUR)
    assert new.bridge.signal("a") is Change.BEGUN


def test_one_that_is_due_and_was_not_claimed_can_still_be_signalled(sides: Sides) -> None:
    old, new = sides
    old.bridge.hold(func="orders.cancel")
    make(old, delay=0)
    assert taken(old) == {}
    move(old, new)
    assert new.bridge.signal("a", 7) is Change.SIGNALLED
    assert taken(new) == {"a": "orders.ship"}


@pytest.mark.parametrize("signalled", [False, True])
def test_a_successor_moves_when_the_run_before_it_has_ended(signalled: bool, sides: Sides) -> None:
    old, new = sides
    make(old, delay=0)
    taken(old)
    make(old, if_exists="replace")
    if signalled:
        assert old.bridge.signal("a", 7) is Change.SIGNALLED
    migrator = move(old, new)
    assert new.ids(State.PENDING) == set()
    end(old, "a", "succeeded")
    migrator.run_pass()
    assert new.bridge.signal("a", 7) is Change.SIGNALLED
    assert taken(new) == {"a": "orders.ship"}


def test_a_signal_in_transit_is_for_elsewhere(
    sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = sides
    make(old)
    migrator = migrator_of(old, new)
    migrator.begin()
    told: list[Change] = []
    run = new.store.run

    def between(call: Any) -> Any:
        if not told:
            told.extend(side.bridge.signal("a", 7) for side in sides)
        return run(call)

    monkeypatch.setattr(new.store, "run", between)
    assert migrator.run()
    assert told == [Change.ELSEWHERE] * 2
    assert [side.bridge.signal("a", 7) for side in sides] == [Change.ELSEWHERE, Change.SIGNALLED]
    assert taken(new) == {"a": "orders.ship"}


# The key of the function that was lost


def set_lost_key(side: Side) -> None:
    """Another client sets it, and a listener has heard of it."""
    partition = side.layout.partition_of("a")
    tag = side.layout.prefix_of(partition).removesuffix("expirebridge")
    name = tag.encode() + b"a:?" + LOST
    side.client.set(name, "", px=60_000)
    hint = KeyEvent(name, "a", LOST, EventKind.LIVE)
    side.parts[partition].run(reconciling.adopt([hint], side.settings))


@pytest.mark.parametrize("where", ["old", "new"])
def test_the_key_that_was_lost_makes_nothing_on_either_side(where: str, sides: Sides) -> None:
    old, new = sides
    make(old)
    old.bridge.signal("a")
    migrator = move(old, new)
    set_lost_key(old if where == "old" else new)
    migrator.run_pass()
    assert (old.ids(State.PENDING), new.ids(State.PENDING)) == (set(), {"a"})
    assert taken(new) == {"a": "orders.ship"}


@pytest.mark.parametrize("state", ["pending", "running", "succeeded"])
def test_nor_when_what_it_left_in_the_old_database_is_forgotten(state: str, sides: Sides) -> None:
    old, new = sides
    make(old)
    old.bridge.signal("a")
    migrator = move(old, new)
    if state != "pending":
        assert taken(new) == {"a": "orders.ship"}
    if state == "succeeded":
        end(new, "a", "succeeded")
    old.client.zincrby("expirebridge:cancelled", -16_000, "a")  # as if 16 s had passed
    old.sweep()
    set_lost_key(old)
    migrator.run_pass()
    assert old.ids(State.PENDING) == set()
    assert migrator.moved.stayed == 1
    if state == "pending":
        assert taken(new) == {"a": "orders.ship"}
    if state == "running":
        end(new, "a", "succeeded")
    assert taken(new, "u") == {}


# An id that producers used on both sides


def both(sides: Sides, if_exists: str, **options: Any) -> None:
    """One is moved; then another of its id is made in the old database, where nobody knows it."""
    old, new = sides
    make(old)
    move(old, new)
    make(old, if_exists=if_exists, **options)


@pytest.mark.parametrize("if_exists", ["keep", "reject", "extend", "replace"])
def test_a_signal_there_decides_here(if_exists: str, sides: Sides) -> None:
    old, new = sides
    both(sides, if_exists)
    assert old.bridge.signal("a", 7, by="psp") is Change.SIGNALLED
    move(old, new)
    assert new.record("a")[b"signal"] == b"7"
    assert new.bridge.signal("a", 7, by="psp") is Change.SIGNALLED
    assert new.bridge.signal("a", 8) is Change.SIGNALLED_BEFORE
    assert taken(new) == {"a": "orders.ship"}
    end(new, "a", "succeeded")
    assert taken(new, "u") == {}


@pytest.mark.parametrize("if_exists", ["keep", "reject", "extend"])
@pytest.mark.parametrize("running", [False, True])
def test_a_signal_here_is_kept_whatever_was_decided_there(
    if_exists: str, running: bool, sides: Sides
) -> None:
    old, new = sides
    both(sides, if_exists)
    assert new.bridge.signal("a", 7) is Change.SIGNALLED
    if running:
        assert taken(new) == {"a": "orders.ship"}
    move(old, new)
    if not running:
        assert taken(new) == {"a": "orders.ship"}
    assert new.record("a")[b"signal"] == b"7"
    end(new, "a", "succeeded")
    assert taken(new, "u") == {}


@pytest.mark.parametrize("if_exists", ["keep", "reject", "extend"])
def test_of_two_signals_that_of_the_one_that_stays_counts(if_exists: str, sides: Sides) -> None:
    old, new = sides
    both(sides, if_exists)
    assert [old.bridge.signal("a", 8), new.bridge.signal("a", 7)] == [Change.SIGNALLED] * 2
    assert taken(new) == {"a": "orders.ship"}
    move(old, new)
    assert new.record("a")[b"signal"] == b"7"
    end(new, "a", "succeeded")
    assert taken(new, "u") == {}


@pytest.mark.parametrize("if_exists", ["keep", "reject", "extend"])
def test_a_deadline_here_is_not_undone_by_a_signal_there(if_exists: str, sides: Sides) -> None:
    old, new = sides
    both(sides, if_exists)
    assert old.bridge.signal("a", 7) is Change.SIGNALLED
    new.bridge.run_now("a")
    assert taken(new) == {"a": "orders.cancel"}
    move(old, new)
    end(new, "a", "retry", delay=0)
    assert taken(new, "u") == {"a": "orders.cancel"}
    end(new, "a", "succeeded", "u")
    assert taken(new, "v") == {}


@pytest.mark.parametrize("if_exists", ["keep", "reject", "extend"])
def test_a_deadline_there_has_passed_here(if_exists: str, sides: Sides) -> None:
    old, new = sides
    both(sides, if_exists, delay=0)
    assert taken(old) == {"a": "orders.cancel"}
    end(old, "a", "retry", delay=HOUR)
    move(old, new)
    assert new.bridge.signal("a") is Change.BEGUN
    new.bridge.run_now("a")
    assert taken(new) == {"a": "orders.cancel"}


@pytest.mark.parametrize("decided", ["signalled", "passed"])
def test_what_is_decided_there_is_decided_of_the_successor(decided: str, sides: Sides) -> None:
    old, new = sides
    both(sides, "extend", delay=0 if decided == "passed" else HOUR)
    new.bridge.run_now("a")
    taken(new)
    make(new, if_exists="replace")
    if decided == "signalled":
        assert old.bridge.signal("a", 7) is Change.SIGNALLED
    else:
        taken(old)
        end(old, "a", "retry", delay=HOUR)
    move(old, new)
    assert new.bridge.signal("a", 8) is (
        Change.SIGNALLED_BEFORE if decided == "signalled" else Change.BEGUN
    )
    end(new, "a", "succeeded")
    new.bridge.run_now("a")
    assert taken(new, "u") == {"a": f"orders.{'ship' if decided == 'signalled' else 'cancel'}"}


def test_a_signal_from_before_the_one_here_was_made_is_not_for_it(sides: Sides) -> None:
    old, new = sides
    make(old)
    old.bridge.signal("a", 7)
    old.client.hset("expirebridge:task:a", "made", 1)
    at, _, rest = old.record("a")[b"signalled"].partition(b" ")
    old.client.hset("expirebridge:task:a", "signalled", b"%d %s" % (int(at) - 60_000, rest))
    make(new)
    assert move(old, new).moved.stayed == 1
    assert new.record("a")[b"on_signal"] == b"orders.ship"
    assert b"signalled" not in new.record("a")


def test_a_cancelled_one_that_a_key_restarts_from_there_has_its_deadline(sides: Sides) -> None:
    old, new = sides
    make(old)
    migrator = move(old, new)
    new.bridge.cancel("a")
    old.client.zincrby("expirebridge:cancelled", -16_000, "a")
    old.sweep()
    set_lost_key(old)
    migrator.run_pass()
    assert new.ids(State.PENDING) == {"a"}
    assert new.bridge.signal("a") is Change.BEGUN
