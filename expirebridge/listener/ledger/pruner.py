"""The pruner: deletes rows of the ledger whose tasks finished long ago."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from expirebridge.errors import LedgerError, ServerError
from expirebridge.listener.standing import Standing
from expirebridge.model.log_fields import event

if TYPE_CHECKING:
    from expirebridge.ledger.partition import Books

logger = logging.getLogger("expirebridge")

ROLE = "deleting old rows of the ledger"
INTERVAL = 60.0
"""Seconds between two rounds; the less often, the higher the rank is."""
MOST_RANKS = 10


class Pruner:
    """Goes through the finished rows now and then, and deletes those that are old, in batches.

    After each batch it rests for as long as that took: deleting is never in a hurry.
    """

    def __init__(self, books: "Books", standing: Standing, *, keep: float) -> None:
        self._books = books
        self._standing = standing
        self._keep = keep

    async def run(self) -> None:
        """Make rounds, for ever."""
        while True:
            await asyncio.sleep(INTERVAL * (1 + min(self._standing.rank, MOST_RANKS)))
            await self.run_once()

    async def run_once(self) -> None:
        """Make one round. What goes wrong is left to the next one: the relay reports it."""
        try:
            count = await self._make_round()
        except (LedgerError, ServerError) as error:
            logger.debug("%s: %s", ROLE, error)
            return
        if count:
            logger.info(
                "deleted %d rows of the ledger whose tasks finished long ago", count,
                extra=event("rows pruned", count=count),
            )  # fmt: skip

    async def _make_round(self) -> int:
        count, place = 0, None
        while True:
            began = time.monotonic()
            pruned = await self._books.begin(self._books.prune, self._keep, place)
            count, place = count + pruned.deleted, pruned.place
            if place is None:
                return count
            await asyncio.sleep(time.monotonic() - began)
