"""The inspection of a ledger from outside: the figures of `ledger status`, doctor, metrics and the
dashboard, and the rows that they list."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Row,
    Select,
    and_,
    case,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from expirebridge.errors import InvalidTask
from expirebridge.ledger.backlog import BacklogQuery, constant, horizon_ms
from expirebridge.ledger.calls import RedisCheckpoint, WriteBackBacklog
from expirebridge.ledger.engine import engine_of, ledger_error, read_url, with_timeout
from expirebridge.ledger.relay_statements import REFUSED, RelayProgress
from expirebridge.ledger.row_pages import RowKind, RowPage, count_refused, read_page
from expirebridge.ledger.rows import (
    DesiredState,
    LedgerTask,
    Status,
    SyncState,
    ledger_task,
    new_task_of,
    on_signal_of,
)
from expirebridge.ledger.schema import find, identity_of
from expirebridge.ledger.sql_tables import VERSION, own_tables
from expirebridge.ledger.sql_types import NowMs
from expirebridge.settings import Settings
from expirebridge.task.calls.inspection import StoredCall

MOST: Final = 10_000
"""Rows of a kind that `figures` counts at most: it is called often, and must stay cheap."""
PAGE_ROWS: Final = 1000
"""Rows that one query reads where all that wait are read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerFigures:
    """Figures of a ledger and its server that are cheap to read."""

    to_relay: int
    """Rows that are new or changed and not yet relayed; counted up to 10,000."""
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
    """Rows that are new or changed and not yet relayed."""
    to_rebuild: int
    """Rows that Redis lost and does not have again yet."""
    refused: int
    """Rows that cannot be tasks, as long as they are kept."""
    oldest: float | None
    """How many seconds the oldest row to be relayed waits, on the database's clock."""
    passes: list[PartitionProgress] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfit:
    """A row that cannot be relayed."""

    id: str
    reason: str


class LedgerInspector:
    """Reads the tables of one ledger. Each call has a connection of its own.

    Each raises LedgerUnsuitable for tables that are missing, older or newer, and LedgerError for
    any other error of the database. Those for probes and pages wait 5 s for an answer, and raise
    LedgerUnreachable after that.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller checks it
        self._url = read_url(settings.ledger)
        self._engine = engine_of(self._url, reads_only=True, poolclass=NullPool)
        self._tables = own_tables()
        self._name = settings.ledger_name
        self._horizon = horizon_ms(settings.ledger_horizon)
        self._key_ring = settings.key_ring
        self._ours = self._tables.task.c.ledger == settings.ledger_name

    def figures(self, checkpoints: Mapping[int, RedisCheckpoint]) -> LedgerFigures:
        """Read the figures; `checkpoints` are those of the server's partitions. Waits 5 s."""
        return with_timeout(lambda: self._figures(checkpoints))

    def page(self, kind: RowKind, cursor: str | None = None) -> RowPage:
        """Read a page of one kind of rows. Waits 5 s. Raises InvalidTask for a foreign cursor."""
        return with_timeout(
            lambda: read_page(
                self._rows, self._tables.task, self._name, kind, cursor, horizon=self._horizon
            )
        )

    def find(self, ext: str, limit: int = 100) -> list[LedgerTask]:
        """Return the tasks of this `ext`, the latest first. Waits 5 s."""
        row = self._tables.task.c
        query = select(self._tables.task).where(self._ours, row.ext_string == ext)
        latest = query.order_by(row.created.desc()).limit(limit)
        return with_timeout(
            lambda: [ledger_task(each, self._key_ring) for each in self._rows(latest)]
        )

    def identity(self) -> str:
        """Return what identifies this database. Waits 5 s."""
        return with_timeout(self._identity)

    def try_to_write(self) -> None:
        """Check that the relay could write: update its progress, and roll back. Waits 5 s."""
        with_timeout(self._try_to_write)

    def status(self) -> LedgerStatus:
        """Count all rows, which reads the whole table, however long that takes."""
        row = self._tables.task.c
        near = or_(row.todo != SyncState.RELAY, row.planned <= NowMs() + self._horizon)
        waits = and_(row.todo > 0, near)
        with self._reading() as connection:
            status = _counted(connection, row.status, self._ours)
            todo = _counted(connection, row.todo, self._ours, waits)
            age = select(NowMs() - func.min(self._waits_since())).where(self._ours, waits)
            oldest = connection.scalar(age)
            refused = select(func.count()).where(
                self._ours,
                row.status == Status.FAILED.value,
                row.message.like(f"{REFUSED}%"),
            )
            return LedgerStatus(
                ledger=self._name,
                version=VERSION,
                waiting=status.get(Status.WAITING, 0),
                succeeded=status.get(Status.SUCCEEDED, 0),
                failed=status.get(Status.FAILED, 0),
                cancelled=status.get(Status.CANCELLED, 0),
                to_relay=todo.get(SyncState.RELAY, 0),
                to_rebuild=todo.get(SyncState.REBUILD, 0),
                refused=connection.scalar(refused) or 0,
                oldest=None if oldest is None else max(oldest, 0) / 1000,
                passes=[
                    PartitionProgress(partition=partition, number=one.number, stamp=one.stamp)
                    for partition, one in self._progress(connection).items()
                ],
            )

    def unfit_rows(self) -> list[Unfit]:
        """Find the waiting rows that the relay would refuse; reads them all."""
        task, unfit = self._tables.task, []
        with self._reading() as connection:
            query = select(*task.c, NowMs().label("now")).where(self._ours, task.c.todo > 0)
            for row in self._each(connection, query):
                try:
                    new_task_of(row._mapping, row.now)
                except InvalidTask as error:
                    unfit.append(Unfit(id=str(row.id), reason=str(error)))
        return unfit

    def add_calls(
        self, add: Callable[[StoredCall], None], *, due_within: float | None = None
    ) -> int:
        """Add the calls of rows that are new or changed, or that Redis has lost.

        `due_within` leaves out tasks due in so many seconds or later, on the database's clock; the
        number of these is returned. A row that is relayed meanwhile may be added although it is a
        task of Redis, too.
        """
        row = self._tables.task.c
        planned = func.coalesce(row.due, row.at_ms, row.written + row.delay_ms).label("planned")
        of_task = row.id, row.func, row.params, row.options, row.decided
        in_time = self._unrelayed()
        is_later: ColumnElement[bool] = false()
        if due_within is not None:
            # Most rows may be kept back for a year: they are counted where they are.
            is_later = planned >= select(NowMs() + round(due_within * 1000)).scalar_subquery()
            in_time = (*in_time, not_(is_later))
        later = select(func.count()).where(*self._unrelayed(), is_later)
        with self._reading() as connection:
            for each in self._each(connection, select(*of_task, planned).where(*in_time)):
                args, second = str(each.params).encode(), on_signal_of(each._mapping)
                add(StoredCall(each.id, each.func, args, each.planned, second))
            return 0 if due_within is None else connection.scalar(later) or 0

    def _figures(self, checkpoints: Mapping[int, RedisCheckpoint]) -> LedgerFigures:
        with self._reading() as connection:
            to_relay, oldest = connection.execute(self._waiting(SyncState.RELAY)).one()
            to_rebuild, _ = connection.execute(self._waiting(SyncState.REBUILD)).one()
            refused = connection.scalar(count_refused(self._tables.task, self._name)) or 0
            progress = self._progress(connection)
        return LedgerFigures(
            to_relay=to_relay,
            to_rebuild=to_rebuild,
            oldest=max(oldest or 0, 0) / 1000,
            refused=refused,
            write_back=WriteBackBacklog.of(checkpoints.values()),
            progress=progress,
            checkpoints=checkpoints,
        )

    def _identity(self) -> str:
        with self._connected() as connection:
            return identity_of(connection, self._tables.passes)

    def _try_to_write(self) -> None:
        passes = self._tables.passes
        same = update(passes).values(stamp=passes.c.stamp)
        with self._connected() as connection:
            connection.execute(same.where(passes.c.ledger == self._name))
            connection.rollback()

    def _progress(self, connection: Connection) -> dict[int, RelayProgress]:
        row = self._tables.passes.c
        query = (
            select(row.partition, row.number, row.stamp, row.nonce, row.met)
            .where(row.ledger == self._name)
            .order_by(row.partition)
        )
        return {one.partition: RelayProgress(*one[1:]) for one in connection.execute(query)}

    def _waiting(self, todo: SyncState) -> Executable:
        """The number of rows, and the age in ms of the oldest that was never relayed. A changed row
        may have an old `modified`, since an UPDATE by hand need not set it."""
        row = self._tables.task.c
        backlog = BacklogQuery(self._tables.task, self._name, literal(self._horizon, BigInteger()))
        columns = row.stamp, self._waits_since().label("since")
        some = backlog.all(constant(MOST), *columns, todo=todo).subquery()
        oldest = func.min(case((some.c.stamp == 0, some.c.since)))
        return select(func.count(), NowMs() - oldest).select_from(some)

    def _waits_since(self) -> ColumnElement[int]:
        """When a row was changed, or came so near that it is relayed."""
        row = self._tables.task.c
        came_near = row.planned - self._horizon
        return case((row.modified < came_near, came_near), else_=row.modified)

    def _unrelayed(self) -> tuple[ColumnElement[bool], ...]:
        """The rows whose tasks Redis does not have, or has with another call."""
        row = self._tables.task.c
        return (
            self._ours,
            row.todo > 0,
            row.status == Status.WAITING,
            row.wanted == DesiredState.NONE.value,
            or_(row.stamp == 0, row.todo == SyncState.REBUILD, row.due.is_(None)),
        )

    def _each(self, connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
        """The rows of a query by their ids, read in pages."""
        id, after = self._tables.task.c.id, ""
        while True:
            page = query.where(id > after).order_by(id).limit(PAGE_ROWS)
            rows = connection.execute(page).all()
            yield from rows
            if len(rows) < PAGE_ROWS:
                return
            after = rows[-1].id

    def _rows(self, query: Executable) -> list[Any]:
        with self._reading() as connection:
            return list(connection.execute(query).mappings())

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection to tables of this version."""
        with self._connected() as connection:
            find(connection, self._tables)
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except DBAPIError as error:
            raise ledger_error(error, self._url) from None


def _counted(
    connection: Connection, column: ColumnElement[int], *conditions: ColumnElement[bool]
) -> dict[int, int]:
    """The number of rows by the values of a column."""
    query = select(column, func.count()).where(*conditions).group_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}
