"""How many tasks signals and deadlines have decided, for Prometheus."""

import pytest
import redis

from expirebridge import Bridge
from expirebridge.observe.metrics import Metrics
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.steps import claim

pytestmark = pytest.mark.servers("oldest")

NAMES = ("expirebridge_signalled_total", "expirebridge_deadlines_passed_total")


def counted(url: str) -> list[float | None]:
    """What a scrape says of both."""
    counting = Metrics()
    counting.watch(Settings(url=url))
    return [counting.registry.get_sample_value(name) for name in NAMES]


def make(bridge: Bridge, *ids: str, delay: str = "1h") -> None:
    for id in ids:
        bridge.make_task("orders.cancel", [42], delay, id=id, on_signal="orders.ship")


def test_both_are_counted(url: str, bridge: Bridge, store: Store) -> None:
    make(bridge, "a", "b", "c")
    assert counted(url) == [0, 0]
    for _ in range(2):  # the same signal again decides nothing
        bridge.signal("a", by="psp")
    bridge.signal("b", by="psp")
    bridge.run_now("c")
    make(bridge, "d", delay="0s")
    assert len(claim(store).tasks) == 4
    assert counted(url) == [2, 2]


def test_a_database_without_signals_has_no_such_numbers(
    url: str, bridge: Bridge, client: redis.Redis
) -> None:
    bridge.make_task("orders.cancel", [42], "1h")
    client.hset("expirebridge:signals", "signalled", 7)
    assert counted(url) == [None, None]


def test_those_of_all_partitions_are_added_up(url: str, bridge: Bridge) -> None:
    bridge.create_partitions(4)
    ids = [
        task.id
        for task in bridge.make_tasks(
            [{"func": "orders.cancel", "delay": "1h", "on_signal": "orders.ship"}] * 20
        )
    ]
    assert len({id.partition("@")[0] for id in ids}) > 1
    for id in ids[:10]:
        bridge.signal(id)
    assert counted(url) == [10, 0]


@pytest.mark.parametrize("written", ["text", "hash"])
def test_what_another_client_wrote_there_stops_no_scrape(
    written: str, url: str, bridge: Bridge, client: redis.Redis
) -> None:
    make(bridge, "a")
    client.delete("expirebridge:signals")
    if written == "text":
        client.set("expirebridge:signals", "x")
    else:
        client.hset("expirebridge:signals", mapping={"signalled": "x", "passed": "-1.5"})
    assert counted(url) == ([None, None] if written == "text" else [0, 0])
