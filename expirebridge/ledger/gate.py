"""The gate that closes a ledger's tasks to claims until ledger and server agree."""

import asyncio
from typing import NamedTuple

from expirebridge.listener.session import PartitionSession, SessionOwner


class Link(NamedTuple):
    """Session of a partition, and the number of connections made in it."""

    session: PartitionSession
    made: int


class LedgerGate:
    """Lets tasks of the ledger be claimed while the checkpoints of ledger and server agree.

    ConsistencyCheck opens it for one link. A new connection closes it: it may lead to a server that
    has lost data.
    """

    def __init__(self, consumer: SessionOwner) -> None:
        self._consumer = consumer
        self._opened: Link | None = None
        self._number = 0
        self.openings = 0
        """How often it was opened: each time what was passed over is looked at again."""
        self.wanted = asyncio.Event()
        """Set when a closed gate held up a task; wakes the ConsistencyCheck."""

    @property
    def link(self) -> Link:
        """The present one."""
        session = self._consumer.session
        return Link(session, session.connection_count.made)

    @property
    def number(self) -> int | None:
        """The number of the batch that the server must have seen; None while it is closed."""
        if self._opened == self.link:
            return self._number
        self.wanted.set()
        return None

    def open(self, link: Link, number: int) -> bool:
        """Open it for this link, whose server has seen that batch; True if it was closed."""
        was_closed = self._opened != link
        self._opened, self._number = link, number
        self.openings += was_closed
        return was_closed

    def close(self) -> None:
        """Claim nothing of the ledger until it is opened again."""
        self._opened = None
