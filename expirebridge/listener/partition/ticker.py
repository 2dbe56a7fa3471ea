"""The ticker: makes the next tick of each series when its latest is due."""

import asyncio
import contextlib
import time

from expirebridge.errors import ServerError
from expirebridge.listener.session import Footing
from expirebridge.listener.standing import Standing
from expirebridge.series.ticks import make_due_ticks

ROLE = "the ticks of series"
BEHIND_A_RANK = 0.1
"""Seconds that a listener waits for each rank above it: the first makes the ticks, as long as it
lives."""
MOST_RANKS = 10
TOGETHER = 10
"""Ticks of one pass: for as long as the server makes them, claims wait."""
GATHERING = 0.01
"""Seconds between passes that leave nothing behind: what comes due meanwhile is made by one pass.
An interval has a second at least, so its next tick is there in time."""
RETRY_PAUSE = 0.5
LONGEST_SLEEP = 1.0
"""Seconds after which it reads the server's clock again, which may have jumped meanwhile."""


class Ticker:
    """Makes ticks in bounded passes. While more are to be made, it pauses after each for as long as
    that took, so that claims are not held up.

    Heartbeats say when the first is to be made. Without a series it asks for nothing.
    """

    def __init__(self, footing: Footing, standing: Standing) -> None:
        self._footing = footing
        self._standing = standing
        self._next: int | None = None
        """The ms at which the next tick is to be made, as far as is known."""
        self._changed = asyncio.Event()

    def hear(self, next_making: int | None) -> None:
        """Take note of what a heartbeat said."""
        if next_making != self._next:
            self._next = next_making
            self._changed.set()

    async def run(self) -> None:
        """Make ticks whenever it is time, for ever."""
        while True:
            await self._wait()
            ground = self._footing.now
            try:
                pause = await self.run_once()
            except ServerError as error:
                ground.outage.failed(ROLE, error)
                pause = RETRY_PAUSE
            else:
                ground.outage.answered(ROLE)
            await asyncio.sleep(pause)

    async def run_once(self) -> float:
        """Make one pass; returns for how many seconds to pause. Raises a ServerError."""
        began = time.monotonic()
        self._changed.clear()
        ticked = await self._footing.now.store.run(make_due_ticks(TOGETHER))
        # What a heartbeat said meanwhile may be newer than this answer; if not, one look too many.
        heard = self._next if self._changed.is_set() else None
        known = [ms for ms in (ticked.next, heard) if ms is not None]
        self._next = min(known, default=None)
        more = ticked.next is not None and ticked.next <= ticked.now
        return time.monotonic() - began if more else GATHERING

    async def _wait(self) -> None:
        """Wait until the next tick is to be made, and this listener's turn has come."""
        while (left := self._left()) is None or left > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if left is None else min(left, LONGEST_SLEEP)):
                    await self._changed.wait()

    def _left(self) -> float | None:
        """Seconds until its turn; None: there is no series."""
        if self._next is None:
            return None
        turn = min(self._standing.rank, MOST_RANKS) * BEHIND_A_RANK
        return self._footing.now.server_clock.seconds_until(self._next) + turn
