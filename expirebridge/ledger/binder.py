"""The binder: sees to it that a ledger sends nothing to a Redis that is not its own."""

import logging
from collections.abc import Callable
from typing import Final

from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.binding import (
    REBUILD,
    Addresses,
    Met,
    Seen,
    check_numbers,
    check_partitions,
    check_sides,
    news_of,
)
from expirebridge.ledger.entries import RelayState
from expirebridge.ledger.relay_store import RelayStore, new_nonce
from expirebridge.model.log_fields import event
from expirebridge.store.client import Store
from expirebridge.store.commands import ledger as calls
from expirebridge.store.commands.ledger import RedisCheckpoint

logger = logging.getLogger("expirebridge")

TRIES: Final = 5
"""How often it is tried to remember what was learnt, while others learn, too."""


class Binder:
    """Checks on each new connection whether a ledger and a partition of a server are each other's.

    What is new of one of them is remembered beside the passes. `link` says on which connections
    both stand: as long as it is equal, neither is asked again.
    """

    def __init__(
        self, passbook: RelayStore, store: Callable[[], Store], place: Addresses,
        link: Callable[[], object],
    ) -> None:  # fmt: skip
        self._passbook = passbook
        self._store = store
        self._place = place
        self._link = link
        self._checked: object = None
        """The nonces, and the link, for which it was checked last."""

    def begin(self, known: RedisCheckpoint) -> None:
        """Bind the two to each other, if neither was bound before. Raises LedgerUnsuitable."""
        if known.nonce:
            raise LedgerUnsuitable(
                "Redis belongs to another ledger, or this one was restored to before its first "
                f"pass. {REBUILD}"
            )
        for text in self._passbook.met_by_all():
            check_partitions(Met.read(text), self._place.partitions)
        self._passbook.begin(new_nonce(), Met.first(self._see()).text)

    def rebind(self, *, above: int) -> str:
        """Bind the ledger to this server, whatever it knew; returns the nonce for the server.

        The server has seen no pass beyond `above`.
        """
        nonce, met = new_nonce(), Met.first(self._see()).text
        if self._passbook.read() is None:
            self._passbook.begin(nonce, met)
        self._passbook.rebind(nonce, met, above=above)
        return nonce

    def check(self, numbers: RelayState, known: RedisCheckpoint) -> None:
        """Raise LedgerUnsuitable unless they are each other's; see `binding`."""
        check_numbers(numbers, known)
        state = (numbers.nonce, known.nonce, self._link())
        if state != self._checked:
            self._get_acquainted(numbers.nonce, known)
            self._checked = state

    def _get_acquainted(self, nonce: str, known: RedisCheckpoint) -> None:
        """Compare both with what is remembered of them, and remember what is new."""
        seen = self._see()
        for _ in range(TRIES):
            text = self._passbook.met()
            met = Met.read(text)
            check_partitions(met, seen.place.partitions)
            check_sides(met, seen, known)
            now = met.with_(seen)
            if now == met:
                return
            if self._passbook.remember(nonce, now.text, instead_of=text):
                _report(news_of(met, now))
                return

    def _see(self) -> Seen:
        run_id = self._store().run(calls.read_run_id())
        return Seen(self._place, self._passbook.identity(), run_id)


def _report(news: list[str]) -> None:
    for each in news:
        logger.info("the ledger has learnt: %s", each, extra=event("ledger learnt", news=each))
