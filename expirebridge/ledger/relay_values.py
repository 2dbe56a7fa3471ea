"""The values that the relay reads from the tables, and writes there."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Row

from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.row_state import RowVersion, Status

REFUSED: Final = "refused: "
"""The beginning of the message of a refused row."""


class RelayProgress(NamedTuple):
    """The relay's progress in one partition, as SQL has it."""

    number: int
    stamp: int
    nonce: str
    met: str | None
    """The addresses and identities of both sides: see `binding.Met`."""


class RelayState(NamedTuple):
    """The relay's state in one partition, as SQL has it."""

    number: int
    """The last batch number that was taken."""
    stamp: int
    """The highest batch number that was ever given to a row."""
    nonce: str
    """The pairing id of ledger and server."""
    waiting: bool
    """True if a row waits for the relay."""
    rebuilding: bool
    """True if one of them is to be rebuilt."""
    unsorted: bool
    """True if a waiting row has no partition yet."""

    def agrees_with(self, checkpoint: RedisCheckpoint) -> bool:
        """True if neither side lost anything, or the server has it again.

        The server has seen each batch that stamped rows, and SQL each batch that the server saw.
        """
        is_ours = self.nonce == checkpoint.nonce
        agree = is_ours and self.stamp <= checkpoint.number <= self.number
        return agree and not self.rebuilding


class RowBatch(NamedTuple):
    """Rows to be relayed."""

    number: int
    """The number of the batch, which was taken for it."""
    rows: Sequence[Row[Any]]
    now: int
    """The database's time, in ms."""


class RowResult(NamedTuple):
    """The result of a row that was relayed."""

    row: Row[Any]
    due: int | None
    """The due time of its task, in ms; None: as it was."""
    refusal: str | None = None
    """Why it was refused, if it was."""


class WrittenRows(NamedTuple):
    """What became of the rows that a batch was to write."""

    number: int
    """The number of the batch."""
    locked: Collection[str]
    """Ids of rows that were passed over, since another transaction has them locked."""
    refused: Mapping[str, str]
    """Ids of rows that the database refuses to write, each with what it said."""


class StatusUpdate(NamedTuple):
    """The new state of a row, written back from its task."""

    id: str
    version: RowVersion
    status: Status
    due: int | None
    retry_times: int
    message: str | None
    runs: bool
    """True if its task runs."""
    cancelling: bool
    """True if no further attempt is to follow the one that runs."""
