"""The scanner: walks over a server's keys and finds what no doorbell announced."""

import asyncio
import logging
import time
from collections.abc import Sequence

from expirebridge.errors import ServerError
from expirebridge.hooks import Gap, Hooks, Scanned
from expirebridge.listener.gaps import Gaps
from expirebridge.listener.outage import Outage
from expirebridge.listener.station.station import Station
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import calls

logger = logging.getLogger("expirebridge")

ROLE = "the scan"
RETRY_PAUSE = 1.0
STEP = 100
"""About how many keys one step of a scan walks over: half a millisecond of the server's time."""
SHARE = 0.1
"""How much of a core a scan may take of the server after a gap: foreign tasks wait to be found."""
PATIENT_SHARE = 0.02
"""The same for a scan that was asked for: others follow for as long as its reason lasts."""


class Scanner:
    """Scans the partitions of a node, one at a time, after each gap and when asked.

    A scan finds trigger keys without a record, records without a place in a state set, and timers
    that were edited while nobody listened.
    """

    def __init__(
        self,
        stations: Sequence[Station],
        settings: Settings,
        *,
        gaps: Gaps,
        outage: Outage,
        hooks: Hooks,
    ) -> None:
        self._stations = stations
        self._settings = settings
        self._gaps = gaps
        self._outage = outage
        self._hooks = hooks

    async def run(self) -> None:
        """Scan after each gap, and when asked, for ever."""
        while True:
            reasons = await self._gaps.take()
            if reasons:
                self._hooks.emit(Gap(reason=", ".join(reasons)))
            for station in self._stations:
                station.doorbell.ring()
            try:
                adopted = await self._scan_all(SHARE if reasons else PATIENT_SHARE)
            except ServerError as error:
                self._outage.failed(ROLE, error)
                self._gaps.notice("the last scan failed")
                await asyncio.sleep(RETRY_PAUSE)
            else:
                self._outage.answered(ROLE)
                self._report(adopted)

    def _report(self, adopted: int) -> None:
        self._hooks.emit(Scanned(adopted=adopted))
        if adopted:
            logger.info(
                "a scan adopted %d tasks that other clients had set", adopted,
                extra=event("adopted", count=adopted),
            )  # fmt: skip

    async def _scan_all(self, share: float) -> int:
        """Walk over each partition once, with this share of a core of the server.

        Returns how many tasks were adopted.
        """
        return sum([await self._scan(station, share) for station in self._stations])

    async def _scan(self, station: Station, share: float) -> int:
        pages = calls.Pages(lambda cursor: calls.scan(cursor, STEP, self._settings))
        adopted = 0
        began = time.monotonic()
        while scanned := await station.store.run(pages.next()):
            for id in scanned.strays:
                logger.error(
                    "task %s was in no state set; it has a place again", id,
                    extra=event("stray", task=id),
                )  # fmt: skip
            adopted += await station.adopter.look_at(scanned.found)
            if not pages.over:
                await asyncio.sleep((time.monotonic() - began) * (1 / share - 1))
            began = time.monotonic()
        return adopted
