"""The call that reads a task, and what decides when it runs."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from expirebridge.limits.lanes import QueuePlace
from expirebridge.limits.replies import place_from
from expirebridge.sealing.key_ring import KeyRing
from expirebridge.store.record_values import moment, number, text, whole
from expirebridge.store.task_records import task_from
from expirebridge.task.calls.call import Command, OfId, rows_of, script
from expirebridge.task.task import Task, from_ms

NO_TTL, NO_TIMER = -1, -2
"""In place of the end of a timer, in ms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Circumstances:
    """A task, and what decides when it runs. Each value is that of some states alone."""

    task: Task
    now: datetime
    """The server's time."""
    looked_at: datetime | None
    """The task's score in the set of its state: while it runs, the end of its lease."""
    timer: int = NO_TIMER
    """The end of its timer in ms, or NO_TTL, or NO_TIMER."""
    watched: bool = False
    """True if beats put it off."""
    ahead: int = 0
    """How many pending tasks are due earlier."""
    granted: QueuePlace | None = None
    """Where a pending task was granted a slot, or a start of a rate."""
    dirty: int | None = None
    """Of a task of a ledger: how many rows its ledger has to write."""
    parked: datetime | None = None
    """Since when it waits."""
    arrival: int = 0
    """Of the rate for which it waits: when all its starts are made good, in microseconds."""
    rest: int = 0
    """The same, after `Busy`."""
    is_held: bool = False
    """True if the hold for which it waits is there, and has not ended."""
    moving: str | None = None
    """Where the tasks of this database go to, or come from, if none begins in ordered lanes."""
    holders: tuple[tuple[str, str], ...] = ()
    """Some of the tasks that have a slot of its lane, and their states: empty for one that is
    gone."""
    timeout: float | None = None
    """Its own timeout, in seconds."""
    cancel: bool = False
    """True if it was cancelled while it runs."""
    blocks: bool = False
    """True if it failed, and keeps others of its lane waiting."""


def read_circumstances(id: str, key_ring: KeyRing | None = None) -> Command[Circumstances | None]:
    """Read a task, and what decides when it runs; None if there is no such task."""
    read = partial(_read, key_ring=key_ring)
    return script("read_circumstances", id, read=read, route=OfId(id))


def _read(reply: Any, key_ring: KeyRing | None) -> Circumstances | None:
    if reply is None:
        return None
    row, score, now_us, granted, columns = reply
    pairs = [(text(name), value) for name, value in rows_of(columns, 2)]
    facts = dict(pairs)
    return Circumstances(
        task=task_from(row, key_ring),
        now=from_ms(now_us // 1000),
        looked_at=from_ms(score) if score >= 0 else None,
        timer=facts.get("timer", NO_TIMER),
        watched="ttl" in facts,
        ahead=facts.get("ahead", 0),
        granted=place_from(granted) if granted else None,
        dirty=facts.get("dirty"),
        parked=moment(facts.get("parked", b"")),
        arrival=facts.get("arrival", 0),
        rest=facts.get("rest", 0),
        is_held="held" in facts,
        moving=text(facts["moving"]) if "moving" in facts else None,
        holders=_holders(pairs),
        timeout=number(facts.get("timeout", b"")),
        cancel=whole(facts.get("cancel", b"")) == 1,
        blocks="slots" in facts,
    )


def _holders(pairs: list[tuple[str, Any]]) -> tuple[tuple[str, str], ...]:
    ids = [text(value) for name, value in pairs if name == "holder"]
    states = [text(value) for name, value in pairs if name == "is"]
    return tuple(sorted(zip(ids, states, strict=True)))
