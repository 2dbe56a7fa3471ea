"""Why a task that waits for a signal has not run: both are said, what it waits for and that."""

import re

import pytest
import redis

from expirebridge import Bridge, Change, Reason, State
from expirebridge.limits.calls import declare_limits
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.fleet import digest_of
from tests.kit.invoked import invoke_json
from tests.kit.steps import claim, settle

pytestmark = pytest.mark.servers("oldest")

INSTEAD = "; a signal before it starts runs orders.ship"


def make(bridge: Bridge, id: str = "pay-42", delay: float = 3600) -> bytes:
    return bridge.make_task("orders.cancel", [42], delay, id=id, on_signal="orders.ship").key


def why(bridge: Bridge, id: str = "pay-42") -> Reason:
    reason = bridge.why(id)
    assert reason is not None
    return reason


def test_it_waits_for_a_signal_until_it_is_due(bridge: Bridge, url: str) -> None:
    make(bridge)
    reason = why(bridge)
    assert (reason.state, reason.code) == (State.PENDING, "signal")
    assert re.fullmatch(
        r"waits for a signal until [\d-]+ [\d:]+ UTC \(in (1h|59m \d+s)\): "
        "then orders.ship, else orders.cancel",
        reason.text,
    )
    task = bridge.get("pay-42")
    assert task is not None
    assert (reason.since, reason.remedy) == (task.created, "expirebridge signal pay-42")
    assert invoke_json("why", "pay-42", url=url)["code"] == "signal"


def test_once_it_was_signalled_it_waits_for_none(bridge: Bridge) -> None:
    make(bridge)
    bridge.pause("pay-42")
    bridge.signal("pay-42")
    assert why(bridge).text == "paused, 0ms before it is due"
    bridge.resume("pay-42")
    assert re.fullmatch(r"due for \S+, but no listener sends heartbeats", why(bridge).text)


def test_what_else_keeps_it_is_said_first(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    code = digest_of({"orders.cancel": "(order)"})
    store.run(claiming.heartbeat("me", 10, [], code=f"{code} =10", functions=1))
    store.run(fleet.declare(code, {"orders.cancel": "(order)"}))
    make(bridge, "paused")
    bridge.pause("paused")
    client.persist(make(bridge, "no-ttl"))
    client.expire(make(bridge, "put-off"), 7200)
    make(bridge, "due", 0)
    codes = {}
    for id in ("paused", "no-ttl", "put-off", "due"):
        reason = why(bridge, id)
        codes[id] = reason.code
        assert reason.text.endswith(INSTEAD), reason.text
        assert "signal " not in reason.remedy
    assert codes == {"paused": "paused", "no-ttl": "no-ttl", "put-off": "put-off", "due": "due"}


def test_on_hold_or_without_a_slot_it_can_be_signalled_and_why_says_so(
    bridge: Bridge, store: Store
) -> None:
    fields = [("f orders.cancel", b'[["m",0,"order",null]]'), ("l m", b'{"most":1}')]
    store.run(declare_limits("aa", fields))
    bridge.make_task("orders.cancel", [42], 0, id="first")
    assert [task.id for task in claim(store).tasks] == ["first"]
    make(bridge, delay=0)
    assert claim(store).tasks == []
    reason = why(bridge)
    assert (reason.state, reason.code) == (State.WAITING, "slot")
    assert reason.text.endswith(f"taken by first (running){INSTEAD}")
    bridge.hold(func="orders.cancel", by="ann")
    make(bridge, "held", 0)
    claim(store)
    text = f"on hold: func orders.cancel, by ann, 1st in line{INSTEAD}"
    assert (why(bridge, "held").code, why(bridge, "held").text) == ("hold", text)
    assert bridge.signal("held") is Change.SIGNALLED


def test_the_first_claim_has_decided(bridge: Bridge, store: Store) -> None:
    make(bridge, delay=0)
    claim(store)
    assert "signal" not in why(bridge).text
    settle(store, Settlement("pay-42", "t", "retry", 60.0, "it failed"))
    assert "signal" not in why(bridge).text
    make(bridge, "ended")
    bridge.cancel("ended")
    assert "signal" not in why(bridge, "ended").text
