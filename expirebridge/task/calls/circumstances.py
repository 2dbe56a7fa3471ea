"""The call that reads a task, and what decides when it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from expirebridge.store.record_values import moment, number, text, whole
from expirebridge.store.task_records import task_from
from expirebridge.task.calls.call import Command, OfId, rows_of, script
from expirebridge.task.history import HistoryEntry
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.task import State, Task, from_ms

NO_TTL, NO_TIMER = -1, -2
"""In place of the end of a timer, in ms."""
_ENDED = {"retry", "snoozed", "released", "unknown", "lapsed", "rearmed"}
"""How an attempt ends after which another one follows, in a task's history."""


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
    parked: datetime | None = None
    """Since when it waits."""
    is_held: bool = False
    """True if the hold for which it waits is there, and has not ended."""
    timeout: float | None = None
    """Its own timeout, in seconds."""
    cancel: bool = False
    """True if it was cancelled while it runs."""
    facts: Sequence[tuple[str, Any]] = ()
    """What capabilities keep of it, as the server has it: see read_circumstances.lua."""
    hides_arguments: bool = False
    """True if no reason may show its arguments, not even in the name of a lane."""

    @property
    def needs_listener(self) -> bool:
        """True if it is due, or its function is looked for again and again."""
        if self.task.state is not State.PENDING or self.timer == NO_TTL:
            return False
        ended = self.last_end
        is_unknown = ended is not None and ended.what == "unknown"
        return self.task.due <= self.now or is_unknown

    @property
    def is_put_off(self) -> bool:
        """True if a listener lacked what it takes, and it is tried again."""
        return self.needs_listener and self.task.due > self.now

    @property
    def last_end(self) -> HistoryEntry | None:
        """The end of the last attempt, if another one is to follow."""
        return next((one for one in reversed(self.task.history) if one.what in _ENDED), None)

    @property
    def last_move(self) -> HistoryEntry | None:
        """The last entry of its history but for edits of its arguments, which move nothing."""
        return next((one for one in reversed(self.task.history) if one.what != "edit_args"), None)

    def fact(self, name: str) -> Any:
        """The first fact of this name; None if there is none."""
        return next((value for known, value in self.facts if known == name), None)

    def all_facts(self, name: str) -> list[Any]:
        """All facts of this name."""
        return [value for known, value in self.facts if known == name]


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
        parked=moment(facts.get("parked", b"")),
        is_held="held" in facts,
        timeout=number(facts.get("timeout", b"")),
        cancel=whole(facts.get("cancel", b"")) == 1,
        facts=[*pairs, ("granted", granted)] if granted else pairs,
    )
