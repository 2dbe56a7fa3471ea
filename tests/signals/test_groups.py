"""Signals for the members of groups, and for their follow-ups."""

from typing import Any

import pytest
import redis

from expirebridge import Bridge, Change, Group, GroupDiffers, GroupState, State, Then
from expirebridge.store.client import Store
from tests.signals.steps import end, read, taken

pytestmark = pytest.mark.servers("oldest")

ITEM: dict[str, Any] = {
    "func": "orders.cancel", "args": [42], "delay": "1h", "on_signal": "orders.ship"
}  # fmt: skip
THEN = Then("orders.close", [7], on_signal="orders.open")


def group(bridge: Bridge) -> Group:
    found = bridge.get_group("g")
    assert found is not None
    return found


def test_members_count_whichever_function_runs(bridge: Bridge, store: Store) -> None:
    bridge.make_group("g", [ITEM, ITEM, ITEM], then=THEN)
    assert bridge.signal("g@g0", 7) is Change.SIGNALLED
    bridge.run_now("g@g1")
    assert taken(store) == {"g@g0": "orders.ship", "g@g1": "orders.cancel"}
    assert bridge.signal("g@g1") is Change.RUNNING
    end(store, "g@g0", "g@g1")
    assert bridge.signal("g@g0", 7) is Change.SIGNALLED
    assert (group(bridge).left, group(bridge).succeeded) == (1, 2)
    bridge.cancel("g@g2")
    assert bridge.signal("g@g2") is Change.FINISHED
    assert group(bridge).state is GroupState.ENDED
    assert taken(store) == {"g@then": "orders.close"}


def test_a_follow_up_is_signalled_while_it_waits_for_its_group(
    bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    bridge.make_group("g", [ITEM], then=Then("orders.close", [7], "1h", on_signal="orders.open"))
    assert bridge.signal("g@then", 7) is Change.SIGNALLED
    assert read(bridge, "g@then").state is State.PAUSED
    assert client.keys("g@then:*") == [b"g@then:?orders.open?[7]"]
    bridge.cancel("g@g0")
    # Its delay is that of the deadline.
    assert taken(store) == {"g@then": "orders.open"}


def test_a_follow_up_is_signalled_between_the_end_of_its_group_and_its_deadline(
    bridge: Bridge, store: Store
) -> None:
    bridge.make_group("g", [ITEM], then=Then("orders.close", [7], "1h", on_signal="orders.open"))
    bridge.cancel("g@g0")
    assert taken(store) == {}
    assert bridge.signal("g@then", 7) is Change.SIGNALLED
    assert taken(store) == {"g@then": "orders.open"}
    end(store, "g@then")
    assert bridge.signal("g@then", 7) is Change.SIGNALLED


def test_the_same_group_again_is_compared_with_the_second_functions(bridge: Bridge) -> None:
    bridge.make_group("g", [ITEM], then=THEN)
    bridge.signal("g@g0")
    assert bridge.make_group("g", [ITEM], then=THEN).total == 1
    assert read(bridge, "g@g0").func == "orders.ship"
    with pytest.raises(GroupDiffers):
        bridge.make_group("g", [ITEM | {"on_signal": "orders.keep"}], then=THEN)
    with pytest.raises(GroupDiffers):
        bridge.make_group("g", [ITEM], then=Then("orders.close", [7]))


def test_a_cancelled_group_cancels_members_that_were_signalled(
    bridge: Bridge, store: Store
) -> None:
    bridge.make_group("g", [ITEM, ITEM], then=THEN)
    bridge.signal("g@g0")
    assert bridge.cancel_group("g").state is GroupState.CANCELLED
    assert taken(store) == {}
    assert bridge.signal("g@g1") is Change.FINISHED
    assert bridge.signal("g@then") is Change.FINISHED
