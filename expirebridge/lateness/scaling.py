"""How many listeners the next minutes need: reckoned from what will be due."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from expirebridge.bridge import Operations
from expirebridge.errors import InvalidTask
from expirebridge.lateness.calls import (
    ComingSpan,
    Forecast,
    Took,
    forecast,
    read_durations,
)
from expirebridge.observe.recent_tasks import RecentTasks, read_recent
from expirebridge.task.calls.call import Steps
from expirebridge.task.task import State, from_ms

AHEAD = 300.0
"""How many seconds are looked ahead, unless told otherwise."""
WITHIN = 10.0
"""How many seconds after its due time a task may begin in the worst case, unless told otherwise."""
BUSY = 0.8
"""The share of its places that a listener is to use: the rest is for what nobody could foresee."""
PACE = 5_000
"""Tasks a second that one listener is to begin, however short: see docs/reference/performance.md.
"""
MEASURED_BY_NOBODY = 1.0
"""Seconds that a task is taken to last if no handler was ever measured."""
MOST_SPANS = 240
MOST_PLACES = 1_000_000
"""The largest concurrency that can be asked for."""
RECENT = 60.0
"""Seconds of which the tasks at short notice are counted."""
LOOKS = 960
"""Tasks whose functions a forecast looks at: some milliseconds of the server's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many listeners are needed, and what for."""

    listeners: int
    """Enough for each span of the time ahead; 0 if nothing runs, is due or comes."""
    concurrency: int
    """How many tasks each of them runs at once."""
    ahead: float
    """Seconds that were looked ahead."""
    within: float
    """Seconds of each span: what is due in one is to be begun in it."""
    peak: datetime
    """The beginning of the span that needs most."""
    peak_tasks: int
    """How many tasks are due in it, are overdue if it is the first, or will have been made."""
    peak_slots: float
    """How many tasks run at once in it, on average."""
    overdue: int
    running: int
    short_notice: float
    """Tasks a second that are made too late to be foreseen, as of late."""
    unmeasured: list[str]
    """Functions that come, and whose durations are not known: they count as the mean of others."""


def read_scale(
    operations: Operations, *, concurrency: int, ahead: float = AHEAD, within: float = WITHIN
) -> Steps[Scale]:
    """Reckon how many listeners of this concurrency the next `ahead` seconds need.

    The last span may end after `ahead`. Raises InvalidTask unless `ahead` is 1 to 240 times as long
    as `within`, and the concurrency is from 1 to a million.
    """
    if not 1 <= concurrency <= MOST_PLACES:
        raise InvalidTask(f"concurrency: it must be a whole number, 1 to {MOST_PLACES:,}")
    spans = math.ceil(round(ahead / within, 6)) if within >= 0.001 else 0
    if not 1 <= spans <= MOST_SPANS or ahead < within:
        raise InvalidTask(
            f"ahead {ahead:g} s, within {within:g} s: the first must be 1 to {MOST_SPANS} times as "
            "long as the second"
        )
    coming = yield from forecast(within, spans, sample=max(LOOKS // spans, 1))
    known = yield from read_durations()
    running = yield from operations.list(state=State.RUNNING, limit=LOOKS // 4)
    counts = yield from operations.count()
    recent = yield from read_recent(operations)
    runs = ComingSpan(coming.now, counts.running, Counter(task.func for task in running.tasks))
    return Reckoning(coming, known, recent, runs, within=within).scale(concurrency, ahead)


class Reckoning:
    """The places that tasks take in each span: see "The arithmetic" in docs/how-to/autoscale.md."""

    def __init__(
        self,
        coming: Forecast,
        known: Mapping[str, Took],
        recent: RecentTasks,
        running: ComingSpan,
        *,
        within: float,
    ) -> None:
        self._coming, self._within = coming, within
        self._means = {func: took.seconds / took.attempts for func, took in known.items()}
        means = self._means.values()
        self._mean = sum(means) / len(means) if means else MEASURED_BY_NOBODY
        self._running = running
        self._tasks = [float(span.count) for span in coming.spans]
        self._tasks[0] += coming.overdue.count
        self._slots = [0.0] * len(coming.spans)
        for place, span in enumerate(coming.spans):
            self._take(place, span)
        self._take(0, coming.overdue)
        # On average what runs now has run for half of its time.
        self._take(0, running, share=0.5)
        self._add_short_notice(recent)

    def scale(self, concurrency: int, ahead: float) -> Scale:
        """The number of listeners, by the span that needs most."""
        needed = [
            max(slots / (concurrency * BUSY), tasks / self._within / PACE)
            for slots, tasks in zip(self._slots, self._tasks, strict=True)
        ]
        peak = needed.index(max(needed))
        coming = self._coming
        functions = {func for span in (coming.overdue, *coming.spans) for func in span.sample}
        return Scale(
            listeners=math.ceil(round(needed[peak], 6)),
            concurrency=concurrency,
            ahead=ahead,
            within=self._within,
            peak=from_ms(coming.spans[peak].start),
            peak_tasks=round(self._tasks[peak]),
            peak_slots=round(self._slots[peak], 2),
            overdue=coming.overdue.count,
            running=self._running.count,
            short_notice=round(self._short_notice, 3),
            unmeasured=sorted(functions - self._means.keys()),
        )

    def _take(self, place: int, due: ComingSpan, *, share: float = 1.0) -> None:
        """Let tasks take places from this span on, for as long as their functions take."""
        for func, count in due.by_function().items():
            left = self._lasts(func) * share
            for at in range(place, len(self._slots)):
                if left <= 0:
                    break
                self._slots[at] += count * min(left / self._within, 1)
                left -= self._within

    def _lasts(self, func: str) -> float:
        return self._means.get(func, self._mean)

    def _add_short_notice(self, recent: RecentTasks) -> None:
        """Add what will be made less than the time until a span before it is due.

        As much as in the last minute: of the tasks that ended in it, those that were made so
        shortly before.
        """
        made = sorted(
            ((task.due - task.created).total_seconds(), self._lasts(task.func))
            for task in recent.ended_within(RECENT)
            if task.created is not None
        )
        pace = recent.per_minute / RECENT / max(len(made), 1)
        leads = [lead for lead, _ in made]
        lasting = [0.0, *accumulate(seconds for _, seconds in made)]
        for place in range(len(self._slots)):
            below = bisect_left(leads, (place + 1) * self._within)
            self._slots[place] += pace * lasting[below]
            self._tasks[place] += pace * below * self._within
        self._short_notice = pace * bisect_left(leads, len(self._slots) * self._within)
