"""The history of a task, as those see it who look."""

from dataclasses import dataclass
from datetime import datetime

from expirebridge.task.texts import short_repr


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One thing that happened to a task."""

    at: datetime
    """The time, or when it was noticed, on the server's clock; the last one, if repeated."""
    what: str
    """`created`; what changed its due time: `reschedule`, `extend`, `put_off`, `run_now`, `pause`,
    `resume`, `beat`, or `edit` for a plain command of any client; `signal`, which decided that it
    runs its other function; `edit_args`, which changed its arguments; or how an attempt ended:
    `retry`, `snoozed`, `released`, `unknown`, `lapsed`, `rearmed`, or a final state. `started`: it
    is running."""
    old_due: datetime | None = None
    """The due time before. None if it was paused, or running."""
    new_due: datetime | None = None
    """The due time from then on. None if it was paused."""
    attempt: int | None = None
    """The number of the attempt that ended, or is running."""
    started: datetime | None = None
    """The time at which that attempt was claimed."""
    error: str = ""
    """The last line of its error, or why it was given back."""
    times: int = 1
    """How often it happened in a row: keepalives, snoozes, and attempts without a handler, are one
    entry."""

    def __repr__(self) -> str:
        return short_repr(self)
