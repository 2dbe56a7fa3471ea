"""The sweeper: finds by looking what no doorbell told."""

import asyncio
import logging
import time

from expirebridge.errors import ServerError
from expirebridge.hooks import Gap, Hooks, Lapsed, Scanned
from expirebridge.listener.adopter import Adopter
from expirebridge.listener.doorbell import Doorbell
from expirebridge.listener.outage import Outage
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.store import AsyncStore

logger = logging.getLogger("expirebridge")

EVERY = 1.0
"""Seconds between passes while something is overdue, or the server is away."""
A_MOMENT = 0.01
"""Seconds after the end of a lease at which it is looked at."""
SCAN_STEP = 100
"""About how many keys one step of a scan walks over: half a millisecond of the server's time."""
SCAN_SHARE = 0.1
"""How much of a core a scan may take of the server after a gap: foreign tasks wait to be found."""
PATIENT_SHARE = 0.02
"""The same for a scan that was asked for: others follow for as long as its reason lasts."""


class Sweeper:
    """Makes a pass when a lease may be over, and scans the database after each gap and when asked.

    A pass takes back the tasks of dead listeners, looks again at paused ones and forgets old ones.
    A scan finds trigger keys without a record, records without a place in a state set, and timers
    that were edited while nobody listened.
    """

    def __init__(
        self,
        store: AsyncStore,
        settings: Settings,
        *,
        adopter: Adopter,
        doorbell: Doorbell,
        hooks: Hooks,
        outage: Outage,
    ) -> None:
        self._store = store
        self._settings = settings
        self._adopter = adopter
        self._doorbell = doorbell
        self._hooks = hooks
        self._outage = outage
        self._gaps: list[str] = []
        self._wanted = asyncio.Event()

    def notice_gap(self, reason: str) -> None:
        """Scan soon, and tell why: something may have been missed."""
        self._gaps.append(reason)
        self._wanted.set()

    def scan_soon(self) -> None:
        """Scan soon, for a reason that is known and lasts."""
        self._wanted.set()

    async def run(self) -> None:
        """Make passes for ever: one whenever a lease may be over, at least two in each lease."""
        while True:
            pause = EVERY
            try:
                sweep = await self.run_once()
            except ServerError as error:
                self._outage.failed("the sweep", error)
            else:
                self._outage.answered("the sweep")
                pause = self._pause_after(sweep)
            await asyncio.sleep(pause)

    def _pause_after(self, sweep: calls.Sweep) -> float:
        """How long nothing can be missed: what is claimed from now on has a whole lease."""
        if sweep.more:
            return 0.0
        longest = self._settings.lease / 2
        if sweep.lapse_in is None:
            return longest
        # A lease that is over already waits for somebody to beat.
        return min(sweep.lapse_in + A_MOMENT if sweep.lapse_in > 0 else EVERY, longest)

    async def run_scans(self) -> None:
        """Scan after each gap, and when asked, for ever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            reasons, self._gaps = self._gaps, []
            if reasons:
                self._hooks.emit(Gap(reason=", ".join(dict.fromkeys(reasons))))
            self._doorbell.ring()
            try:
                adopted = await self.scan_once(SCAN_SHARE if reasons else PATIENT_SHARE)
            except ServerError as error:
                self._outage.failed("the scan", error)
                self.notice_gap("the last scan failed")
                await asyncio.sleep(EVERY)
            else:
                self._outage.answered("the scan")
                self._hooks.emit(Scanned(adopted=adopted))
                if adopted:
                    logger.info(
                        "a scan adopted %d tasks that other clients had set", adopted,
                        extra=event("adopted", count=adopted),
                    )  # fmt: skip

    async def run_once(self) -> calls.Sweep:
        """Make one pass. Raises a ServerError."""
        sweep = await self._store.run(calls.sweep(self._settings))
        for id in sweep.lapsed:
            self._hooks.emit(Lapsed(id=id, failed=False))
        for id in sweep.failed:
            self._hooks.emit(Lapsed(id=id, failed=True))
        if sweep.lapsed:
            self._doorbell.ring()
        return sweep

    async def scan_once(self, share: float) -> int:
        """Walk over the whole database once, with this share of a core of the server.

        Returns how many tasks were adopted.
        """
        pages = calls.Pages(lambda cursor: calls.scan(cursor, SCAN_STEP, self._settings))
        adopted = 0
        began = time.monotonic()
        while scanned := await self._store.run(pages.next()):
            for id in scanned.strays:
                logger.error(
                    "task %s stood in no state set; it has a place again", id,
                    extra=event("stray", task=id),
                )  # fmt: skip
            adopted += await self._adopter.look_at(scanned.found)
            if not pages.over:
                await asyncio.sleep((time.monotonic() - began) * (1 / share - 1))
            began = time.monotonic()
        return adopted
