"""Sends rows that were just committed to the server, before the numbered batch that brings them.

That needs neither a number nor a wait for the disk. The batch finds the records, and stamps the
rows: see docs/internals/outbox-relay.md.
"""

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import Row

from expirebridge.errors import InvalidTask
from expirebridge.ledger import calls
from expirebridge.ledger.calls import RelayedRow
from expirebridge.ledger.relay import BatchSteps, Relay, relayed_row
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import DesiredState, Status
from expirebridge.store.client import Store


class EarlySends:
    """Sends rows of one ledger to one partition of one server, before their batch."""

    def __init__(self, relay: Relay, relay_store: RelayStore, store: Callable[[], Store]) -> None:
        self._relay = relay
        self._relay_store = relay_store
        self._store = store

    def send(self, ids: Collection[str], *, least: int) -> BatchSteps[bool]:
        """Send the new ones of these rows whose ids are free; False if others wait as well.

        `least` is the number of a batch that the server must have seen. Until a batch was completed
        here, and after a new connection to either side, nothing is sent. Raises a ServerError, or
        SQLAlchemy's errors.
        """
        latest = self._relay.latest
        if latest is None or not self._relay.is_checked(*latest):
            return False
        found = self._relay_store.read_waiting(ids)
        rows = [sent for row in found if (sent := _to_send(row))]
        yield "read"
        if not rows:
            return not found
        number = max(least, latest.checkpoint.number)
        made = self._store().run(calls.send_early(rows, nonce=latest.state.nonce, least=number))
        yield "sent"
        return made is not None and len(rows) == len(found)


def _to_send(row: Row[Any]) -> RelayedRow | None:
    """What is sent of a row, if it is new to the server; None if it is left to its batch."""
    if row.stamp or row.status != Status.WAITING or row.wanted != DesiredState.NONE:
        return None
    try:
        return relayed_row(row, row.now)
    except InvalidTask:
        return None
