"""The figures of a ledger, for commands, doctor, metrics and dashboard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from expirebridge.ledger.backlog import Reach
from expirebridge.ledger.calls import RedisCheckpoint, WriteBackBacklog
from expirebridge.ledger.held_rows import HeldRow
from expirebridge.ledger.relay_statements import RelayProgress


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBack:
    """The rows that stay in SQL until they are due within the horizon."""

    count: int = 0
    first: datetime | None = None
    """When the first of them is due; None if there is none."""
    last: datetime | None = None
    """When the last of them is due."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingForIds:
    """The rows that came near while other tasks had their ids."""

    count: int = 0
    example: str | None = None
    """The id of one of them; None if there is none."""


class SealedRows(NamedTuple):
    """The keys that rows need which are kept back."""

    until: Mapping[str, datetime]
    """When the last row is due that is sealed with a key, by the key's name."""
    is_cut: bool = False
    """True if there are more rows than were looked at, which are due before those."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerFigures:
    """Figures of a ledger and its server that are cheap to read."""

    reach: Reach
    """Which rows are relayed, as the listener says that connected last."""
    now: datetime
    """The database's clock."""
    to_relay: int
    """Rows that are new or changed and not yet relayed, without those that are kept back; counted
    up to 10,000."""
    kept_back: KeptBack
    """Counted up to 10,000."""
    for_ids: WaitingForIds
    """Counted up to 10,000."""
    to_rebuild: int
    """Rows that Redis lost and does not have again yet; counted up to 10,000."""
    oldest: float
    """For how many seconds the oldest new row has waited for the relay; 0 if none waits."""
    refused: int
    """Rows that were refused within the last day, among the 10,000 that failed last."""
    write_back: WriteBackBacklog
    """The pending write-backs of all partitions that answer."""
    progress: Mapping[int, RelayProgress]
    """The relay's progress in each partition, as SQL has it."""
    checkpoints: Mapping[int, RedisCheckpoint]
    """The checkpoint of each partition that answers, as Redis has it."""
    held: Sequence[HeldRow]
    """Rows that another transaction has locked for long."""

    @property
    def partitions(self) -> int:
        """The number of partitions that have a relay."""
        return max(self.progress, default=0) + 1

    @property
    def lost(self) -> bool:
        """True if a partition of Redis lacks relayed rows: none of its ledger's tasks is claimed
        then."""
        return self.to_rebuild > 0 or any(
            checkpoint.number < self.progress[partition].stamp
            for partition, checkpoint in self.checkpoints.items()
            if partition in self.progress
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionProgress:
    """The relay's progress in one partition, as `ledger status` prints it."""

    partition: int
    number: int
    """The last batch number that was taken."""
    stamp: int
    """The highest batch number in a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerStatus:
    """All rows of a ledger, counted."""

    ledger: str
    """Its name."""
    version: int
    """Of the tables."""
    waiting: int
    """Tasks that wait or run."""
    succeeded: int
    failed: int
    cancelled: int
    to_relay: int
    """Rows that are new or changed and not yet relayed, without those that are kept back."""
    to_rebuild: int
    """Rows that Redis lost and does not have again yet."""
    horizon: float | None
    """How many seconds ahead rows are relayed, as the listener says that connected last; None: all
    rows are."""
    kept_back: KeptBack
    for_ids: WaitingForIds
    refused: int
    """Rows that cannot be tasks, as long as they are kept."""
    oldest: float | None
    """How many seconds the oldest row to be relayed waits, on the database's clock."""
    passes: list[PartitionProgress] = field(default_factory=list)
    held: list[HeldRow] = field(default_factory=list)
    """Rows that another transaction has locked for long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfit:
    """A row that cannot be relayed."""

    id: str
    reason: str
