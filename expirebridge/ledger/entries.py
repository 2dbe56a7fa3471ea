"""What the relay reads from the tables, and what it writes there."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Row

from expirebridge.model.row_state import RowVersion, Status
from expirebridge.store.commands.ledger import RedisCheckpoint

REFUSED: Final = "refused: "
"""What the message of a row that was refused begins with."""


class RelayProgress(NamedTuple):
    """How far the passes of one partition got, as the ledger knows."""

    number: int
    stamp: int
    nonce: str
    met: str | None
    """What is remembered of both sides: see `binding.Met`."""


class RelayState(NamedTuple):
    """What the ledger knows of its passes."""

    number: int
    """The last one taken."""
    stamp: int
    """The highest that was ever given to a row."""
    nonce: str
    """By which ledger and server know each other."""
    waiting: bool
    """Whether a row waits to be carried."""
    rebuilding: bool
    """Whether one of them is to be rebuilt."""
    unsorted: bool
    """Whether a row waits of which nobody knows yet to which partition it belongs."""

    def agrees_with(self, known: RedisCheckpoint) -> bool:
        """Whether the server has lost nothing of what was carried there, or has it again.

        And whether the ledger has lost nothing: it knows of each pass that the server has seen.
        """
        agree = self.nonce == known.nonce and self.stamp <= known.number <= self.number
        return agree and not self.rebuilding


class RowBatch(NamedTuple):
    """Rows to be carried."""

    rows: Sequence[Row[Any]]
    now: int
    """The database's time, in ms."""


class Carried(NamedTuple):
    """What became of a row that was carried."""

    row: Row[Any]
    due: int | None
    """When its task is due, in ms; None: as it was."""
    refusal: str | None = None
    """Why it was refused, if it was."""


class StatusUpdate(NamedTuple):
    """What a row learns."""

    id: str
    version: RowVersion
    status: Status
    due: int | None
    retry_times: int
    message: str | None
    runs: bool
    """Whether its task runs."""
    cancelling: bool
    """Whether no further attempt is to follow the one that runs."""
