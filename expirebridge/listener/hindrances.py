"""What kept due tasks from starting: a listener derives from it why a task began late.

A listener knows only what it meets itself. It keeps the latest spans of time in which something
hindered it, and looks at them when a task begins late: what is on time pays nothing.
"""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from expirebridge.listener.session import SessionOwner
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.lateness import LateCause

# Notices that the event loop stood still.

BEAT = 0.25
"""Seconds between two beats of the event loop."""
STILL = 2 * BEAT
"""Seconds without a beat after which the loop has stood still."""
KEPT = 16
"""How many spans of time are kept, of the loop and of each partition."""


class LoopPulse:
    """Beats on the event loop, so that a pause in which it stood still is noticed afterwards.

    A handler may block it, or the system may give this process no time, or stop it.
    """

    def __init__(self) -> None:
        self._latest = time.monotonic()
        self._pauses = deque[tuple[float, float]](maxlen=KEPT)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Beat on the running event loop, until it is stopped."""
        self._latest = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(BEAT, self._beat)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def pauses(self) -> Iterator[tuple[float, float]]:
        """The latest pauses, from and to (monotonic); also one that is just ending."""
        yield from self._pauses
        now = time.monotonic()
        if self._timer is not None and now - self._latest > STILL:
            yield (self._latest, now)

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._latest > STILL:
            self._pauses.append((self._latest, now))
        self._latest = now
        self._timer = asyncio.get_running_loop().call_later(BEAT, self._beat)


# What hindered the claims of a partition.

SLOW = 0.25
"""Seconds after which an answer was slow: a server that works takes milliseconds."""
SILENT = 0.4
"""Part of a lease without a heartbeat of anybody, after which no listener is there: three of them
come in a lease."""
SAME = 1.0
"""Seconds between two spans of one cause that count as one."""
MADE_TO = 1.0
"""Seconds by which the time at which a task was made may be too early: it is rounded down."""

_ORDER = (
    LateCause.CLOCK,
    LateCause.MADE_LATE,
    LateCause.BLOCKED_LOOP,
    LateCause.NODE_AWAY,
    LateCause.SERVER_SLOW,
    LateCause.TAKEN_OVER,
    LateCause.NOBODY,
    LateCause.LEDGER,  # after those above: listeners relay its rows
    LateCause.NO_ROOM,
    LateCause.MANY_DUE,
    LateCause.EVENT_GAP,
)
"""Which cause counts for a moment in which several were so: the first."""
_RANKS = {cause: rank for rank, cause in enumerate(_ORDER)}
_LAST = len(_ORDER)
"""The rank of what is believed where nothing else is known."""


class Hindrance(NamedTuple):
    """What delayed tasks, from and to, on the server's clock."""

    rank: int
    begin: float
    end: float
    cause: LateCause


def cause_of(
    spans: Iterable[Hindrance],
    begin: float,
    end: float,
    wait: tuple[LateCause, float] | None = None,
) -> LateCause:
    """The cause that counts for most of the time between two moments.

    Each moment counts for the span of the lowest rank that covers it; one that none covers is
    unknown. Of a `wait` for so many seconds it is not known when that was: it counts as a whole,
    and explains as much of what is unknown.
    """
    seconds = defaultdict[LateCause, float](float)
    left = [(begin, end)]
    if wait is not None:
        seconds[wait[0]] = wait[1]
    for span in sorted(spans):
        rest = []
        for since, until in left:
            low, high = max(since, span.begin), min(until, span.end)
            if low >= high:
                rest.append((since, until))
                continue
            seconds[span.cause] += high - low
            rest += [part for part in ((since, low), (high, until)) if part[0] < part[1]]
        left = rest
    unknown = sum(until - since for since, until in left)
    seconds[LateCause.UNKNOWN] = unknown - (wait[1] if wait is not None else 0.0)
    return max(seconds, key=seconds.__getitem__)


class BacklogTimes:
    """The time since when due tasks are left: the listener has no room, or many tasks are due."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._full_since: float | None = None
        self._full = 0.0
        """Seconds without room since then."""
        self._latest = deque[tuple[float, float, LateCause]](maxlen=4)

    def note_room(self, *, has_room: bool) -> None:
        """Note whether there was a place when something was to be claimed."""
        now = time.monotonic()
        if has_room:
            self._full, self._full_since = self._seconds_full(now), None
        elif self._full_since is None:
            self._full_since = now
            self._begin(now)

    def note_rest(self, *, left: bool) -> None:
        """Note whether a claim left due tasks."""
        if left:
            self._begin(time.monotonic())
        elif self._since is not None:
            self._latest += self._present()
            self._since = None

    def spans(self) -> Iterator[tuple[float, float, LateCause]]:
        """The latest times, from and to (monotonic), and the cause; also the present one."""
        yield from self._latest
        yield from self._present()

    def _begin(self, now: float) -> None:
        if self._since is None:
            self._since, self._full = now, 0.0

    def _present(self) -> Iterator[tuple[float, float, LateCause]]:
        if self._since is None:
            return
        now = time.monotonic()
        is_full = self._seconds_full(now) * 2 >= now - self._since
        yield self._since, now, LateCause.NO_ROOM if is_full else LateCause.MANY_DUE

    def _seconds_full(self, now: float) -> float:
        return self._full + (now - self._full_since if self._full_since is not None else 0.0)


class Hindrances:
    """What hindered the claims of a partition of late, as its roles report it."""

    def __init__(self, owner: SessionOwner, pulse: LoopPulse, *, lease: float) -> None:
        self._owner = owner
        self._pulse = pulse
        self._lease = lease
        self._spans = deque[Hindrance](maxlen=KEPT)
        self._open: dict[LateCause, float] = {}
        """What lasts, and since when."""
        self._has_joined = False
        self.backlog = BacklogTimes()

    # What the roles report

    def note_trip(self, sent: float, *, failed: bool) -> None:
        """Note an answer to what was sent then (monotonic), and again since then if it failed."""
        now = time.monotonic()
        if failed or now - sent > SLOW:
            cause = LateCause.NODE_AWAY if failed else LateCause.SERVER_SLOW
            self._note(cause, self._at(sent), self._at(now))

    def note_claim(self, *, withholds: bool, leaves: bool) -> None:
        """Note that a claim was answered: this listener is there.

        `withholds`: it passes over tasks of a ledger until that has caught up. `leaves`: it left
        due tasks to its next pass over all of them.
        """
        if self._open:
            self.end(LateCause.NOBODY)
            self.end(LateCause.NO_ROOM)
        for cause, lasts in ((LateCause.LEDGER, withholds), (LateCause.MANY_DUE, leaves)):
            if lasts:
                self.begin(cause)
            elif self._open:
                self.end(cause)

    def note_heartbeat(self, silence: float, *, others_are_full: bool) -> None:
        """Note a heartbeat of this listener, before which nobody had sent one for so long.

        With the first, it finds out what there was before: others that were full, or nobody. Those
        that have room take what is due; if they did not, they are dead, though not known to be.
        """
        now = self._at(time.monotonic())
        if not self._has_joined:
            self._has_joined = True
            self._open[LateCause.NO_ROOM] = 0.0
            if silence > SILENT * self._lease:
                self._open[LateCause.NOBODY] = now - silence
            elif not others_are_full:
                self._open[LateCause.NOBODY] = 0.0
        elif silence > self._lease / 2:
            self._note(LateCause.NOBODY, now - silence, now)

    def begin(self, cause: LateCause, since: float | None = None) -> None:
        """Note that something lasts from now on, or since then (monotonic)."""
        self._open.setdefault(cause, self._at(time.monotonic() if since is None else since))

    def end(self, cause: LateCause) -> None:
        """Note that it is over, if it lasted."""
        since = self._open.pop(cause, None)
        if since is not None:
            self._note(cause, since, self._at(time.monotonic()))

    def _note(self, cause: LateCause, begin: float, end: float) -> None:
        latest = self._spans[-1] if self._spans else None
        if latest is not None and latest.cause is cause and begin - latest.end < SAME:
            begin, end = min(latest.begin, begin), max(latest.end, end)
            self._spans[-1] = latest._replace(begin=begin, end=end)
        else:
            self._spans.append(Hindrance(_RANKS[cause], begin, end, cause))

    def _at(self, moment: float) -> float:
        return self._owner.session.server_clock.at(moment)

    # What is derived from that

    def cause_of(self, claimed: ClaimedTask, start: float) -> LateCause:
        """The cause for which a task began late, at that moment of the server's clock."""
        due = claimed.due / 1000
        wait = None
        if claimed.waited:
            is_held = claimed.held * 2 > claimed.waited
            wait = (LateCause.HOLD if is_held else LateCause.LIMIT, claimed.waited)
        return cause_of(self._spans_of(claimed, due, start), due, start, wait)

    def _spans_of(self, claimed: ClaimedTask, due: float, start: float) -> Iterator[Hindrance]:
        yield from _own_spans(claimed, due, start)
        for span in self._spans:
            if span.cause is not LateCause.LEDGER or claimed.ledger is not None:
                yield span
        for cause, since in self._open.items():
            if cause is not LateCause.LEDGER or claimed.ledger is not None:
                yield Hindrance(_RANKS[cause], since, start, cause)
        for begin, end, cause in self.backlog.spans():
            yield Hindrance(_RANKS[cause], self._at(begin), self._at(end), cause)
        for begin, end in self._pulse.pauses():
            cause = LateCause.BLOCKED_LOOP
            yield Hindrance(_RANKS[cause], self._at(begin), self._at(end), cause)
        if (jump := self._owner.session.server_clock.jump) is not None:
            yield Hindrance(_RANKS[LateCause.CLOCK], *jump, LateCause.CLOCK)


def _own_spans(claimed: ClaimedTask, due: float, start: float) -> Iterator[Hindrance]:
    """What the task's record tells."""
    begin = due
    if claimed.made is not None and claimed.made > due:
        begin = claimed.made
        cause = LateCause.LEDGER if claimed.ledger is not None else LateCause.MADE_LATE
        # A tick is made late if no listener made it: what hindered that is the better answer.
        rank = _LAST if claimed.is_tick else _RANKS[cause]
        yield Hindrance(rank, due, begin, cause)
        yield Hindrance(_LAST, begin, begin + MADE_TO, cause)
    if claimed.lapses or claimed.given_back:
        yield Hindrance(_RANKS[LateCause.TAKEN_OVER], begin, start, LateCause.TAKEN_OVER)
