"""The binder: sees to it that a ledger sends nothing to a Redis that is not its own."""

import logging
from collections.abc import Callable
from typing import Final

from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger import calls
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
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.relay_statements import RelayState
from expirebridge.ledger.relay_store import RelayStore, new_nonce
from expirebridge.store.client import Store
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

TRIES: Final = 5
"""How often a change of an address or identity is written, while others write, too."""


class Binder:
    """Checks on each new connection that a ledger and a partition of a server are bound together.

    A new address or identity of one of them is stored with the relay's progress. `link` identifies
    the connections to both: as long as it is equal, neither is asked again.
    """

    def __init__(
        self, relay_store: RelayStore, store: Callable[[], Store], place: Addresses,
        link: Callable[[], object],
    ) -> None:  # fmt: skip
        self._relay_store = relay_store
        self._store = store
        self._place = place
        self._link = link
        self._checked: object = None
        """The pairing ids, and the link, of the last check."""

    def begin(self, checkpoint: RedisCheckpoint) -> None:
        """Bind the two to each other, if neither was bound before. Raises LedgerUnsuitable."""
        if checkpoint.nonce:
            raise LedgerUnsuitable(
                "Redis belongs to another ledger, or this one was restored to before its first "
                f"pass. {REBUILD}"
            )
        for text in self._relay_store.met_by_all():
            check_partitions(Met.read(text), self._place.partitions)
        self._relay_store.begin(new_nonce(), Met.first(self._see()).text)

    def rebind(self, *, above: int) -> str:
        """Bind the ledger to this server, whatever was there; returns the new pairing id.

        The server has seen no batch beyond `above`.
        """
        nonce, met = new_nonce(), Met.first(self._see()).text
        if self._relay_store.read() is None:
            self._relay_store.begin(nonce, met)
        self._relay_store.rebind(nonce, met, above=above)
        return nonce

    def check(self, state: RelayState, checkpoint: RedisCheckpoint) -> None:
        """Raise LedgerUnsuitable unless both are bound to each other; see `binding`."""
        check_numbers(state, checkpoint)
        present = self._present(state, checkpoint)
        if present != self._checked:
            self._check_identities(state.nonce, checkpoint)
            self._checked = present

    def is_checked(self, state: RelayState, checkpoint: RedisCheckpoint) -> bool:
        """True if `check` would find nothing and ask neither side."""
        in_order = checkpoint.number <= state.number
        return in_order and self._present(state, checkpoint) == self._checked

    def _present(self, state: RelayState, checkpoint: RedisCheckpoint) -> object:
        """The pairing ids, and the link."""
        return state.nonce, checkpoint.nonce, self._link()

    def _check_identities(self, nonce: str, checkpoint: RedisCheckpoint) -> None:
        """Compare the identities of both with those that are stored, and store a new one."""
        seen = self._see()
        for _ in range(TRIES):
            text = self._relay_store.met()
            met = Met.read(text)
            check_partitions(met, seen.place.partitions)
            check_sides(met, seen, checkpoint)
            now = met.with_(seen)
            if now == met:
                return
            if self._relay_store.remember(nonce, now.text, instead_of=text):
                _report(news_of(met, now))
                return

    def _see(self) -> Seen:
        run_id = self._store().run(calls.read_run_id())
        return Seen(self._place, self._relay_store.identity(), run_id)


def _report(news: list[str]) -> None:
    for each in news:
        logger.info("the ledger has learnt: %s", each, extra=event("ledger learnt", news=each))
