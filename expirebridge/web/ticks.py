"""Finds the tasks of one series, among all others."""

from dataclasses import dataclass

from expirebridge.model.task import State, Task
from expirebridge.producer.operations import Operations
from expirebridge.store.commands import PARTITIONS, Steps
from expirebridge.web.looked_for import lean
from expirebridge.web.spread_search import ids_in

MOST_TICKS = 20
"""Rows of a page of one series."""
MOST_LOOKED_AT = 10_000
"""Ids of each state that are looked at, at most: those that are due next, or ended last."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """Tasks of a series, the latest tick first."""

    tasks: list[Task]
    are_all_seen: bool
    """Whether all ids were looked at, or as many were found as a page shows."""


def series_of_tick(task: Task) -> str | None:
    """The id of the series that made a task; None if none did."""
    return None if task.tick is None else task.id.rpartition("@")[0] or None


def ticks_of(series: str, operations: Operations) -> Steps[Ticks]:
    """Find the latest ticks of a series that are known; a record is read of each only."""
    count = yield from PARTITIONS
    tasks: dict[str, Task] = {}
    all_seen = True
    for state in State:
        for number in range(count):
            most = max(MOST_LOOKED_AT // count, 1)
            ids, _, seen = yield from ids_in(f"{series}@", state, number, most, MOST_TICKS)
            all_seen &= seen or len(ids) >= MOST_TICKS
            for id in ids:
                task = yield from operations.get(id)
                # The id of another series may begin so as well.
                if task is not None and series_of_tick(task) == series:
                    tasks[id] = lean(task)
    latest = sorted(tasks.values(), key=lambda task: task.tick or task.due, reverse=True)
    return Ticks(latest[:MOST_TICKS], all_seen)
