"""The gate: whether tasks of the ledger may be claimed on the present connection."""

import asyncio
from typing import NamedTuple

from expirebridge.listener.session import PartitionSession, SessionOwner


class Link(NamedTuple):
    """What a listener stands on, and how many connections it has made there."""

    session: PartitionSession
    made: int


class LedgerGate:
    """Open on the link for which the numbers of ledger and server were compared, and on no other.

    Its keeper opens it. A new connection closes it: it may lead to a server that lost something.
    """

    def __init__(self, consumer: SessionOwner) -> None:
        self._consumer = consumer
        self._opened: Link | None = None
        self._number = 0
        self.openings = 0
        """How often it was opened: each time what was passed over is looked at again."""
        self.wanted = asyncio.Event()
        """Is set when a closed gate was found: its keeper looks again."""

    @property
    def link(self) -> Link:
        """The present one."""
        session = self._consumer.session
        return Link(session, session.connection_count.made)

    @property
    def number(self) -> int | None:
        """The number of the pass that the server must have seen; None while it is closed."""
        if self._opened == self.link:
            return self._number
        self.wanted.set()
        return None

    def open(self, link: Link, number: int) -> bool:
        """Open it for this link, whose server has seen that pass; whether it was closed."""
        was_closed = self._opened != link
        self._opened, self._number = link, number
        self.openings += was_closed
        return was_closed

    def close(self) -> None:
        """Claim nothing of the ledger until it is opened again."""
        self._opened = None
