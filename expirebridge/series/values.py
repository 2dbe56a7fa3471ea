"""A series, as the people see it who schedule and inspect it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from expirebridge.errors import InvalidTask
from expirebridge.series.records import read_schedule
from expirebridge.series.replies import NEVER, StoredSeries
from expirebridge.series.schedule import Schedule
from expirebridge.store import record_values
from expirebridge.store.record_values import args_of, split_call
from expirebridge.task.durations import human
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.keys import IN_RECORD
from expirebridge.task.listings import LeftOut
from expirebridge.task.task import UNCLAIMED, State, from_ms, to_ms
from expirebridge.task.texts import short_repr

BEHIND = 60.0
"""Seconds after which a tick that was not made, or did not begin, is reported."""


class SeriesOutcome(StrEnum):
    """The result of `schedule`."""

    CREATED = "created"
    CHANGED = "changed"  # its waiting tick was replaced
    UNCHANGED = "unchanged"


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A recurring task, as it was when it was read. A tick is one of its tasks, `<id>@<ms>`."""

    id: str
    func: str
    """The handler: `module.function`, or `path/to/module.function`."""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    schedule: Schedule | None
    """Its schedule. None: the stored one cannot be read, and it makes no more ticks."""
    tags: tuple[str, ...] = ()
    ledger: bool = False
    """True for a series of a ledger: it is in SQL, and so are its ticks."""
    declared: bool
    """True if handlers declare it with `@every`; otherwise a producer scheduled it."""
    carriers: int
    """How many live listeners declare it."""
    created: datetime | None
    """The time of its creation, on the server's clock."""
    outcome: SeriesOutcome | None = None
    """The result of `schedule`; None for a series that was looked up."""
    next: datetime | None
    """The scheduled time of its waiting tick. None: none waits."""
    due: datetime | None
    """The due time of that tick: later by the jitter, or as a client moved it."""
    behind: timedelta
    """For how long its next tick should have been made already."""
    paused: datetime | None
    """Since when it makes no ticks, until it is resumed."""
    over: bool
    """True if it makes no more ticks, since its `until` has passed."""
    last: datetime | None
    """The scheduled time of the latest tick that began."""
    last_id: str | None
    """The id of that tick."""
    began: datetime | None
    """The start of that one."""
    late: timedelta | None
    """How much later than it was due."""
    state: State | None
    """Its state: running, pending (to be retried), or how it ended. None: not known."""
    ended: datetime | None
    """The end of that one, if it ended."""
    succeeded: datetime | None
    """The time at which a tick last succeeded."""
    missed: int
    """How many ticks did not run because the next one was due when a listener found them."""
    overlapped: int
    """How many did not run because another one still ran."""

    def __repr__(self) -> str:
        return short_repr(self, "id", "func", "schedule", "next", "paused", "over")

    @classmethod
    def of(
        cls,
        stored: StoredSeries,
        now: int,
        *,
        outcome: SeriesOutcome | None = None,
        key_ring: KeyRing | None = None,
    ) -> Self:
        """Show a series as it is stored; `now` is the server's time, in ms.

        What cannot be read is left out: looking must work above all for bad data.
        """
        func, inline = split_call(stored.record.get("call", b""))
        encoded = stored.record.get("args", b"") if inline == IN_RECORD else inline
        args, kwargs = args_of(encoded, stored.id, func, key_ring=key_ring)
        tick, last_id = stored.whole("tick"), stored.text("last") or None
        late = stored.whole("late")
        waits = stored.waiting in UNCLAIMED
        return cls(
            id=stored.id,
            func=func,
            args=args,
            kwargs=kwargs,
            schedule=_schedule(stored),
            tags=record_values.words(stored.record.get("tags", b"")),
            declared="declared" in stored.record,
            carriers=stored.carriers,
            created=_moment(stored.whole("made")),
            outcome=outcome,
            next=_moment(tick if waits else None),
            due=_moment(stored.due if waits else None),
            behind=timedelta(milliseconds=max(now - stored.place, 0)),
            paused=_moment(stored.whole("paused")),
            over=stored.place >= NEVER and "paused" not in stored.record,
            last=_moment(record_values.whole((last_id or "").rpartition("@")[2].encode())),
            last_id=last_id,
            began=_moment(stored.whole("began")),
            late=None if late is None else timedelta(milliseconds=late),
            state=stored.last or _state(stored.text("outcome")),
            ended=_moment(stored.whole("ended")),
            succeeded=_moment(stored.whole("succeeded")),
            missed=stored.whole("missed") or 0,
            overlapped=stored.whole("overlapped") or 0,
        )

    def coming(self, n: int, after: datetime) -> list[datetime]:
        """The times of the next `n` ticks after a moment, in the zone of the series.

        Without jitter. Fewer if it ends before, or cannot be read. A paused one is treated alike.
        """
        if self.schedule is None or self.created is None:
            return []
        ticks = self.schedule.ticks(to_ms(after), n, created=to_ms(self.created))
        return [self.schedule.local(tick) for tick in ticks]

    @property
    def standing(self) -> str:
        """Remarks about it, in a few words; empty for most."""
        if self.schedule is None:
            return "its schedule cannot be read"
        if self.paused is not None:
            return "paused"
        if self.over:
            return "over"
        if self.declared and not self.carriers:
            return "no listener declares it"
        if self.is_behind(1):
            return f"behind by {human(self.behind.total_seconds())}"
        return ""

    def is_behind(self, limit: float) -> bool:
        """True if its next tick is overdue by more than so many seconds."""
        return self.behind > timedelta(seconds=limit)


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesListing:
    """A page of series."""

    series: list[Series]
    cursor: str | None = None
    """The cursor of the next page, for `list_series(cursor=...)`. None if this was the last."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their series are not among these."""

    def __repr__(self) -> str:
        return short_repr(self)


def _schedule(stored: StoredSeries) -> Schedule | None:
    try:
        return read_schedule(stored.record.get("spec", b""))
    except (InvalidTask, ValueError):
        return None


def _moment(ms: int | None) -> datetime | None:
    return None if ms is None else from_ms(ms)


def _state(text: str) -> State | None:
    return State(text) if text in set(State) else None
