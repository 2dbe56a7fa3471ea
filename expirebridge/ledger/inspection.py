"""The auditor: looks at ledger and server from outside, for metrics, checks and the dashboard."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    MetaData,
    Select,
    Table,
    case,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from expirebridge.errors import InvalidTask, LedgerError
from expirebridge.handlers.compatibility import Comparison
from expirebridge.ledger.addresses import identity_of
from expirebridge.ledger.engine import engine_of, ledger_error, read_url
from expirebridge.ledger.entries import REFUSED, RelayProgress
from expirebridge.ledger.row_pages import RECENT_MS, RowKind, RowPage, read_page
from expirebridge.ledger.rows import LedgerTask, ledger_task, new_task_of
from expirebridge.ledger.schema import find
from expirebridge.ledger.series_queries import (
    listing_of,
    page_query,
    place_in,
    series_of,
    series_query,
)
from expirebridge.ledger.sql_types import NowMs
from expirebridge.ledger.tables import DesiredState, Status, SyncState, Tables, tables
from expirebridge.ledger.threads import with_timeout
from expirebridge.series.state import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.store.commands.inspection import StoredCall
from expirebridge.store.commands.ledger import RedisCheckpoint

MOST: Final = 10_000
"""Rows of a kind that are counted at most: a look must not become a load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerFigures:
    """How a ledger and its server stand to each other, in numbers that cost little to ask."""

    to_relay: int
    """Rows that are new, or changed, and not yet carried to Redis; counted up to 10,000."""
    to_rebuild: int
    """Rows that Redis lost, and does not have again yet; counted up to 10,000."""
    oldest: float
    """For how many seconds the oldest new row has waited to be carried; 0 if none waits."""
    refused: int
    """Rows that were refused within the last day; counted up to 10,000."""
    dirty: int
    """Tasks of which something is not written back yet, in all partitions that answer."""
    oldest_dirty: float
    """For how many seconds the first of them has waited; 0 if none waits."""
    accounts: Mapping[int, RelayProgress]
    """How far the passes of each partition got that has made any."""
    known: Mapping[int, RedisCheckpoint]
    """What each partition of Redis knows that answers."""

    @property
    def partitions(self) -> int:
        """How many make passes."""
        return max(self.accounts, default=0) + 1

    @property
    def lost(self) -> bool:
        """Whether a partition lacks what was carried there: no task of the ledger is claimed there
        then."""
        return self.to_rebuild > 0 or any(
            known.number < self.accounts[partition].stamp
            for partition, known in self.known.items()
            if partition in self.accounts
        )


class Auditor:
    """Reads one ledger's tables. Each method makes a connection, and waits 5 s for an answer.

    Each raises LedgerUnreachable after that, LedgerUnsuitable for tables that are missing, older or
    newer, and LedgerError for whatever else the database says.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller's to see
        self._url = read_url(settings.ledger)
        self._engine = engine_of(self._url, reads_only=True, poolclass=NullPool)
        self._made = tables(MetaData())
        self._name = settings.ledger_name
        self._ours = self._made.task.c.ledger == settings.ledger_name

    def figures(self, known: Mapping[int, RedisCheckpoint]) -> LedgerFigures:
        """The numbers; `known` is what each partition of the server knows of its ledger."""
        return with_timeout(lambda: self._figures(known))

    def page(self, kind: RowKind, cursor: str | None = None) -> RowPage:
        """A page of the rows that wait for something. Raises InvalidTask for a foreign cursor."""
        return with_timeout(
            lambda: read_page(self._rows, self._made.task, self._name, kind, cursor)
        )

    def find(self, ext: str, limit: int = 100) -> list[LedgerTask]:
        """The tasks of this `ext`, the latest first."""
        row = self._made.task.c
        query = select(self._made.task).where(self._ours, row.ext_string == ext)
        return with_timeout(lambda: self._tasks(query.order_by(row.created.desc()).limit(limit)))

    def series(self, limit: int, cursor: str | None) -> SeriesListing:
        """A page of the series. Raises InvalidTask for a foreign cursor."""
        due, id = place_in(cursor)
        query = page_query(self._made, literal(self._name), (literal(due), literal(id)), limit)
        return with_timeout(lambda: listing_of(self._rows(query), limit))

    def one_series(self, id: str) -> Series | None:
        """A series; None if there is none."""
        query = series_query(self._made, literal(self._name)).where(self._made.series.c.id == id)
        rows = with_timeout(lambda: self._rows(query))
        return series_of(rows[0]) if rows else None

    def identity(self) -> str:
        """What only this database has."""
        return with_timeout(self._identity)

    def try_to_write(self) -> None:
        """See whether the relay could write: change nothing in its numbers, and roll that back."""
        with_timeout(self._try_to_write)

    def _figures(self, known: Mapping[int, RedisCheckpoint]) -> LedgerFigures:
        try:
            with self._engine.connect() as connection:
                find(connection, self._made)
                to_relay, oldest = connection.execute(self._waiting(SyncState.RELAY)).one()
                to_rebuild, _ = connection.execute(self._waiting(SyncState.REBUILD)).one()
                refused = connection.scalar(self._count_refused()) or 0
                passes = connection.execute(self._passes()).all()
        except DBAPIError as error:
            raise self._error(error) from None
        return LedgerFigures(
            to_relay=to_relay,
            to_rebuild=to_rebuild,
            oldest=max(oldest or 0, 0) / 1000,
            refused=refused,
            dirty=sum(one.dirty for one in known.values()),
            oldest_dirty=max((one.behind for one in known.values()), default=0.0),
            accounts={row.partition: RelayProgress(*row[1:]) for row in passes},
            known=known,
        )

    def _identity(self) -> str:
        try:
            with self._engine.connect() as connection:
                return identity_of(connection, self._made.passes)
        except DBAPIError as error:
            raise self._error(error) from None

    def _passes(self) -> Executable:
        row = self._made.passes.c
        return select(row.partition, row.number, row.stamp, row.nonce, row.met).where(
            row.ledger == self._name
        )

    def _waiting(self, todo: SyncState) -> Executable:
        """How many, and the age of the oldest that was never carried: a changed row may say when it
        was made, since an UPDATE by hand need not set `modified`."""
        row = self._made.task.c
        some = (
            select(row.modified, row.stamp)
            .where(self._ours, row.todo == todo.value)
            .limit(MOST)
            .subquery()
        )
        oldest = func.min(case((some.c.stamp == 0, some.c.modified)))
        return select(func.count(), NowMs() - oldest).select_from(some)

    def _refused(self) -> tuple[Any, ...]:
        row = self._made.task.c
        return (
            self._ours, row.status == Status.FAILED.value, row.modified > NowMs() - RECENT_MS,
            row.message.like(f"{REFUSED}%"),
        )  # fmt: skip

    def _count_refused(self) -> Executable:
        some = select(literal(1)).select_from(self._made.task).where(*self._refused()).limit(MOST)
        return select(func.count()).select_from(some.subquery())

    def _tasks(self, query: Select[Any]) -> list[LedgerTask]:
        return [ledger_task(row) for row in self._rows(query)]

    def _rows(self, query: Executable) -> list[Any]:
        try:
            with self._engine.connect() as connection:
                find(connection, self._made)
                return list(connection.execute(query).mappings())
        except DBAPIError as error:
            raise self._error(error) from None

    def _try_to_write(self) -> None:
        passes = self._made.passes
        same = update(passes).values(stamp=passes.c.stamp)
        try:
            with self._engine.connect() as connection:
                connection.execute(same.where(passes.c.ledger == self._name))
                connection.rollback()
        except DBAPIError as error:
            raise self._error(error) from None

    def _error(self, error: DBAPIError) -> LedgerError:
        return ledger_error(error, self._url)


# How a ledger stands, and which of its rows cannot be relayed: for people and probes.

PAGE_ROWS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """How far the relay got with one partition."""

    partition: int
    number: int
    """The last number that was taken."""
    stamp: int
    """The highest number that a row carries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerStatus:
    """How a ledger stands, as SQL knows it."""

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
    """Rows that are new, or changed, and not yet carried to Redis."""
    to_rebuild: int
    """Rows that Redis lost, and does not have again yet."""
    refused: int
    """Rows that cannot be tasks, as long as they are kept."""
    oldest: float | None
    """How many seconds the oldest row to be relayed waits, on the database's clock."""
    passes: list[Pass] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfit:
    """A row that cannot be relayed."""

    id: str
    reason: str


def status_of(connection: Connection, tables: Tables, ledger: str) -> LedgerStatus:
    """Count the rows of a ledger. This reads the whole table.

    Raises LedgerUnsuitable if the tables are missing, or of another version.
    """
    schema = find(connection, tables)
    row = tables.task.c
    ours = row.ledger == ledger
    grouped = select(row.status, func.count()).where(ours).group_by(row.status)
    by_status = _counts(connection, grouped)
    grouped = select(row.todo, func.count()).where(ours, row.todo > 0).group_by(row.todo)
    by_todo = _counts(connection, grouped)
    waits = select(NowMs() - func.min(row.modified)).where(ours, row.todo > 0)
    oldest = connection.execute(waits).scalar()
    return LedgerStatus(
        ledger=ledger,
        version=schema.version,
        waiting=by_status.get(Status.WAITING, 0),
        succeeded=by_status.get(Status.SUCCEEDED, 0),
        failed=by_status.get(Status.FAILED, 0),
        cancelled=by_status.get(Status.CANCELLED, 0),
        to_relay=by_todo.get(SyncState.RELAY, 0),
        to_rebuild=by_todo.get(SyncState.REBUILD, 0),
        refused=_refused(connection, row, ours),
        oldest=None if oldest is None else max(oldest, 0) / 1000,
        passes=_passes(connection, tables, ledger),
    )


def _refused(connection: Connection, row: Any, ours: ColumnElement[bool]) -> int:
    said = row.message.like(f"{REFUSED}%")
    query = select(func.count()).where(ours, row.status == Status.FAILED.value, said)
    return connection.scalar(query) or 0


def _counts(connection: Connection, query: Select[Any]) -> dict[int, int]:
    return {row[0]: row[1] for row in connection.execute(query)}


def _passes(connection: Connection, tables: Tables, ledger: str) -> list[Pass]:
    one = tables.passes.c
    query = select(one.partition, one.number, one.stamp).where(one.ledger == ledger)
    return [Pass(**row) for row in connection.execute(query.order_by(one.partition)).mappings()]


def unfit_rows(connection: Connection, tables: Tables, ledger: str) -> Iterator[Unfit]:
    """Find the rows that wait for the relay and would be refused by it, without their arguments."""
    task = tables.task
    after = ""
    while True:
        page = connection.execute(
            select(*task.c, NowMs().label("now"))
            .where(task.c.ledger == ledger, task.c.todo > 0, task.c.id > after)
            .order_by(task.c.id)
            .limit(PAGE_ROWS)
        ).mappings()
        rows: list[Any] = list(page)
        for row in rows:
            try:
                new_task_of(row, row["now"])
            except InvalidTask as error:
                yield Unfit(id=str(row["id"]), reason=str(error))
        if len(rows) < PAGE_ROWS:
            return
        after = rows[-1]["id"]


# Compares rows that Redis does not have yet with other code, before that code runs.

COMPARING_PAGE_ROWS: Final = 1000


def compare_rows(
    connection: Connection,
    tables: Tables,
    ledger: str,
    comparison: Comparison,
    *,
    due_within: float | None = None,
) -> int:
    """Compare the tasks of rows that are new or changed, or that Redis has lost.

    `due_within` leaves out what is due in so many seconds or later, on the database's clock; the
    number of these is returned. A row that is relayed meanwhile may be compared twice: here, and as
    a task of Redis.
    """
    task, later, after = tables.task, 0, ""
    planned = func.coalesce(task.c.due, task.c.at_ms, task.c.written + task.c.delay_ms)
    while True:
        rows: list[Any] = list(
            connection.execute(
                select(task.c.id, task.c.func, task.c.params, planned.label("due"), NowMs())
                .where(*_unrelayed(task, ledger), task.c.id > after)
                .order_by(task.c.id)
                .limit(COMPARING_PAGE_ROWS)
            )
        )
        for id, name, params, due, now in rows:
            if due_within is not None and due >= now + due_within * 1000:
                later += 1
            else:
                comparison.add(StoredCall(id, name, str(params).encode(), due))
        if len(rows) < COMPARING_PAGE_ROWS:
            return later
        after = rows[-1].id


def _unrelayed(task: Table, ledger: str) -> tuple[ColumnElement[bool], ...]:
    """Rows whose tasks Redis does not have, or has with another call."""
    row = task.c
    return (
        row.ledger == ledger,
        row.todo > 0,
        row.status == Status.WAITING,
        row.wanted == DesiredState.NONE.value,
        or_(row.stamp == 0, row.todo == SyncState.REBUILD, row.due.is_(None)),
    )
