"""The calls that look at tasks: one, pages of them, and how many there are."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from expirebridge.store.record_values import text
from expirebridge.store.task_records import task_from
from expirebridge.task.calls.call import CHUNK, Command, Everywhere, OfId, milliseconds, script
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.listings import Counts, Moving
from expirebridge.task.task import State, Task


def get(id: str, key_ring: KeyRing | None = None) -> Command[Task | None]:
    """Read one task; None if there is none of that id."""

    def read(row: Any) -> Task | None:
        return task_from(row, key_ring) if row else None

    return script("get", id, read=read, route=OfId(id))


class TaskPage(NamedTuple):
    """A part of a listing."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    examined: int
    tasks: list[Task]


def list_page(
    *,
    state: State | None = None,
    func: str | None = None,
    tag: str | None = None,
    group: str | None = None,
    cursor: str,
    count: int = CHUNK,
    key_ring: KeyRing | None = None,
) -> Command[TaskPage]:
    """Read the tasks of one state, tag or group, a page at a time; see list.lua."""
    return script(
        "list", state or "", func or "", tag or "", cursor, count, group or "",
        read=lambda reply: TaskPage(
            reply[0].decode(), reply[1], [task_from(row, key_ring) for row in reply[2:]]
        ),
    )  # fmt: skip


COUNTED = (
    "pending", "waiting", "paused", "running", "succeeded", "failed", "cancelled", "overdue",
    "listeners",
)  # fmt: skip
"""The counters, in the order of the script's reply."""


def count(lease: float) -> Command[Counts]:
    """Count the tasks in each state, and the listeners with a heartbeat within `lease` seconds."""
    return script(
        "count",
        milliseconds(lease),
        read=_read_counts,
        route=Everywhere(_joined),
    )


def _read_counts(reply: Sequence[Any]) -> Counts:
    counted = dict(zip(COUNTED, reply[: len(COUNTED)], strict=True))
    return Counts(**counted, moving=_read_moving(reply[len(COUNTED) :]))


def _read_moving(words: Sequence[Any]) -> Moving | None:
    if not words:
        return None
    way, series, items, idle = words
    return Moving(
        way=text(way), series=series, on_their_way=items, idle=idle / 1000 if idle >= 0 else None
    )


def no_counts() -> Counts:
    """The counts of nothing."""
    numbers: dict[str, Any] = dict.fromkeys(COUNTED, 0)
    return Counts(**numbers)


def _joined(counts: Sequence[Counts]) -> Counts:
    """Add up the tasks of all partitions; each listener sends heartbeats to all of them."""
    sums = {name: sum(getattr(each, name) for each in counts) for name in COUNTED}
    sums["listeners"] = max(each.listeners for each in counts)
    return Counts(**sums, moving=_joined_moves([each.moving for each in counts if each.moving]))


def _joined_moves(moves: Sequence[Moving]) -> Moving | None:
    if not moves:
        return None
    idle = [each.idle for each in moves if each.idle is not None]
    return Moving(
        way=moves[0].way,
        series=sum(each.series for each in moves),
        on_their_way=sum(each.on_their_way for each in moves),
        idle=min(idle, default=None),
    )
