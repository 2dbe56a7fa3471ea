"""What a listener does for series: it makes ticks, and registers what handlers declare."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.session import Membership, SessionOwner
from expirebridge.series.definition import declare
from expirebridge.series.schedule import SeriesSpec
from expirebridge.series.ticks import make_due_ticks, retime
from expirebridge.series.time_zones import newest_tzdata
from expirebridge.settings import Settings
from expirebridge.task.calls.claiming import HeartbeatReply

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

    def __init__(self, owner: SessionOwner, membership: Membership) -> None:
        super().__init__(owner)
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

    def __init__(self, owner: SessionOwner, membership: Membership) -> None:
        super().__init__(owner)
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
        self, owner: SessionOwner, settings: Settings, *, name: str, specs: Sequence[SeriesSpec]
    ) -> None:
        super().__init__(owner)
        self._settings = settings
        self._name = name
        self._specs = [spec for spec in specs if owner.session.store.database.owns(spec.id)]
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


class SeriesRoles(PartitionRoles):
    """The roles of a partition for its series."""

    def __init__(self, partition: Partition) -> None:
        self._specs = partition.registry.series
        self._ticker = Ticker(partition, partition.membership)
        self._time_zone_updater = TimeZoneUpdater(partition, partition.membership)
        self._registrar = SeriesRegistrar(
            partition, partition.settings, name=partition.name, specs=self._specs
        )

    def roles(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role, by its name."""
        roles = {"ticks": self._ticker.run(), "time zones": self._time_zone_updater.run()}
        return roles | ({"declared series": self._registrar.run()} if self._specs else {})

    def hear_heartbeat(self, reply: HeartbeatReply) -> None:
        """Learn when the next tick is to be made."""
        self._ticker.hear(reply.next_making)
        self._time_zone_updater.hear(reply.next_making)

    def hear_emptied(self) -> None:
        """Declare at once."""
        self._registrar.hurry()


def roles_of(_settings: Settings) -> CapabilityRoles:
    """Make ticks, whatever the settings are."""
    return CapabilityRoles(in_partition=SeriesRoles)
