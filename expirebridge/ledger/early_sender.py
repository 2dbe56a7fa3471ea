"""When rows that were just committed are sent before their batch, and when the batch follows."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from expirebridge.errors import LedgerError, ServerError
from expirebridge.ledger.row_check import LedgerGate
from expirebridge.listener.session import Membership

if TYPE_CHECKING:
    from expirebridge.ledger.partition import LedgerPartition

logger = logging.getLogger("expirebridge")


class NextBatch(Protocol):
    """The loop that relays batches."""

    def notify(self) -> None:
        """Relay at once."""
        ...

    def hear_end(self) -> None:
        """Relay soon, and together with what else there is."""
        ...


class EarlySender:
    """Sends rows that were just committed before their batch, while the gate is open.

    The listener of the lowest rank does so, as it relays. The batch of what was sent is in no
    hurry: it is shared with ends. What could not be sent is relayed at once.
    """

    role = "early sends of the ledger"
    most = 100
    """Rows that wait to be sent. What is committed beyond is left to the relay."""
    patience = 0.1
    """Seconds after which nothing more is left to a send that has not ended."""

    def __init__(
        self, ledger: "LedgerPartition", gate: LedgerGate, membership: Membership,
        relay_loop: NextBatch,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._gate = gate
        self._membership = membership
        self._relay_loop = relay_loop
        self._ids: dict[str, None] = {}
        self._heard = asyncio.Event()
        self._is_slow = False
        """True while a send takes longer than its patience."""

    def hear(self, ids: Sequence[str]) -> bool:
        """Send these rows, if that can be; False if it is left to the relay."""
        if (
            self._is_slow
            or self._membership.turn
            or self._gate.opened_with is None
            or len(self._ids) + len(ids) > self.most
        ):
            return False
        self._ids |= dict.fromkeys(ids)
        self._heard.set()
        return True

    async def run(self) -> None:
        """Send what was heard of, for ever."""
        while True:
            await self._heard.wait()
            self._heard.clear()
            ids, self._ids = list(self._ids), {}
            try:
                sent = await self._send(ids)
            except (LedgerError, ServerError) as error:
                logger.debug("%s: %s", self.role, error)
                sent = False
            if sent:
                self._relay_loop.hear_end()
            else:
                self._relay_loop.notify()

    async def _send(self, ids: Sequence[str]) -> bool:
        number = self._gate.opened_with
        if number is None:
            return False
        call = self._ledger.begin_early(ids, number)
        try:
            done, _ = await asyncio.wait([call], timeout=self.patience)
            if not done:
                self._is_slow = True
                self._relay_loop.notify()
            return await call
        finally:
            self._is_slow = False
            call.cancel()
