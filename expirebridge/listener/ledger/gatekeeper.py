"""The gatekeeper: opens the gate for tasks of the ledger when ledger and server agree."""

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from expirebridge.errors import LedgerError, ServerError
from expirebridge.listener.ledger.gate import Gate, Link
from expirebridge.listener.session import Footing
from expirebridge.listener.wakeups import Doorbell
from expirebridge.model.log_fields import event
from expirebridge.store.commands import ledger as calls

if TYPE_CHECKING:
    from expirebridge.ledger.partition import Books

logger = logging.getLogger("expirebridge")

ROLE = "comparing with the ledger"
CLOSED_PAUSE = 0.1
FAILED_PAUSE = 1.0
DOUBTS = 3
"""How often in a row the numbers must differ before an open gate is closed: while a pass ends, its
rows are stamped a moment before the server has seen it."""


class Gatekeeper:
    """Compares the ledger's numbers with the server's: after each new connection, and now and then.

    After a new connection it first takes a number, once: a pass that stalled before cannot end.
    """

    def __init__(
        self, footing: Footing, books: "Books", gate: Gate, *, doorbell: Doorbell,
        pause: float,
    ) -> None:  # fmt: skip
        self._footing = footing
        self._books = books
        self._gate = gate
        self._doorbell = doorbell
        self._pause = pause
        self._fenced: Link | None = None
        self._doubts = 0
        self._failing = False

    async def run(self) -> None:
        """Keep the gate, for ever."""
        while True:
            pause = await self.run_once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._gate.wanted.wait()
            if self._gate.wanted.is_set():
                self._gate.wanted.clear()
                await asyncio.sleep(0 if self._gate.link != self._fenced else CLOSED_PAUSE)

    async def run_once(self) -> float:
        """Compare, and open or close the gate; returns for how many seconds to pause."""
        ground = self._footing.now
        try:
            agreed = await self._compare()
        except ServerError as error:
            ground.outage.failed(ROLE, error)
            self._gate.close()
            return FAILED_PAUSE
        except LedgerError as error:
            self._report(error)
            self._gate.close()
            return FAILED_PAUSE
        ground.outage.answered(ROLE)
        self._report(None)
        # A task that waits for the gate wakes this, so it need not ask often for long.
        return self._pause if agreed else min(CLOSED_PAUSE * max(self._doubts, 1), self._pause)

    async def _compare(self) -> bool:
        link = self._gate.link
        if link != self._fenced:
            seen = (await link.ground.store.run(calls.read_ledger())).number
            await self._books.run(self._books.fence, seen)
            self._fenced = link
        known = await link.ground.store.run(calls.read_ledger())
        numbers = await self._books.run(self._books.read_beside, known)
        if numbers is None or not numbers.agrees_with(known):
            self._doubts += 1
            if self._doubts >= DOUBTS or (numbers is not None and numbers.rebuilding):
                self._gate.close()
            return False
        self._doubts = 0
        if link == self._gate.link and self._gate.open(link, known.number):
            self._doorbell.ring()
        return link == self._gate.link

    def _report(self, error: LedgerError | None) -> None:
        if error is not None and not self._failing:
            logger.error(
                "tasks of the ledger wait: %s (reported once)", error,
                extra=event("ledger away", error=str(error)),
            )  # fmt: skip
        if error is None and self._failing:
            logger.warning("the ledger works again", extra=event("ledger back"))
        self._failing = error is not None
