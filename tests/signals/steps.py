"""What several tests of signals do: make a task that waits for one, and see what a claim takes."""

from collections.abc import Mapping
from typing import Any

from expirebridge import Bridge, Task
from expirebridge.store.client import Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import claim, settle


def make(bridge: Bridge, id: str = "a", delay: str = "15m", **options: Any) -> Task:
    given = {"func": "orders.cancel", "args": [42], "on_signal": "orders.ship", **options}
    return bridge.make_task(**given, delay=delay, id=id)


def taken(store: Store) -> Mapping[str, str]:
    """What a claim takes: the function of each."""
    return {task.id: task.func for task in claim(store).tasks}


def end(store: Store, *ids: str, how: str = "succeeded") -> None:
    """Settle attempts of the last claim."""
    settle(store, *(Settlement(id, "t", how) for id in ids))


def read(bridge: Bridge, id: str = "a") -> Task:
    task = bridge.get(id)
    assert task is not None
    return task
