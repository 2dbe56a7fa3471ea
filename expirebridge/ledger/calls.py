"""The commands of the relay: rows to Redis, and the states of tasks back to rows."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from expirebridge.ledger.rows import RowVersion
from expirebridge.settings import Settings
from expirebridge.store.record_values import text
from expirebridge.task.calls.call import (
    PARTITIONS,
    Argument,
    Command,
    OfId,
    Steps,
    at_if_available,
    milliseconds,
    rows_of,
    script,
)

MAX_ROWS = 1000
"""The most rows of a batch to Redis, which are sent in several scripts."""
MAX_STATES = 100
"""The most tasks of a batch back, whose states one script reads."""
MOST_DIRTY = 100_000
"""Beyond so many lagging rows, no task of a ledger is claimed: see include/claims.lua."""

HORIZON = "horizon="
"""The beginning of the word of a heartbeat that says how many ms ahead a listener relays rows."""


class Lost(NamedTuple):
    """A range of stamps: the server lost what batches between the two numbers had relayed."""

    after: int
    """The last batch that it had seen."""
    before: int
    """The batch in which the relay noticed: what is stamped since is there."""

    def has(self, stamp: int) -> bool:
        """True if a row with this stamp is one of them."""
        return self.after < stamp < self.before

    def __str__(self) -> str:
        return f"{self.after} {self.before}"

    @classmethod
    def read(cls, text: str) -> "Lost | None":
        """As the server has it; None for an empty text."""
        after, _, before = text.partition(" ")
        return cls(int(after), int(before)) if before else None


class RedisCheckpoint(NamedTuple):
    """The checkpoint of the relay in one partition of Redis."""

    nonce: str
    """The pairing id; empty if the server is bound to no ledger."""
    number: int
    """The number of the last batch seen here."""
    now: int = 0
    """The server's time, in ms."""
    dirty: int = 0
    """The number of tasks whose rows are lagging."""
    dirty_since: int | None = None
    """The time of the first change that is not written back, in microseconds."""
    stuck: int = 0
    """The number of tasks whose rows could not be written: locked for long, or refused."""
    horizon: int | None = None
    """How many ms ahead rows are relayed; None: all are, or no relay has said so."""
    run_id: str | None = None
    """The run id of the server's process; None if it is hidden, or was not asked for."""
    stuck_ids: tuple[str, ...] = ()
    """Some of those tasks."""
    unmarked: Lost | None = None
    """What the server lost, as long as not all of these rows are marked: some are locked."""

    @property
    def behind(self) -> float:
        """For how many seconds the first of them has waited; 0 if none does."""
        waited = (self.now * 1000 - self.dirty_since) / 1e6 if self.dirty_since else 0.0
        return max(waited, 0.0)


class WriteBackBacklog(NamedTuple):
    """The pending write-backs from Redis to rows, of several partitions."""

    dirty: int
    """Tasks whose rows are lagging, in all partitions."""
    largest: int
    """The most of them in one partition."""
    oldest: float | None
    """For how many seconds the first of them has waited; None if none waits."""
    stuck: int = 0
    """Tasks whose rows could not be written: locked for long by others, or refused."""

    @classmethod
    def of(cls, checkpoints: Iterable[RedisCheckpoint]) -> "WriteBackBacklog":
        """Add up those of several partitions."""
        each = list(checkpoints)
        counts = [one.dirty for one in each]
        waits = [one.behind for one in each if one.dirty_since]
        stuck = sum(one.stuck for one in each)
        return cls(sum(counts), max(counts, default=0), max(waits, default=None), stuck)


def read_ledger() -> Command[RedisCheckpoint]:
    """Read the checkpoint of one partition."""
    return script("read_ledger", read=_read_checkpoint)


def read_horizon(id: str) -> Command[int | None]:
    """Read how many ms ahead rows are relayed where this id belongs; None: all are."""
    return script("read_ledger", read=lambda reply: _read_checkpoint(reply).horizon, route=OfId(id))


def read_run_id() -> Command[str | None]:
    """Read the run id of the server; None if it has none, or the login lacks the right."""
    return script("read_run_id", read=_read_run_id)


def read_ledgers(*, run_ids: bool = False) -> Steps[dict[int, RedisCheckpoint]]:
    """Read that of each partition, by its number; those that do not answer are left out."""
    known: dict[int, RedisCheckpoint] = {}
    # Its reply also brings the number of partitions.
    first = yield from at_if_available(read_ledger(), 0, fail_fast=True)
    if first is not None:
        known[0] = first
    for number in range(1, (yield from PARTITIONS)):
        found = yield from at_if_available(read_ledger(), number, fail_fast=True)
        if found is not None:
            known[number] = found
    for number in known if run_ids else ():
        run_id = yield from at_if_available(read_run_id(), number, fail_fast=True)
        known[number] = known[number]._replace(run_id=run_id)
    return known


def _read_checkpoint(reply: list[Any]) -> RedisCheckpoint:
    nonce, number, now, dirty, since, stuck, horizon, unmarked, *stuck_ids = reply
    return RedisCheckpoint(
        text(nonce), number, now, dirty, since if since >= 0 else None, stuck,
        int(horizon) if re.fullmatch(rb"[0-9]{1,16}", horizon) else None,
        unmarked=Lost.read(text(unmarked)), stuck_ids=tuple(text(id) for id in stuck_ids),
    )  # fmt: skip


def _read_run_id(reply: bytes) -> str | None:
    return text(reply) or None


@dataclass(frozen=True, kw_only=True, slots=True)
class RelayedRow:
    """A row for the server."""

    id: str
    version: RowVersion
    what: str
    """`waits`, `cancel`, or the state in which it ended."""
    hint: str
    """Words. `moved`: its time is new. `rebuilt`: the server may have lost it."""
    call: bytes
    when: str
    """`in`, `at`, or `never`: it was paused."""
    ms: int
    fields: dict[str, Argument] = field(default_factory=dict)

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for relay.lua."""
        pairs = [item for pair in self.fields.items() for item in pair]
        return (
            self.id, str(self.version), self.what, self.hint, self.call, self.when, self.ms,
            len(self.fields), *pairs,
        )  # fmt: skip


class RelayCode(IntEnum):
    """The reply of relay.lua for one row."""

    DONE = 1
    KEPT = 2  # its task has this version already
    TAKEN = 3  # a task that is not of the ledger has the id


class RelayResult(NamedTuple):
    """The result of relaying one row."""

    code: RelayCode
    due: int | None
    """The due time of its task, in ms, if it waits or runs."""


def relay(
    rows: Iterable[RelayedRow],
    *,
    checkpoint: RedisCheckpoint,
    nonce: str,
    number: int,
    settings: Settings,
    unmarked: Lost | None = None,
) -> Command[list[RelayResult] | None]:
    """Relay rows, as the batch of this number; None if another batch or ledger was there.

    `checkpoint` was read when the batch began. `unmarked` is what the server lost, if some of these
    rows could not be marked.
    """
    items = [argument for row in rows for argument in row.encode()]
    return script(
        "relay", checkpoint.nonce, nonce, checkpoint.number, number, milliseconds(settings.lease),
        milliseconds(settings.keep_succeeded), str(unmarked or ""), *items,
        read=_read_results,
    )  # fmt: skip


def _read_results(reply: list[Any]) -> list[RelayResult] | None:
    if not reply[0]:
        return None
    return [
        RelayResult(RelayCode(code), due if due >= 0 else None)
        for code, due in rows_of(reply[2:], 2)
    ]


def send_early(rows: Iterable[RelayedRow], *, nonce: str, least: int) -> Command[list[bool] | None]:
    """Create the tasks of rows before their batch; of each, whether it was created.

    None if the server is bound to another ledger, or has not seen the batch of the number `least`:
    then nothing was written.
    """
    items = [argument for row in rows for argument in row.encode()]
    return script("send_early", nonce, least, *items, read=_read_sent)


def _read_sent(reply: list[int]) -> list[bool] | None:
    return [bool(each) for each in reply] or None


class EarlyVerdict(IntEnum):
    """The reply of judge_early.lua for a claimed task that has no row."""

    NOT_EARLY = 0
    WAITS = 1
    OVER = 2  # its record is no longer that of a ledger, and has ended


def judge_early(id: str, token: str, reason: str, settings: Settings) -> Command[EarlyVerdict]:
    """Judge a claimed task without a row: `reason` is why it ends, if it has waited for long."""
    return script(
        "judge_early", id, token, milliseconds(settings.keep_succeeded), reason, read=EarlyVerdict
    )


class WriteBack(NamedTuple):
    """The state of a dirty task, for its row."""

    id: str
    mark: bytes
    """The same as the server says it: another client may have written anything there."""
    since: bytes
    """Since when it is dirty, as the server says it."""
    version: RowVersion | None
    """None: there is no such record any more."""
    state: str
    due: int | None
    attempt: int
    error: str
    cancelling: bool
    """True if it runs, and no further attempt is to follow."""


class Dirty(NamedTuple):
    """The dirty tasks that changed first, and the checkpoint beside them."""

    checkpoint: RedisCheckpoint
    entries: Sequence[WriteBack]


def read_dirty(most: int) -> Command[Dirty]:
    """Read the states of dirty tasks, the oldest first."""
    return script("read_dirty", most, read=_read_dirty)


def _read_dirty(reply: list[Any]) -> Dirty:
    nonce, number, *columns = reply
    entries = [
        WriteBack(
            text(id), id, since, RowVersion.read(version), text(state), due if due >= 0 else None,
            attempt, text(error), bool(cancel),
        )
        for id, since, version, state, due, attempt, error, cancel in rows_of(columns, 8)
    ]  # fmt: skip
    return Dirty(RedisCheckpoint(text(nonce), number), entries)


def forget_dirty(
    dirty: Dirty, *, number: int, again: Mapping[str, float] | None = None
) -> Command[bool]:
    """Note, as the batch of this number, that these were written back.

    `again` has the seconds after which those are read again that were not. False if another batch
    or ledger was there, or if the server has lost something of it.
    """
    pauses = again or {}
    items = [
        part
        for entry in dirty.entries
        for part in (entry.mark, entry.since, milliseconds(pauses.get(entry.id, 0)))
    ]
    checkpoint = dirty.checkpoint
    return script("forget_dirty", checkpoint.nonce, checkpoint.number, number, *items, read=bool)


def bind_ledger(nonce: str) -> Command[None]:
    """Bind the server to a ledger, as one of which it has seen nothing."""
    return script("bind_ledger", nonce, read=lambda _: None)


def horizon_word(horizon: float | None) -> str:
    """The word of a heartbeat for these seconds; None: all rows are relayed."""
    return f"{HORIZON}{'' if horizon is None else milliseconds(horizon)}"


def note_horizon(horizon: int | None) -> Command[None]:
    """Note how many ms ahead rows are relayed; None: all are."""
    return script("note_horizon", "" if horizon is None else horizon, read=lambda _: None)


def forget_ended(ids: Sequence[str], *, nonce: str, least: int) -> Command[list[str]]:
    """Forget tasks that have ended; returns the ids of which nothing is left here.

    `least` is the number of the pass that the server must have seen: of one that has lost something
    nothing is forgotten.
    """

    def read(reply: list[int]) -> list[str]:
        """The ids of which the server says that nothing is left."""
        return [id for id, left in zip(ids, reply, strict=True) if left]

    return script("forget_ended", nonce, least, *ids, read=read)
