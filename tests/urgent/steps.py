"""What several tests of urgent tasks do: make some behind others, and see which a claim takes."""

from collections.abc import Sequence
from typing import Any

import redis

from expirebridge import Bridge, Task
from expirebridge.store.client import Store
from expirebridge.task.calls.claiming import Settlement
from tests.kit.steps import PREFIX, claim, settle

FUNC = "mail.send"


def make(bridge: Bridge, id: str, delay: float = 0, **options: Any) -> Task:
    """Make an urgent task, if nothing else is said."""
    return bridge.make_task(FUNC, [1], delay, id=id, **{"urgent": True, **options})


def backlog(bridge: Bridge, count: int = 5) -> Sequence[str]:
    """Make tasks that are due, and not urgent."""
    ids = [f"old{number}" for number in range(count)]
    bridge.make_tasks([{"func": FUNC, "args": [1], "delay": 0, "id": id} for id in ids])
    return ids


def taken(store: Store, places: int = 1, token: str = "t") -> list[str]:
    """The ids that a claim takes, the first before."""
    return [task.id for task in claim(store, token, places=places).tasks]


def end(store: Store, *ids: str, how: str = "succeeded") -> None:
    """Settle attempts of the last claim."""
    settle(store, *(Settlement(id, "t", how) for id in ids))


def index_of(client: redis.Redis) -> dict[str, float]:
    """The urgent tasks that are pending, with their scores."""
    found: Any = client.zrange(f"{PREFIX}:urgent", 0, -1, withscores=True)
    return {id.decode(): due for id, due in found}
