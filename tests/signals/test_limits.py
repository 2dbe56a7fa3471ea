"""Signalled tasks in lanes and on hold: they leave those of the function that was lost."""

from collections.abc import Sequence

import pytest
import redis

from expirebridge import Bridge, Change, State
from expirebridge.limits.calls import declare_limits
from expirebridge.store.client import Store
from expirebridge.store.record_values import text
from tests.kit.steps import PREFIX, claim
from tests.signals.steps import end, make, read, taken

pytestmark = pytest.mark.servers("oldest")

CANCEL, SHIP = "f orders.cancel", "f orders.ship"
KEPT = (
    "lane:", "lanes", "queue:", "turns:", "shares:", "order:", "grants", "waits", "waiting", "held",
    "unserved",
)  # fmt: skip
ONE_OF = {"limit": b'{"most":1}', "ordered": b'{"most":1,"ordered":true}'}


def declare(store: Store, *fields: tuple[str, bytes]) -> None:
    store.run(declare_limits("aa", list(fields)))


def lanes(client: redis.Redis) -> set[str]:
    """All that is kept of lanes, but for what is declared, and when a rate starts the next."""
    names = [text(name).removeprefix(f"{PREFIX}:") for name in client.scan_iter(f"{PREFIX}:*")]
    return {name for name in names if name.startswith(KEPT)}


@pytest.mark.parametrize("kind", ONE_OF)
def test_what_waits_for_a_slot_is_signalled_and_waits_no_longer(
    kind: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, (CANCEL, b'[["c"]]'), ("l c", ONE_OF[kind]))
    make(bridge, "first", "0s", on_signal=None)
    assert taken(store) == {"first": "orders.cancel"}
    make(bridge, "a", "0s")
    make(bridge, "b", "0s")
    assert taken(store) == {}
    assert read(bridge).state is State.WAITING
    assert bridge.signal("a") is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}
    end(store, "a", "first")
    assert taken(store) == {"b": "orders.cancel"}
    end(store, "b")
    assert lanes(client) == set()


@pytest.mark.parametrize("kind", ONE_OF)
def test_one_with_a_slot_that_was_granted_gives_it_to_the_next(
    kind: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, (CANCEL, b'[["c"]]'), ("l c", ONE_OF[kind]))
    make(bridge, "first", "0s", on_signal=None)
    taken(store)
    make(bridge, "a", "0s")
    make(bridge, "b", "0s")
    assert taken(store) == {}
    end(store, "first")
    assert client.hget(f"{PREFIX}:task:a", "slots") == b"c"
    assert bridge.signal("a") is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship", "b": "orders.cancel"}
    end(store, "a", "b")
    assert lanes(client) == set()


@pytest.mark.parametrize("kind", ONE_OF)
def test_the_second_function_has_its_own_lane(kind: str, bridge: Bridge, store: Store) -> None:
    declare(store, (SHIP, b'[["s"]]'), ("l s", ONE_OF[kind]))
    for id in ("a", "b"):
        make(bridge, id)
        bridge.signal(id)
    assert taken(store) == {"a": "orders.ship"}
    assert read(bridge, "b").state is State.WAITING
    assert bridge.signal("b") is Change.SIGNALLED
    end(store, "a")
    assert taken(store) == {"b": "orders.ship"}


@pytest.mark.parametrize("kind", ONE_OF)
def test_in_a_lane_of_both_functions_it_takes_its_place_by_when_it_was_signalled(
    kind: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, (CANCEL, b'[["x"]]'), (SHIP, b'[["x"]]'), ("l x", ONE_OF[kind]))
    make(bridge, "first", "0s", on_signal=None)
    taken(store)
    for id in ("z", "b"):  # of two in one millisecond, the first by its id is the first
        make(bridge, id, "0s")
        assert taken(store) == {}
    assert bridge.signal("z") is Change.SIGNALLED
    assert taken(store) == {}
    for id, func in (("first", ""), ("b", "orders.cancel"), ("z", "orders.ship")):
        if func:
            assert taken(store) == {id: func}
        end(store, id)
    assert lanes(client) == set()


def test_of_two_lanes_it_leaves_both_queue_and_slot(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    both = b'[["x"],["c"]]'
    declare(store, (CANCEL, both), ("l x", b'{"most":1}'), ("l c", b'{"most":1}'),
            ("f mail.send", b'[["c"]]'), ("f mail.copy", b'[["x"]]'))  # fmt: skip
    make(bridge, "c", "0s", func="mail.send", on_signal=None)
    taken(store)
    make(bridge, "a", "0s")
    assert taken(store) == {}
    make(bridge, "x", "0s", func="mail.copy", on_signal=None)
    assert taken(store) == {}
    assert client.hget(f"{PREFIX}:task:a", "slots") == b"x"
    bridge.signal("a")
    assert taken(store) == {"a": "orders.ship", "x": "mail.copy"}
    end(store, "a", "x", "c")
    assert lanes(client) == set()


def test_a_rate_that_it_waited_for_does_not_hold_it(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, (CANCEL, b'[["r"]]'), ("l r", b'{"starts":1,"every":3600000000,"burst":0}'))
    make(bridge, "first", "0s", on_signal=None)
    assert taken(store) == {"first": "orders.cancel"}
    make(bridge, "a", "0s")
    make(bridge, "b", "0s")
    assert taken(store) == {}
    first_due = client.zscore(f"{PREFIX}:pending", "a")
    assert bridge.signal("a") is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}
    end(store, "a", "first")
    # The start that it was given is that of the next one.
    assert client.zscore(f"{PREFIX}:pending", "b") == pytest.approx(first_due, abs=1000)


def test_the_turn_that_it_had_in_a_rate_is_that_of_the_next(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    declare(store, (CANCEL, b'[["r"],["c"]]'), ("l r", b'{"starts":1,"every":1000,"burst":0}'),
            ("l c", b'{"most":1}'), ("f mail.send", b'[["c"]]'))  # fmt: skip
    make(bridge, "c", "0s", func="mail.send", on_signal=None)
    assert taken(store) == {"c": "mail.send"}
    for id in ("a", "b"):
        make(bridge, id, "0s")
        assert taken(store) == {}
    assert client.hexists(f"{PREFIX}:task:a", "turn")
    assert bridge.signal("a") is Change.SIGNALLED
    assert not client.hexists(f"{PREFIX}:task:a", "turn")
    found = {**taken(store)}
    end(store, "a", "c")
    for _ in range(1000):  # until the rate has its next start
        if "b" in found:
            break
        found |= taken(store)
    assert found == {"a": "orders.ship", "b": "orders.cancel"}
    end(store, "b")
    assert lanes(client) == set()


def test_a_start_of_the_second_function_s_rate_is_counted(bridge: Bridge, store: Store) -> None:
    declare(store, (SHIP, b'[["r"]]'), ("l r", b'{"starts":1,"every":3600000000,"burst":0}'))
    for id in ("a", "b"):
        make(bridge, id)
        bridge.signal(id)
    assert taken(store) == {"a": "orders.ship"}
    assert read(bridge, "b").state in {State.WAITING, State.PENDING}
    assert taken(store) == {}


def test_a_fair_lane_goes_on_without_it(bridge: Bridge, store: Store, client: redis.Redis) -> None:
    declare(store, (CANCEL, b'[["f",-1,null,null,-1,"tenant",null]]'),
            ("l f", b'{"most":1,"fair":true}'))  # fmt: skip
    tenants: Sequence[str] = ("one", "two")
    make(bridge, "first", "0s", kwargs={"tenant": "one"}, on_signal=None)
    taken(store)
    for tenant in tenants:
        for n in range(2):
            make(bridge, f"{tenant}{n}", "0s", kwargs={"tenant": tenant})
    assert taken(store) == {}
    assert bridge.signal("one0") is Change.SIGNALLED
    assert bridge.signal("two0") is Change.SIGNALLED
    assert taken(store) == {"one0": "orders.ship", "two0": "orders.ship"}
    end(store, "one0", "two0", "first")
    found = []
    while one := list(taken(store)):
        found += one
        end(store, *one)
    assert sorted(found) == ["one1", "two1"]
    assert lanes(client) == set()


def test_a_hold_of_the_lost_function_does_not_hold_it(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    bridge.hold(func="orders.cancel")
    make(bridge, "a", "0s")
    assert taken(store) == {}
    assert bridge.signal("a") is Change.SIGNALLED
    assert taken(store) == {"a": "orders.ship"}
    [hold] = bridge.holds()
    assert hold.waiting == 0
    end(store, "a")
    bridge.release(func="orders.cancel")
    assert lanes(client) == set()


def test_a_hold_of_the_second_function_holds_it_once_it_is_signalled(
    bridge: Bridge, store: Store
) -> None:
    bridge.hold(func="orders.ship")
    make(bridge, "a")
    bridge.signal("a", 7)
    assert taken(store) == {}
    assert bridge.signal("a", 7) is Change.SIGNALLED
    bridge.release(func="orders.ship")
    assert taken(store) == {"a": "orders.ship"}


def test_a_hold_by_tag_holds_it_before_and_after(bridge: Bridge, store: Store) -> None:
    bridge.hold(tag="shop")
    make(bridge, "a", "0s", tags=["shop"])
    assert taken(store) == {}
    assert bridge.signal("a") is Change.SIGNALLED
    assert taken(store) == {}
    assert read(bridge).state is State.WAITING
    bridge.release(tag="shop")
    assert taken(store) == {"a": "orders.ship"}


@pytest.mark.parametrize("lane", ["c", "x"])
def test_nobody_in_an_ordered_lane_waits_for_one_that_left_a_hold(
    lane: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    ordered = b'{"most":1,"ordered":true}'
    declare(store, (CANCEL, f'[["{lane}"]]'.encode()), (SHIP, b'[["x"]]'), ("l c", ordered),
            ("l x", ordered))  # fmt: skip
    bridge.hold(func="orders.cancel")
    for id in ("a", "b"):
        make(bridge, id, "0s")
    assert taken(store) == {}
    assert client.zcard(f"{PREFIX}:order:{lane}") == 2
    assert bridge.signal("a") is Change.SIGNALLED
    assert client.zcard(f"{PREFIX}:order:{lane}") == 1
    assert taken(store) == {"a": "orders.ship"}
    end(store, "a")
    bridge.release(func="orders.cancel")
    assert taken(store) == {"b": "orders.cancel"}
    end(store, "b")
    assert lanes(client) == set()


def test_how_long_it_waited_before_the_signal_does_not_count(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    bridge.hold(func="orders.cancel")
    make(bridge, "a", "0s")
    assert taken(store) == {}
    client.hset(f"{PREFIX}:task:a", mapping={"parked": 1, "due": 1})
    client.zadd(f"{PREFIX}:waiting", {"a": 1})
    before = int(client.time()[0]) * 1000
    bridge.signal("a")
    [task] = claim(store).tasks
    assert task.due >= before
    assert (task.waited, task.held) == (0, 0)
