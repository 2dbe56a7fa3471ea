"""Ordered lanes and holds: what was on hold begins before what came later."""

from collections.abc import Iterable

import pytest
import redis

from expirebridge.limits.calls import declare_limits
from expirebridge.limits.hold_calls import put_hold, release_hold
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import claim, new, reschedule, server_ms, settle

pytestmark = pytest.mark.servers("oldest")

LIMITS = [
    ("f step.run", b'[["line",0,"to",null]]'),
    ("f step.walk", b'[["line",0,"to",null]]'),
    ("l line", b'{"most":1,"ordered":true,"blocks":true}'),
]
MANY = 250
"""More than a release lets go at once."""


def make(
    store: Store, lanes: Iterable[str], event: int, *, func: str = "step.run", tags: str = ""
) -> None:
    """Make a task of each lane, due in the order of its events."""
    due = server_ms(store.client) - 60_000 + event
    fields = {"tags": tags} if tags else {}
    store.run(
        producing.make([
            new(f"{lane}-{event}", due, call=f'{func}?["{lane}"]'.encode(), relative=False,
                fields=dict(fields))
            for lane in lanes
        ])
    )  # fmt: skip


def all_claimed(store: Store) -> list[str]:
    """Claim until nothing can begin, each time all that can, and end it."""
    found: list[str] = []
    while ids := [task.id for task in claim(store).tasks]:
        settle(store, *(Settlement(id, "t", "succeeded") for id in ids))
        found += ids
    return found


def begun(store: Store) -> list[str]:
    """Claim until nothing can begin, each time all that can, and end it; sweep in between."""
    found: list[str] = []
    is_over = False
    while not is_over:
        found += all_claimed(store)
        before = len(found), store.client.zcard("expirebridge:waiting")
        store.run(reconciling.sweep(Settings()))
        is_over = before == (len(found), store.client.zcard("expirebridge:waiting"))
    return found


def put_on_hold(store: Store, name: str) -> None:
    store.run(put_hold(name, until=None, reason="", by=""))


@pytest.mark.parametrize(("hold", "tags"), [("func step.run", ""), ("tag vip", "vip"), ("all", "")])
@pytest.mark.parametrize("spread", [0, 0.001])
def test_what_was_on_hold_begins_before_newer_tasks_of_its_lane(
    store: Store, hold: str, tags: str, spread: float
) -> None:
    store.run(declare_limits("dd", LIMITS))
    lanes = [f"e{n:03}" for n in range(MANY)]
    make(store, lanes, 1, tags=tags)
    put_on_hold(store, hold)
    while claim(store).parked:
        pass
    store.run(release_hold(hold, spread=spread))
    make(store, lanes, 2, func="step.walk")
    found = begun(store)
    assert len(found) == 2 * MANY
    first: dict[str, str] = {}
    for id in found:
        first.setdefault(id[:-2], id[-1])
    assert [lane for lane in lanes if first[lane] != "1"] == []


def test_what_is_let_go_while_one_of_its_lane_runs_is_not_overtaken(store: Store) -> None:
    store.run(declare_limits("dd", LIMITS))
    make(store, ["x"], 1, tags="vip")
    put_on_hold(store, "tag vip")
    make(store, ["x"], 2)
    assert [task.id for task in claim(store).tasks] == ["x-2"]
    make(store, ["x"], 3)
    claim(store)
    store.run(release_hold("tag vip"))
    settle(store, Settlement("x-2", "t", "succeeded"))
    assert begun(store) == ["x-1", "x-3"]


def test_what_is_let_go_while_one_of_its_lane_runs_is_counted_there(store: Store) -> None:
    store.run(declare_limits("dd", LIMITS))
    make(store, ["x"], 1)
    assert [task.id for task in claim(store).tasks] == ["x-1"]
    for event in (2, 3):
        make(store, ["x"], event, tags="vip")
    put_on_hold(store, "tag vip")
    claim(store)
    store.run(release_hold("tag vip"))
    assert store.client.zscore("expirebridge:lanes", "line=x") == 3
    assert store.run(reconciling.sweep(Settings())).mended == 0


@pytest.mark.parametrize("spread", [0, 0.001])
def test_a_slot_that_is_freed_while_a_hold_lets_go_is_not_given_past_it(
    store: Store, spread: float
) -> None:
    """The release comes to 100 tasks; the slot is freed before any claim or sweep goes on."""
    store.run(declare_limits("dd", LIMITS))
    lanes = [f"e{n:03}" for n in range(MANY)]
    make(store, lanes, 1, tags="vip")
    put_on_hold(store, "tag vip")
    while claim(store).parked:
        pass
    make(store, lanes[-1:], 2)
    make(store, lanes[-1:], 3)
    ran, late = f"{lanes[-1]}-2", f"{lanes[-1]}-3"
    assert [task.id for task in claim(store).tasks] == [ran]
    assert claim(store).tasks == []
    store.run(release_hold("tag vip", spread=spread))
    settle(store, Settlement(ran, "t", "succeeded"))
    found = all_claimed(store)
    assert len(found) == MANY + 1, "no sweep was needed"
    assert found.index(f"{lanes[-1]}-1") < found.index(late)


def test_a_task_that_a_hold_has_yet_to_let_go_gives_its_place_to_the_next(store: Store) -> None:
    store.run(declare_limits("dd", LIMITS))
    lanes = [f"e{n:03}" for n in range(MANY)]
    make(store, lanes, 1, tags="vip")
    put_on_hold(store, "tag vip")
    while claim(store).parked:
        pass
    make(store, lanes[-1:], 2)
    make(store, lanes[-1:], 3)
    assert len(claim(store).tasks) == 1
    claim(store)
    store.run(release_hold("tag vip", spread=3600))
    settle(store, Settlement(f"{lanes[-1]}-2", "t", "succeeded"))
    store.run(producing.cancel([f"{lanes[-1]}-1"], keep=60))
    assert f"{lanes[-1]}-3" in all_claimed(store)


def test_one_that_is_let_go_later_keeps_its_lane_in_order(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("dd", LIMITS))
    make(store, ["x", "y"], 1)
    make(store, ["x", "y"], 2)
    put_on_hold(store, "func step.run")
    claim(store)
    store.run(release_hold("func step.run", spread=3600))
    make(store, ["y"], 3, func="step.walk")
    assert begun(store) == ["x-1", "x-2"]
    store.run(reconciling.sweep(Settings()))
    assert begun(store) == []
    store.run(producing.run_now("y-1"))
    assert begun(store) == ["y-1", "y-2", "y-3"]
    assert client.keys("expirebridge:order:*") == client.keys("expirebridge:lane*") == []


@pytest.mark.parametrize("wait", ["on hold", "paused", "put off"])
def test_a_failed_one_that_waits_to_run_again_keeps_its_lane(store: Store, wait: str) -> None:
    store.run(declare_limits("dd", LIMITS))
    make(store, ["x"], 1, tags="vip")
    make(store, ["x"], 2)
    claim(store)
    settle(store, Settlement("x-1", "t", "failed"))
    store.run(producing.run_now("x-1"))
    if wait == "on hold":
        put_on_hold(store, "tag vip")
    elif wait == "paused":
        store.run(producing.pause(["x-1"]))
    else:
        reschedule(store, "x-1", 60_000)
    assert begun(store) == []
    store.run(release_hold("tag vip"))
    store.run(producing.run_now("x-1"))
    assert begun(store) == ["x-1", "x-2"]


def test_what_is_still_on_hold_keeps_nobody_waiting(store: Store, client: redis.Redis) -> None:
    store.run(declare_limits("dd", LIMITS))
    make(store, ["x"], 1, tags="vip")
    put_on_hold(store, "tag vip")
    claim(store)
    make(store, ["x"], 2)
    assert begun(store) == ["x-2"]
    store.run(producing.cancel(["x-1"], keep=60))
    assert client.keys("expirebridge:order:*") == []


def test_a_place_in_an_order_that_nobody_has_keeps_nobody_waiting(
    store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("dd", LIMITS))
    client.zadd("expirebridge:order:line=x", {"hold func step.run\ngone": 0, "garbage": 0})
    make(store, ["x"], 1)
    assert begun(store) == ["x-1"]
