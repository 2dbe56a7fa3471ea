"""The retimer: moves waiting ticks when this host has later time zone data than computed them."""

import asyncio
import time

from expirebridge.errors import ServerError
from expirebridge.listener.session import Footing
from expirebridge.listener.standing import Standing
from expirebridge.model.time_zones import newest_tzdata
from expirebridge.series.retiming import retime

ROLE = "the ticks of zones that changed"
BEHIND_A_RANK = 0.1
"""Seconds that a listener waits for each rank above it, before each pass."""
MOST_RANKS = 10
RETRY_PAUSE = 1.0


class Retimer:
    """Looks once: when it starts, or as soon as there are series.

    It takes bounded passes, with a pause after each as long as the pass took. A process reads a
    zone once: newer data count from the next start.
    """

    def __init__(self, footing: Footing, standing: Standing) -> None:
        self._footing = footing
        self._standing = standing
        self._version = newest_tzdata()
        self._due = asyncio.Event()
        self._has_looked = False

    def hear(self, next_making: int | None) -> None:
        """Take note of what a heartbeat said: whether there are series."""
        if next_making is not None and not self._has_looked:
            self._due.set()

    async def run(self) -> None:
        """Look, again if the server failed, and then no more."""
        while True:
            await self._due.wait()
            ground = self._footing.now
            try:
                await self.run_once()
            except ServerError as error:
                ground.outage.failed(ROLE, error)
                await asyncio.sleep(RETRY_PAUSE)
            else:
                ground.outage.answered(ROLE)
                self._has_looked = True
                self._due.clear()

    async def run_once(self) -> None:
        """Move all ticks that are to be moved. Raises a ServerError."""
        skip: int | None = 0
        while skip is not None:
            await asyncio.sleep(min(self._standing.rank, MOST_RANKS) * BEHIND_A_RANK)
            began = time.monotonic()
            skip = await self._footing.now.store.run(retime(self._version, skip))
            await asyncio.sleep(time.monotonic() - began)
