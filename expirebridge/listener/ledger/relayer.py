"""The relayer: carries rows of the ledger to the server, and back what happened there."""

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from expirebridge.errors import LedgerError, LedgerUnreachable, ServerError
from expirebridge.hooks import Hooks
from expirebridge.listener.session import Footing
from expirebridge.listener.standing import Standing
from expirebridge.model.log_fields import event

if TYPE_CHECKING:
    from expirebridge.ledger.partition import Books

logger = logging.getLogger("expirebridge")

ROLE = "the relay of the ledger"
INTERVAL = 1.0
"""Seconds after which it looks in any case: a poke may be lost. All partitions of a listener look
at the same moments, so that they can share what they read."""
FULL = 100
"""Rows of a pass from which on another follows at once, after as long as it took."""
REST = 0.015
"""Seconds after a look until an end causes another, for each partition that shares the connections,
and at least as long as that look took: what ends meanwhile shares a pass."""
RETRY_PAUSE = 1.0
LONG = 15.0
"""Seconds after which a pass that has not ended is reported. A large rebuild may take as long."""
MOST_RANKS = 10


class Relayer:
    """Makes passes: at each look with the lowest rank, and the less often the higher its rank is.

    Those of a lower rank may lack the ledger. If two make a pass at once, one finds that out.
    """

    def __init__(
        self, footing: Footing, books: "Books", standing: Standing, *, hooks: Hooks
    ) -> None:
        self._footing = footing
        self._books = books
        self._standing = standing
        self._hooks = hooks
        self._poked = asyncio.Event()
        self._ended = False
        """Whether a row is to learn something that may have come too late for the latest look."""
        self._rest = 0.0
        """Seconds after the latest look for which ends wait."""
        self._is_rested = False
        """Whether these have passed."""
        self._looked = time.monotonic()
        self._error: LedgerError | None = None

    def poke(self) -> None:
        """Look at once: a row was committed."""
        self._poked.set()

    def hear_end(self) -> None:
        """Look soon: a row is to learn how an attempt ended. Of ends close together, one counts."""
        self._ended = True
        if self._is_rested:
            self._poked.set()

    async def run(self) -> None:
        """Make passes, for ever."""
        while True:
            pause = await self.run_once()
            rest = min(self._rest, pause)
            if not await self._is_poked(within=rest):
                self._is_rested = True
                if not self._ended:
                    await self._is_poked(within=pause - rest)

    async def _is_poked(self, *, within: float) -> bool:
        """Wait for a poke, for so many seconds; returns whether one came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                return await self._poked.wait()
        return False

    async def run_once(self) -> float:
        """Make a pass in each direction, if it is its turn; returns the seconds to pause."""
        self._poked.clear()
        self._ended = self._is_rested = False
        self._rest = INTERVAL
        began = time.monotonic()
        if began < self._looked + min(self._standing.rank, MOST_RANKS) * INTERVAL:
            return _until_next(began)
        self._looked = began
        outage = self._footing.now.outage
        try:
            carried = await self._make_passes()
        except ServerError as error:
            outage.failed(ROLE, error)
            return RETRY_PAUSE
        except LedgerError as error:
            self._report(error)
            return RETRY_PAUSE
        finally:
            for passed in self._books.take_passed():
                self._hooks.emit(passed)
        outage.answered(ROLE)
        self._report(None)
        took = time.monotonic() - began
        if carried >= FULL:
            await asyncio.sleep(took)
            return 0.0
        self._rest = max(REST * self._books.partitions, took)
        return _until_next(time.monotonic())

    async def _make_passes(self) -> int:
        """Make them however long it takes; what takes long is reported, and goes on."""
        passes = self._books.begin(self._books.pass_once, time.monotonic())
        try:
            done, _ = await asyncio.wait([passes], timeout=LONG)
            if not done:
                self._report(LedgerUnreachable(f"its database has not answered for {LONG:g} s"))
            return await passes
        finally:
            passes.cancel()  # nobody asks for their end when the listener stops

    def _report(self, error: LedgerError | None) -> None:
        if error is not None and type(error) is not type(self._error):
            logger.error(
                "the relay of the ledger stands still: %s (reported once)", error,
                extra=event("relay stopped", error=str(error)),
            )  # fmt: skip
        if self._error is not None and error is None:
            logger.warning("the relay of the ledger goes on", extra=event("relay goes on"))
        self._error = error


def _until_next(now: float) -> float:
    """The seconds until the next look."""
    return INTERVAL - now % INTERVAL
