"""Reads and writes the tables for the relay: each method is one transaction."""

import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    case,
    delete,
    insert,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.exc import IntegrityError

from expirebridge.ledger.backlog import horizon_ms
from expirebridge.ledger.calls import Lost
from expirebridge.ledger.engine import Transactions, allow_undoing
from expirebridge.ledger.lost_rows import LostRows
from expirebridge.ledger.page_size import PageSize
from expirebridge.ledger.relay_statements import (
    RelayState,
    RowBatch,
    RowResult,
    StatusUpdate,
    WrittenRows,
    relay_statements,
)
from expirebridge.ledger.row_results import stamped, waiting, what_comes_of, written_back
from expirebridge.ledger.row_signals import deciding
from expirebridge.ledger.row_writes import (
    Write,
    has_row_locks,
    locked_of,
    unless_refused,
)
from expirebridge.ledger.rows import (
    DesiredState,
    RowState,
    RowVersion,
    Status,
    SyncState,
)
from expirebridge.ledger.schema import check_encoding, find, identity_of
from expirebridge.ledger.sql_tables import VERSION, Tables
from expirebridge.ledger.sql_types import NowMs
from expirebridge.task.keys import is_id
from expirebridge.task.partitions import PartitionLayout

MAX_SORTED: Final = 1000
"""Rows that are sorted into partitions at once."""
RESTORED: Final = 1_000_000
"""By so much revisions go up of which a restored database may have lost some."""
LOCKS_REMEMBERED: Final = 10.0
"""Seconds after a locked row was met for which such rows are left out of pages."""
ONE: Final = PartitionLayout("")
"""One partition."""
REFUSED_PAUSE: Final = 60.0
"""Seconds until a row is tried again that the database refuses to write."""
MOST_REFUSED: Final = 10_000
"""So many such rows are left out of pages."""


class RelayStore:
    """Reads and writes the rows of one ledger and partition for the relay.

    Batch numbers are fencing tokens: writes with a stale number are rejected. Each method may raise
    SQLAlchemy's errors; nothing was written then.
    """

    def __init__(
        self,
        engine: Transactions,
        made: Tables,
        *,
        name: str,
        layout: PartitionLayout = ONE,
        partition: int = 0,
        horizon: float | None = None,
    ) -> None:
        self.engine = engine
        self.name = name
        self.partition = partition
        self.layout = layout
        self._made, self._task, self._passes = made, made.task, made.passes
        passes = made.passes.c
        self._our_pass = (passes.ledger == name, passes.partition == partition)
        self._statements = relay_statements(made, is_single=layout.count == 1)
        self.horizon = horizon
        self._ledgers = {"b_ledger": name}
        self._own = {**self._ledgers, "b_partition": partition}
        """The parameters of each statement."""
        self._waiting = {**self._own, "b_horizon": horizon_ms(horizon)}
        """Those of each query for rows that wait."""
        self._met_locked = float("-inf")
        """When a batch last met rows that another transaction had locked, by time.monotonic()."""
        self.lost_rows = LostRows(engine, made, self._own, is_single=layout.count == 1)
        self.page_size = PageSize()
        self._refused: dict[str, float] = {}
        """Until when rows are left out of pages that the database refuses to write."""

    def read(self) -> RelayState | None:
        """Read the relay's state; None before the first batch.

        Raises LedgerUnsuitable for tables that are missing, older or newer: each batch begins here.
        """
        with self.engine.connect() as connection:
            found = connection.execute(self._statements.read, self._waiting).first()
            if found is None or found.version != VERSION:
                find(connection, self._made)
        return None if found is None else _state_of(found)

    def read_all(self) -> dict[int, RelayState]:
        """Read that of each partition that has relayed a batch, where there are several."""
        with self.engine.connect() as connection:
            rows = connection.execute(self._statements.read_all, self._waiting).all()
            if not rows or rows[0].version != VERSION:
                find(connection, self._made)
        return {row.partition: _state_of(row) for row in rows}

    def begin(self, nonce: str, met: str) -> None:
        """Start the numbers of batches at 0, unless that was done before."""
        values = {"number": 0, "stamp": 0, "nonce": nonce, "met": met}
        with suppress(IntegrityError), self.engine.begin() as connection:
            connection.execute(
                insert(self._passes).values(ledger=self.name, partition=self.partition, **values)
            )

    def identity(self) -> str:
        """Return what identifies this database. Raises LedgerUnsuitable if its encoding is none."""
        with self.engine.connect() as connection:
            check_encoding(connection)
            return identity_of(connection, self._passes)

    def met(self) -> str | None:
        """Return the stored identities of both sides; None before the first batch."""
        with self.engine.connect() as connection:
            return connection.scalar(select(self._passes.c.met).where(*self._our_pass))

    def met_by_all(self) -> Sequence[str | None]:
        """Return those of each partition."""
        passes = self._passes.c
        with self.engine.connect() as connection:
            return connection.scalars(select(passes.met).where(passes.ledger == self.name)).all()

    def remember(self, nonce: str, met: str, *, instead_of: str | None) -> bool:
        """Store the identities of both sides; False if another process wrote there meanwhile."""
        passes = self._passes
        with self.engine.begin() as connection:
            done = connection.execute(
                update(passes)
                .where(*self._our_pass, passes.c.nonce == nonce, passes.c.met == instead_of)
                .values(met=met)
            )
        return bool(done.rowcount)

    def begin_batch(
        self, expected: RelayState, *, seen: int, unmarked: Lost | None = None
    ) -> RowBatch | None:
        """Read the rows to relay, and take the next number for them; None if the state has changed.

        New rows come first, then lost ones, of these the ended ones first. `seen` is the number of
        the last batch that the server has seen: what it lost is marked, and so is what it lost
        before, as long as it says that some of that is `unmarked`. If it lost nothing, no rows wait
        and no mark was missing, no number is taken.
        """
        return unless_refused(lambda write: self._begin_batch(expected, seen, unmarked, write))

    def _begin_batch(
        self, expected: RelayState, seen: int, unmarked: Lost | None, write: Write
    ) -> RowBatch | None:
        has_lost, left, number = seen < expected.stamp, unmarked, None
        with self.engine.begin() as connection:
            if has_lost:
                # First: no batch stamps rows any more until this one ends.
                number = self._take(connection, expected, stamps=False)
                if number is None:
                    return None
                after = seen if unmarked is None else min(seen, unmarked.after)
                left = self.lost_rows.mark(connection, Lost(after, number), write)
            elif unmarked is not None and self.lost_rows.is_to_mark:
                left = self.lost_rows.mark(connection, unmarked, write)
            rows = self._page(connection)
            if number is None:
                if not rows and left == unmarked:
                    return RowBatch(expected.number, rows, 0, left)
                number = self._take(connection, expected, stamps=False)
        if number is None:
            return None
        return RowBatch(number, rows, rows[0].now if rows else 0, left)

    def _page(self, connection: Connection) -> Sequence[Row[Any]]:
        most = self.page_size.rows
        limit = {**self._waiting, "b_most": most}
        if without := self._refused_lately():
            limit["b_without"] = without
        elif time.monotonic() - self._met_locked > LOCKS_REMEMBERED:
            return connection.execute(self._statements.page, limit).all()
        rows: list[Row[Any]] = []
        for stretch in self._statements.tried_page if without else self._statements.free_page:
            if left := most - len(rows):
                rows += connection.execute(stretch, limit | {"b_most": left})
        return rows

    def _refused_lately(self) -> list[str]:
        """Return the ids of rows that are not tried now, since the database refused to write them.

        They would stand at the front of each page, and a page of them would hold up all others.
        """
        now = time.monotonic()
        self._refused = {id: end for id, end in self._refused.items() if end > now}
        return list(self._refused)[:MOST_REFUSED]

    def _note_refused(self, ids: Iterable[str]) -> None:
        self._refused |= dict.fromkeys(ids, time.monotonic() + REFUSED_PAUSE)

    def _locked(
        self, connection: Connection, ids: Collection[str], free: Iterable[str]
    ) -> list[str]:
        """Return those of `ids` that are locked by others; `free` are those that are not."""
        there = self._statements.there
        locked = locked_of(connection, ids, free, there=there, parameters=self._own)
        if locked:
            self._met_locked = time.monotonic()
        return locked

    def _free(self, connection: Connection, ids: Collection[str]) -> set[str]:
        """Lock the rows of these tasks, and return their ids, without those that are locked.

        SQLite locks no rows: there, none are read for it.
        """
        if not ids or not has_row_locks(connection):
            return set(ids)
        return set(connection.scalars(self._statements.free, {**self._own, "b_ids": list(ids)}))

    def _take(self, connection: Connection, expected: RelayState, *, stamps: bool) -> int | None:
        """Take the next number, and with `stamps` note that rows are stamped with it.

        None if the state has changed. The stamp is compared, too: a batch of another listener may
        have stamped rows since, which this one would not find if the server lost them.
        """
        take = self._statements.take_to_stamp if stamps else self._statements.take
        known = {"b_expected": expected.number, "b_stamp": expected.stamp}
        taken = connection.execute(take, {**self._own, **known}).rowcount
        return expected.number + 1 if taken else None

    def fence(self, seen: int) -> None:
        """Take the next number, so that batches that stalled are fenced out.

        `seen` is the number of the last batch that the server has seen. A ledger that is below was
        restored to earlier: it keeps its number, or the loss would go unnoticed.
        """
        passes = self._passes
        with self.engine.begin() as connection:
            connection.execute(
                update(passes)
                .where(*self._our_pass, passes.c.number >= seen)
                .values(number=passes.c.number + 1)
            )

    def sort(self, most: int = MAX_SORTED) -> None:
        """Write into rows that wait to which partition they belong."""
        limit = {**self._waiting, "b_most": most, "b_without": self._refused_lately()}

        def sort(write: Write) -> None:
            with self.engine.begin() as connection:
                ids: dict[int, list[str]] = {}
                connection.execute(self._statements.turn, self._own)
                for stretch in self._statements.unsorted:
                    for id in connection.scalars(stretch, limit):
                        ids.setdefault(self.layout.partition_of(id), []).append(id)
                for number, own in sorted(ids.items()):
                    values = {"b_ledger": self.name, "b_partition": number}
                    self._note_refused(write.to_ids(connection, self._statements.sort, values, own))

        unless_refused(sort)

    def finish_batch(self, number: int, results: Sequence[RowResult]) -> WrittenRows | None:
        """Stamp relayed rows that have not changed; None if another number was taken since.

        What is left out is relayed again, and nothing changes.
        """

        def stamp(write: Write) -> WrittenRows | None:
            with self.engine.begin() as connection:
                allow_undoing(connection)  # then the rows are relayed again, and nothing changes
                if not self._is_last(connection, number, stamps=bool(results)):
                    return None
                ids = [each.row.id for each in results]
                free = self._free(connection, ids)
                written = [each for each in results if each.row.id in free]
                same = {**self._own, "b_number": number}
                done = [same | stamped(each) for each in written if not each.waits]
                refused = write(connection, self._statements.finish, done)
                for_ids = [self._ledgers | waiting(each) for each in written if each.waits]
                refused |= write(connection, self._statements.wait_for_id, for_ids)
                self._note_refused(refused)
                return WrittenRows(number, self._locked(connection, ids, free), refused)

        return unless_refused(stamp)

    def write_back(
        self, expected: RelayState, changes: Iterable[StatusUpdate], lost: Sequence[str] = ()
    ) -> WrittenRows | None:
        """Take the next number, and write the states of tasks to their rows.

        None if the state has changed: then nothing is written. A row that the application changed
        since is left alone: it is relayed first. One that has ended otherwise than its task is
        relayed again: the row counts. The server has no records of the ids in `lost`: those rows
        are relayed again.
        """
        by_id = {change.id: change for change in changes}

        def take_and_write(write: Write) -> WrittenRows | None:
            with self.engine.begin() as connection:
                number = self._take(connection, expected, stamps=bool(by_id))
                if number is None:
                    return None
                return self._write_back(connection, number, by_id, lost, write)

        return unless_refused(take_and_write)

    def _write_back(
        self, connection: Connection, number: int, changes: Mapping[str, StatusUpdate],
        lost: Sequence[str], write: Write,
    ) -> WrittenRows:  # fmt: skip
        ids = [*changes, *lost]
        asked = {**self._own, "b_ids": ids}
        rows = connection.execute(self._statements.rows_to_write, asked).all() if ids else []
        written, again = self._decide(rows, changes)
        same = {"b_ledger": self.name, "b_number": number}
        refused = write(connection, self._statements.write_back, [same | row for row in written])
        refused |= write.to_ids(connection, self._statements.relay_again, self._ledgers, again)
        return WrittenRows(number, self._locked(connection, ids, (row.id for row in rows)), refused)

    def _decide(
        self, rows: Iterable[Row[Any]], changes: Mapping[str, StatusUpdate]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the columns to write, and the rows to relay again, also those of lost tasks."""
        written, again = [], []
        for row in rows:
            change = changes.get(row.id)
            match "again" if change is None else what_comes_of(row, change):
                case "written" if change is not None:
                    written.append(written_back(row, change))
                case "again":
                    again.append(row.id)
        return written, again

    def _is_last(self, connection: Connection, number: int, *, stamps: bool) -> bool:
        """True if this number is the last one taken; none is taken until this transaction ends."""
        held = self._statements.hold_to_stamp if stamps else self._statements.hold
        return bool(connection.execute(held, {**self._own, "b_number": number}).rowcount)

    def ask(self, ids: Iterable[str]) -> dict[str, RowState]:
        """Return the states of the rows of these tasks; those without a row are left out."""
        with self.engine.connect() as connection:
            return self._states(connection, ids)

    def decide(self, versions: Mapping[str, RowVersion]) -> dict[str, RowState]:
        """Let the deadlines of these tasks decide, unless a signal has; return their rows.

        One that has another version is left alone, and so is one that another transaction has
        locked: that may be a signal.
        """
        values = {
            id: {**self._ledgers, "b_id": id, "b_generation": version.generation,
                 "b_revision": version.revision}
            for id, version in versions.items()
        }  # fmt: skip

        def decide(write: Write) -> dict[str, RowState]:
            with self.engine.begin() as connection:
                free = self._free(connection, list(versions))
                write.each(connection, deciding(self._task), [values[id] for id in sorted(free)])
                return self._states(connection, versions)

        return unless_refused(decide)

    def _states(self, connection: Connection, ids: Iterable[str]) -> dict[str, RowState]:
        # No row has another id, and a database may refuse to compare them.
        asked = {**self._own, "b_ids": [id for id in ids if is_id(id)]}
        return {
            row.id: RowState(
                RowVersion(row.generation, row.revision), Status(row.status),
                DesiredState(row.wanted), row.message, is_open=bool(row.is_open), todo=row.todo,
                stamp=row.stamp,
            )
            for row in connection.execute(self._statements.ask, asked)
        }  # fmt: skip

    def note_met(self, ids: Iterable[str]) -> None:
        """Have the rows of these tasks relayed however late they are due: the server has the tasks.

        A batch was cut off before it stamped them, and they have changed since.
        """
        asked = [id for id in ids if is_id(id)]

        def note(write: Write) -> None:
            with self.engine.begin() as connection:
                free = self._free(connection, asked)
                write.to_ids(connection, self._statements.note_met, self._ledgers, sorted(free))

        unless_refused(note)

    def ask_for_ids_again(self) -> None:
        """Relay rows again that wait until other tasks no longer have their ids."""
        limit = self._ledgers | {"b_most": MAX_SORTED}

        def ask(write: Write) -> None:
            with self.engine.begin() as connection:
                ids = connection.scalars(self._statements.waits_for_id, limit).all()
                write.to_ids(connection, self._statements.ask_again, self._ledgers, ids)

        unless_refused(ask)

    def read_waiting(self, ids: Iterable[str]) -> Sequence[Row[Any]]:
        """Return the rows of these tasks that wait for the relay, and are not kept back."""
        asked = {**self._waiting, "b_ids": list(ids)}
        with self.engine.connect() as connection:
            return connection.execute(self._statements.waiting, asked).all()

    def recall(self, ids: Iterable[str]) -> list[str]:
        """Have the waiting ones of these tasks relayed again: the server lost their records.

        Returns those whose rows another transaction has locked: they are to be asked again.
        """
        asked = [id for id in ids if is_id(id)]

        def recall(write: Write) -> list[str]:
            with self.engine.begin() as connection:
                free = self._free(connection, asked)
                write.to_ids(connection, self._statements.recall, self._ledgers, sorted(free))
                return self._locked(connection, asked, free)

        return unless_refused(recall)

    def rebind(self, nonce: str, met: str, *, above: int) -> None:
        """Bind this ledger to another server, which has seen nothing of it.

        Numbers go on above `above`. Every row is to be rebuilt, but those that are kept back: the
        first partition sees to that, for all of them, since there may be another number of them
        now. If the server has seen later passes than this ledger, that was restored: what rows ask
        for gets revisions that none of those which were lost can have had, and none is kept back,
        since its task may be on the server.
        """
        passes, task = self._passes.c, self._task.c
        with self.engine.begin() as connection:
            number = connection.scalar(select(passes.number).where(*self._our_pass)) or 0
            connection.execute(
                update(self._passes)
                .where(*self._our_pass)
                .values(number=max(number, above) + 1, nonce=nonce, met=met)
            )
            if self.partition > 0:
                return
            ours = update(self._task).where(task.ledger == self.name)
            if number < above:
                # What was only made is another generation if it is another task.
                asks = (task.todo == SyncState.RELAY, task.revision > 1)
                connection.execute(ours.where(*asks).values(revision=task.revision + RESTORED))
                had: ColumnElement[bool] = true()
            else:
                had = or_(task.stamp > 0, task.planned <= NowMs() + horizon_ms(self.horizon))
            todo = case((had, SyncState.REBUILD.value), else_=task.todo)
            some = ours.where(or_(had, task.slot.is_not(None)))
            connection.execute(some.values(todo=todo, slot=null()))
            connection.execute(
                delete(self._passes).where(
                    passes.ledger == self.name, passes.partition >= self.layout.count
                )
            )


def _state_of(row: Row[Any]) -> RelayState:
    return RelayState(
        row.number, row.stamp, row.nonce, waiting=bool(row.relays or row.rebuilds),
        rebuilding=bool(row.rebuilds or row.lost), unsorted=bool(row.new or row.lost),
    )  # fmt: skip


def new_nonce() -> str:
    """Draw a pairing id for a ledger and a server."""
    return secrets.token_hex(16)
