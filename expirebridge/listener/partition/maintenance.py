"""Periodic maintenance of a partition: lapsed leases, durations, series, time zones."""

import asyncio
import contextlib
import time
from collections.abc import Sequence

from expirebridge.groups.calls import cancel_group
from expirebridge.hooks import Hooks, Lapsed
from expirebridge.lateness.calls import Took, note_durations
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.session import Membership, SessionOwner
from expirebridge.listener.wakeups import Wakeup
from expirebridge.series.definition import declare
from expirebridge.series.schedule import SeriesSpec
from expirebridge.series.ticks import make_due_ticks, retime
from expirebridge.series.time_zones import newest_tzdata
from expirebridge.settings import Settings
from expirebridge.task.calls import reconciling

EVERY = 1.0
"""Seconds between passes while something is overdue, or the server is away."""
A_MOMENT = 0.01
"""Seconds after the end of a lease at which it is looked at."""


class LeaseReaper(PeriodicRole):
    """Takes back tasks whose leases have lapsed, and deletes old records.

    A pass takes back the tasks of dead listeners, looks again at paused ones, forgets old ones, and
    cancels the next members of cancelled groups. There are at least two passes in each lease.
    """

    role = "the sweep"
    retry_pause = EVERY

    def __init__(
        self, consumer: SessionOwner, settings: Settings, *, wakeup: Wakeup, hooks: Hooks
    ) -> None:
        super().__init__(consumer)
        self._settings = settings
        self._wakeup = wakeup
        self._hooks = hooks

    async def run_once(self) -> float:
        """Make one pass; returns the seconds to pause. Raises a ServerError."""
        sweep = await self._owner.session.store.run(reconciling.sweep(self._settings))
        for id in sweep.lapsed:
            self._hooks.emit(Lapsed(id=id, failed=False))
        for id in sweep.failed:
            self._hooks.emit(Lapsed(id=id, failed=True))
        if sweep.lapsed:
            self._wakeup.set()
        for group in sweep.stopping:
            call = cancel_group(group, keep=self._settings.keep_succeeded)
            await self._owner.session.store.run(call)
        return self._pause_after(sweep)

    def _pause_after(self, sweep: reconciling.Sweep) -> float:
        """How long nothing can be missed: what is claimed from now on has a whole lease."""
        if sweep.more or sweep.stopping:
            return 0.0
        longest = self._settings.lease / 2
        if sweep.lapse_in is None:
            return longest
        # A lease that is over already waits for a heartbeat of any listener.
        return min(sweep.lapse_in + A_MOMENT if sweep.lapse_in > 0 else EVERY, longest)


class DurationRecorder(PeriodicRole):
    """Records how long the handlers of each function took, for `scale`.

    It adds up what ended, and sends the sums every ten seconds, if there are any. Sums that the
    server does not take are dropped.
    """

    role = "the durations"
    retry_pause = 10.0

    def __init__(self, owner: SessionOwner) -> None:
        super().__init__(owner)
        self._sums: dict[str, tuple[int, float]] = {}

    def add(self, func: str, seconds: float) -> None:
        """Count an attempt that ended."""
        count, before = self._sums.get(func, (0, 0.0))
        self._sums[func] = count + 1, before + seconds

    async def run_once(self) -> float:
        """Send the sums; returns the seconds to pause. Raises a ServerError."""
        if self._sums:
            took = {func: Took(count, seconds) for func, (count, seconds) in self._sums.items()}
            self._sums = {}
            await self._owner.session.store.run(note_durations(took))
        return self.retry_pause


BEHIND_A_RANK = 0.1
"""Seconds that a listener waits for each rank above it: the first makes the ticks, as long as it
lives."""
TOGETHER = 10
"""Ticks of one pass: for as long as the server makes them, claims wait."""
GATHERING = 0.01
"""Seconds between passes that leave nothing behind: what comes due meanwhile is made by one pass.
An interval has a second at least, so its next tick is there in time."""
LONGEST_SLEEP = 1.0
"""Seconds after which it reads the server's clock again, which may have jumped meanwhile."""


class Ticker(PeriodicRole):
    """Makes the next tick of each series when its latest is due, in bounded passes.

    While more are to be made, it pauses after each pass for as long as that took, so that claims
    are not held up.

    Heartbeats say when the first is to be made. Without a series it asks for nothing.
    """

    role = "the ticks of series"
    retry_pause = 0.5

    def __init__(self, consumer: SessionOwner, membership: Membership) -> None:
        super().__init__(consumer)
        self._membership = membership
        self._next: int | None = None
        """The ms at which the next tick is to be made, as far as is known."""
        self._changed = asyncio.Event()

    def hear(self, next_making: int | None) -> None:
        """Update the time of the next tick from a heartbeat, in ms."""
        if next_making != self._next:
            self._next = next_making
            self._changed.set()

    async def wait(self, pause: float) -> None:
        """Pause, and wait until the next tick is to be made and this listener's turn has come."""
        await super().wait(pause)
        while (left := self._left()) is None or left > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if left is None else min(left, LONGEST_SLEEP)):
                    await self._changed.wait()

    async def run_once(self) -> float:
        """Make one pass; returns the seconds to pause. Raises a ServerError."""
        began = time.monotonic()
        self._changed.clear()
        ticked = await self._owner.session.store.run(make_due_ticks(TOGETHER))
        # What a heartbeat said meanwhile may be newer than this answer; if not, one look too many.
        heard = self._next if self._changed.is_set() else None
        known = [ms for ms in (ticked.next, heard) if ms is not None]
        self._next = min(known, default=None)
        more = ticked.next is not None and ticked.next <= ticked.now
        return time.monotonic() - began if more else GATHERING

    def _left(self) -> float | None:
        """Seconds until its turn; None: there is no series."""
        if self._next is None:
            return None
        turn = self._membership.turn * BEHIND_A_RANK
        return self._owner.session.server_clock.seconds_until(self._next) + turn


class TimeZoneUpdater(PeriodicRole):
    """Recomputes waiting ticks if this host has newer time zone data.

    It does so once: when it starts, or as soon as there are series.

    It takes bounded passes, with a pause after each as long as the pass took. A process reads a
    zone once: newer data count from the next start.
    """

    role = "the ticks of zones that changed"
    retry_pause = 1.0

    def __init__(self, consumer: SessionOwner, membership: Membership) -> None:
        super().__init__(consumer)
        self._membership = membership
        self._version = newest_tzdata()
        self._due = asyncio.Event()
        self._has_looked = False

    def hear(self, next_making: int | None) -> None:
        """Learn from a heartbeat that there are series."""
        if next_making is not None and not self._has_looked:
            self._due.set()

    async def wait(self, pause: float) -> None:
        """Pause, and wait until there are series whose ticks it has not looked at."""
        await super().wait(pause)
        await self._due.wait()

    async def run_once(self) -> float:
        """Move all ticks that are to be moved; no pause is needed. Raises a ServerError."""
        skip: int | None = 0
        while skip is not None:
            await asyncio.sleep(self._membership.turn * BEHIND_A_RANK)
            began = time.monotonic()
            skip = await self._owner.session.store.run(retime(self._version, skip))
            await asyncio.sleep(time.monotonic() - began)
        self._has_looked = True
        self._due.clear()
        return 0.0


class SeriesRegistrar(PeriodicRole):
    """Registers the series that handlers declare.

    It does so at the start, once a lease, and if the database was emptied.

    So a listener takes over when those that carried another declaration are gone.
    """

    role = "the declared series"
    retry_pause = 1.0

    def __init__(
        self, consumer: SessionOwner, settings: Settings, *, name: str, specs: Sequence[SeriesSpec]
    ) -> None:
        super().__init__(consumer)
        self._settings = settings
        self._name = name
        self._specs = [spec for spec in specs if consumer.session.store.database.owns(spec.id)]
        self._asked = asyncio.Event()

    def hurry(self) -> None:
        """Declare at once."""
        self._asked.set()

    async def wait(self, pause: float) -> None:
        """Wait until the pause is over, or until `hurry`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._asked.wait()

    async def run_once(self) -> float:
        """Declare once; returns the seconds to pause. Raises a ServerError."""
        self._asked.clear()
        await self._owner.session.store.run(declare(self._name, self._settings.lease, self._specs))
        return self._settings.lease
