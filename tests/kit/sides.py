"""Two databases, from one to the other of which tasks are moved."""

from typing import Any

import redis

from expirebridge import Bridge, State
from expirebridge.cli.stats import store_of
from expirebridge.moving.migrator import Migrator
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, reconciling
from expirebridge.task.partitions import PartitionLayout
from tests.kit.invoked import end_due_tasks


class Side:
    """One of the two databases."""

    def __init__(self, url: str, count: int) -> None:
        self.url = url
        self.settings = Settings(url=url)
        self.client = redis.Redis.from_url(url)
        self.bridge = Bridge(url)
        self.bridge.create_partitions(count)
        self.store = store_of(self.settings)
        self.layout = PartitionLayout("expirebridge", count)
        self.parts = [
            Store(self.client, prefix=prefix, partitions=count) for prefix in self.layout.prefixes()
        ]

    def beat(self, name: str = "someone") -> None:
        """Let a listener beat in each partition."""
        for part in self.parts:
            part.run(claiming.heartbeat(name, self.settings.lease, [], code="abc"))

    def leave(self, name: str = "someone") -> None:
        """Let it stop."""
        for part in self.parts:
            part.run(claiming.leave(name))

    def run_due(self, outcome: str = "succeeded", **more: Any) -> list[str]:
        """Claim all that is due in every partition, and settle it."""
        return [id for part in self.parts for id in end_due_tasks(part, outcome, "x", **more)]

    def sweep(self) -> None:
        """Make the pass of a listener in each partition."""
        for part in self.parts:
            part.run(reconciling.sweep(self.settings))

    def close(self) -> None:
        self.bridge.close()
        self.store.close()
        self.client.close()

    def record(self, id: str) -> dict[Any, Any]:
        prefix = self.layout.prefix_of(self.layout.partition_of(id))
        return self.client.hgetall(f"{prefix}:task:{id}")

    def ids(self, state: State) -> set[str]:
        return {task.id for task in self.bridge.list(state=state, limit=10_000).tasks}


Sides = tuple[Side, Side]


def migrator_of(old: Side, new: Side) -> Migrator:
    return Migrator(old.store, new.store, old.settings, new.settings)


def move(old: Side, new: Side) -> Migrator:
    """Move all that can go."""
    migrator = migrator_of(old, new)
    migrator.begin()
    migrator.run_pass()
    return migrator
