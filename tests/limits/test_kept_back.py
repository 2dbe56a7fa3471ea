"""What numbers and the hold of all tasks meet: each kind of task waits for them, and goes on."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import redis

from expirebridge import Bridge, Then
from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, reconciling
from expirebridge.task.calls.claiming import Settlement
from tests.kit.private_keys import K1
from tests.kit.series import due_series
from tests.kit.steps import PREFIX, server_ms, settle

pytestmark = pytest.mark.servers("oldest")

LIMITS = [("f mail.send", b'[["each",0,"to",null]]'), ("l each", b'{"most":5}')]
KINDS = (
    "plain", "tick", "member", "follow-up", "signalled in time", "row", "sealed", "large", "again",
    "retried", "lapsed",
)  # fmt: skip


def taken(store: Store) -> list[str]:
    call = claiming.claim("t", Settings(), places=9, idle=True, gate=0)
    return [task.id for task in store.run(call).tasks]


def sweep(store: Store) -> None:
    while store.run(reconciling.sweep(Settings())).more:
        pass


def make(kind: str, bridge: Bridge, store: Store, client: redis.Redis, url: str) -> None:
    """Make a due task of a kind, whose lane is `each=1`."""
    match kind:
        case "tick":
            due_series(store, client)
        case "member":
            bridge.make_group("g", [{"func": "mail.send", "args": [1], "delay": 0}], close=False)
        case "follow-up":
            first = {"func": "other.call", "delay": 0}
            bridge.make_group("g", [first], then=Then("mail.send", [1]))
            [id] = taken(store)
            settle(store, Settlement(id, "t", "succeeded"))
        case "signalled in time":
            bridge.make_task("other.call", [1], "1h", id="a", on_signal="mail.send")
            bridge.signal("a")
        case "row":
            bridge.make_task("mail.send", [1], 0, id="a")
            client.hset(f"{PREFIX}:task:a", "ledger", "1 1")
        case "sealed":
            with Bridge(url, keys=K1) as sealing:
                sealing.make_task("mail.send", [1], 0, id="a")
        case "large":
            bridge.make_task("mail.send", [1, "x" * 50_000], 0, id="a")
        case "again":
            bridge.make_task("mail.send", [1], 0, id="a")
            assert taken(store) == ["a"]
            bridge.make_task("mail.send", [1], 0, id="a", if_exists="replace")
            settle(store, Settlement("a", "t", "succeeded"))
        case "retried":
            bridge.make_task("mail.send", [1], 0, id="a")
            assert taken(store) == ["a"]
            settle(store, Settlement("a", "t", "retry", 0))
        case "lapsed":
            bridge.make_task("mail.send", [1], 0, id="a")
            assert taken(store) == ["a"]
            client.zadd(f"{PREFIX}:running", {"a": 0})
            client.zadd(f"{PREFIX}:listeners", {"another": server_ms(client)})
            sweep(store)
        case _:
            bridge.make_task("mail.send", [1], 0, id="a")


def test_a_process_that_has_done_nothing_else_holds_all_and_sets_a_number(
    url: str, store: Store, client: redis.Redis
) -> None:
    store.run(declare_limits("aa", LIMITS))
    for call in ("hold(all=True)", "set_limit('each', 7)"):
        code = f"import expirebridge; expirebridge.Bridge({url!r}).{call}"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert client.hkeys(f"{PREFIX}:holds") == [b"all"]
    assert client.hgetall(f"{PREFIX}:numbers") == {b"each": b"7"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_of_each_kind_waits_for_a_number_and_goes_on(
    kind: str, bridge: Bridge, store: Store, client: redis.Redis, url: str
) -> None:
    store.run(declare_limits("aa", LIMITS))
    make(kind, bridge, store, client, url)
    client.hset(f"{PREFIX}:numbers", "each 1", 0)
    assert taken(store) == []
    sweep(store)
    assert client.zcard(f"{PREFIX}:waiting") == 1
    bridge.set_limit("each", 2, value=1)
    assert client.zcard(f"{PREFIX}:waiting") == 0
    assert len(taken(store)) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_limited", [True, False])
def test_a_task_of_each_kind_waits_for_the_hold_of_all_and_goes_on(
    kind: str, is_limited: bool, bridge: Bridge, store: Store, client: redis.Redis, url: str
) -> None:
    store.run(declare_limits("aa", LIMITS if is_limited else []))
    make(kind, bridge, store, client, url)
    bridge.hold(all=True)
    assert taken(store) == []
    sweep(store)
    assert client.zcard(f"{PREFIX}:waiting") == 1
    assert bridge.release(all=True, spread="10m")
    assert client.zcard(f"{PREFIX}:waiting") == 0
    assert len(taken(store)) == 1


Change = Callable[[Bridge], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "cancel": (lambda bridge: bridge.cancel("a"), "cancelled"),
    "pause": (lambda bridge: bridge.pause("a"), "paused"),
    "put off": (lambda bridge: bridge.put_off("a", "1h"), "pending"),
    "reschedule": (lambda bridge: bridge.reschedule("a", "1h"), "pending"),
    "edit": (lambda bridge: bridge.edit("a", [2]), "waiting"),
    "run now": (lambda bridge: bridge.run_now("a"), "waiting"),
    "signal": (lambda bridge: bridge.signal("a"), "pending"),
    "make again": (
        lambda bridge: bridge.make_task("mail.send", [2], 3600, id="a", if_exists="replace"),
        "pending",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_waits_for_the_hold_of_all_can_be_changed(
    change: str, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    bridge.make_task("mail.send", [1], 0, id="a", on_signal="orders.ship")
    bridge.hold(all=True)
    assert taken(store) == []
    call, state = CHANGES[change]
    call(bridge)
    task = bridge.get("a")
    assert task is not None
    assert task.state == state
    assert taken(store) == []
    bridge.release(all=True)
    sweep(store)
    assert client.exists(f"{PREFIX}:queue:hold all", f"{PREFIX}:held") == 0
