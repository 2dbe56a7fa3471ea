"""The inspection of a ledger from outside: the figures of `ledger status`, doctor, metrics and the
dashboard, and the rows that they list."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Row,
    Select,
    Subquery,
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
from expirebridge.ledger.backlog import BacklogQuery, Reach, constant, together
from expirebridge.ledger.binding import Met
from expirebridge.ledger.calls import RedisCheckpoint, WriteBackBacklog
from expirebridge.ledger.engine import engine_of, ledger_error, read_url, with_timeout
from expirebridge.ledger.figures import (
    KeptBack,
    LedgerFigures,
    LedgerStatus,
    PartitionProgress,
    SealedRows,
    Unfit,
    WaitingForIds,
)
from expirebridge.ledger.held_rows import HeldRow, held_rows
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
from expirebridge.task.key_ring import key_of
from expirebridge.task.task import from_ms

FIRST: Final = 1000
"""Rows that wait for the relay of which it is asked whether they are locked."""
MOST: Final = 10_000
"""Rows of a kind that `figures` counts at most: it is called often, and must stay cheap."""
SEAL_CHARACTERS: Final = 48
"""So many of sealed arguments have the name of their key."""
PAGE_ROWS: Final = 1000
"""Rows that one query reads where all that wait are read."""


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
        self._key_ring = settings.key_ring
        self._ours = self._tables.task.c.ledger == settings.ledger_name

    def figures(self, checkpoints: Mapping[int, RedisCheckpoint]) -> LedgerFigures:
        """Read the figures; `checkpoints` are those of the server's partitions. Waits 5 s."""
        return with_timeout(lambda: self._figures(checkpoints))

    def page(self, kind: RowKind, cursor: str | None = None) -> RowPage:
        """Read a page of one kind of rows. Waits 5 s. Raises InvalidTask for a foreign cursor."""
        return with_timeout(lambda: self._page(kind, cursor))

    def find(self, ext: str, limit: int = 100) -> list[LedgerTask]:
        """Return the tasks of this `ext`, the latest first. Waits 5 s."""
        row = self._tables.task.c
        query = select(self._tables.task).where(self._ours, row.ext_string == ext)
        latest = query.order_by(row.created.desc()).limit(limit)
        return with_timeout(
            lambda: [ledger_task(each, self._key_ring) for each in self._rows(latest)]
        )

    def sealed_until(self) -> SealedRows:
        """Find the keys with which rows are sealed that are kept back. Waits 5 s."""
        return with_timeout(self._sealed_until)

    def identity(self) -> str:
        """Return what identifies this database. Waits 5 s."""
        return with_timeout(self._identity)

    def try_to_write(self) -> None:
        """Check that the relay could write: update its progress, and roll back. Waits 5 s."""
        with_timeout(self._try_to_write)

    def status(self, stuck: Collection[str] = ()) -> LedgerStatus:
        """Count all rows, which reads the whole table, however long that takes.

        `stuck` are tasks of which Redis knows that their rows could not be written.
        """
        row = self._tables.task.c
        with self._reading() as connection:
            progress = self._progress(connection)
            reach = _reach_of(progress)
            near = row.planned <= NowMs() + reach.ms
            waits = or_(
                and_(row.todo == SyncState.RELAY.value, near), row.todo == SyncState.REBUILD.value
            )
            status = _counted(connection, row.status, self._ours)
            todo = _counted(connection, row.todo, self._ours, waits)
            age = select(NowMs() - func.min(self._waits_since(reach))).where(self._ours, waits)
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
                horizon=None if reach.horizon is None else reach.horizon / 1000,
                kept_back=self._all_kept_back(connection, not_(near)),
                for_ids=self._all_for_ids(connection),
                refused=connection.scalar(refused) or 0,
                oldest=None if oldest is None else max(oldest, 0) / 1000,
                passes=[
                    PartitionProgress(partition=partition, number=one.number, stamp=one.stamp)
                    for partition, one in progress.items()
                ],
                held=self._held(connection, reach, stuck),
            )

    def _all_kept_back(self, connection: Connection, is_far: ColumnElement[bool]) -> KeptBack:
        row = self._tables.task.c
        query = select(func.count(), func.min(row.planned), func.max(row.planned))
        far = (self._ours, row.todo == SyncState.RELAY.value, is_far)
        return _kept_back(connection.execute(query.where(*far)).one())

    def _all_for_ids(self, connection: Connection) -> WaitingForIds:
        row = self._tables.task.c
        taken = (self._ours, row.todo == SyncState.TAKEN.value)
        return _for_ids(
            connection.execute(select(func.count(), func.min(row.id)).where(*taken)).one()
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

    def count_coming(self, start: int, width: int, spans: int) -> Iterator[tuple[int, str, int]]:
        """Count what Redis never had, by its span of so many ms from `start` on, and function."""
        backlog = BacklogQuery(self._tables.task, self._name, literal(0, BigInteger()))
        queries = backlog.coming(start, width, spans)
        with self._reading() as connection:
            for query in queries:
                for number, func, count in connection.execute(query):
                    yield int(number), str(func), count

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
            progress = self._progress(connection)
            reach = _reach_of(progress)
            relay, rebuild = (
                self._waiting(todo, reach) for todo in (SyncState.RELAY, SyncState.REBUILD)
            )
            to_relay, oldest, now = connection.execute(relay).one()
            to_rebuild, _, _ = connection.execute(rebuild).one()
            taken = connection.execute(self._taken(reach)).one()
            kept_back = KeptBack()
            if reach.horizon is not None:
                kept_back = _kept_back(connection.execute(self._kept_back(reach)).one())
            refused = connection.scalar(count_refused(self._tables.task, self._name)) or 0
            stuck = [id for one in checkpoints.values() for id in one.stuck_ids]
            # Where nothing waits, nothing is held up.
            waits = to_relay or to_rebuild or stuck
            held = self._held(connection, reach, stuck) if waits else []
        return LedgerFigures(
            reach=reach,
            now=from_ms(now),
            kept_back=kept_back,
            for_ids=_for_ids(taken),
            to_relay=to_relay,
            to_rebuild=to_rebuild,
            oldest=max(oldest or 0, 0) / 1000,
            refused=refused,
            write_back=WriteBackBacklog.of(checkpoints.values()),
            progress=progress,
            checkpoints=checkpoints,
            held=held,
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

    def _page(self, kind: RowKind, cursor: str | None) -> RowPage:
        with self._reading() as connection:
            reach = _reach_of(self._progress(connection))

            def read(query: Executable) -> list[Any]:
                """The rows of a query."""
                return list(connection.execute(query).mappings())

            return read_page(read, self._tables.task, self._name, kind, cursor, reach=reach)

    def _waiting(self, todo: SyncState, reach: Reach) -> Executable:
        """The number of rows, the age in ms of the oldest that was never relayed, and the clock. A
        changed row may have an old `modified`, since an UPDATE by hand need not set it."""
        row, backlog = self._tables.task.c, self._backlog(reach)
        since = self._waits_since(reach).label("since")
        most, stretches = constant(MOST), reach.slots
        rows = (
            backlog.first(most, row.stamp, since, partition=slot, todo=todo) for slot in stretches
        )
        some = select(together(rows)).limit(MOST).subquery()
        oldest = func.min(case((some.c.stamp == 0, some.c.since)))
        return select(func.count(), NowMs() - oldest, NowMs()).select_from(some)

    def _held(self, connection: Connection, reach: Reach, stuck: Collection[str]) -> list[HeldRow]:
        """Locked rows among those that the relay takes next, and the ids in `stuck`."""
        id, backlog = self._tables.task.c.id, self._backlog(reach)
        stretches = (
            backlog.first(constant(FIRST), id, partition=slot, todo=todo)
            for slot in reach.slots
            for todo in (SyncState.RELAY, SyncState.REBUILD)
        )
        waiting = connection.scalars(select(together(stretches)).limit(FIRST)).all()
        return held_rows(connection, self._tables, self._name, waiting, stuck)

    def _taken(self, reach: Reach) -> Executable:
        """The number of rows that wait for their ids, and one of these."""
        row, backlog = self._tables.task.c, self._backlog(reach)
        rows = (
            backlog.first(constant(MOST), row.id, partition=slot, todo=SyncState.TAKEN)
            for slot in reach.slots
        )
        some = select(together(rows)).limit(MOST).subquery()
        return select(func.count(), func.min(some.c.id)).select_from(some)

    def _kept_back(self, reach: Reach) -> Executable:
        """The number of rows that are kept back, and when the first and the last are due."""
        row, backlog = self._tables.task.c, self._backlog(reach)

        def rows(most: int, *, latest: bool = False) -> Subquery:
            """So many of each partition."""
            return together(
                backlog.kept_back(constant(most), row.planned, partition=slot, latest=latest)
                for slot in reach.slots
            )

        some = select(rows(MOST)).limit(MOST).subquery()
        first, last = rows(1), rows(1, latest=True)
        return select(
            select(func.count()).select_from(some).scalar_subquery(),
            select(func.min(first.c.planned)).scalar_subquery(),
            select(func.max(last.c.planned)).scalar_subquery(),
        )

    def _sealed_until(self) -> SealedRows:
        row, until = self._tables.task.c, dict[str, datetime]()
        head = func.substr(row.params, 1, SEAL_CHARACTERS).label("head")
        with self._reading() as connection:
            reach = _reach_of(self._progress(connection))
            if reach.horizon is None:
                return SealedRows({})
            backlog, most = self._backlog(reach), constant(MOST)
            rows = together(
                backlog.kept_back(most, head, row.planned, partition=slot, latest=True)
                for slot in reach.slots
            )
            latest = select(rows).order_by(rows.c.planned.desc()).limit(MOST)
            found = connection.execute(latest).all()
        for each in found:
            if (name := key_of(str(each.head).encode())) is not None:
                until.setdefault(name, from_ms(each.planned))
        return SealedRows(until, is_cut=len(found) == MOST)

    def _backlog(self, reach: Reach) -> BacklogQuery:
        return BacklogQuery(self._tables.task, self._name, literal(reach.ms, BigInteger()))

    def _waits_since(self, reach: Reach) -> ColumnElement[int]:
        """When a row was changed, or came so near that it is relayed."""
        row = self._tables.task.c
        came_near = row.planned - reach.ms
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


def _reach_of(progress: Mapping[int, RelayProgress]) -> Reach:
    """Which rows are relayed, as the ledger was told by the listener that connected last."""
    if not progress:
        return Reach()
    mets = [Met.read(one.met) for one in progress.values()]
    return Reach(
        horizon=mets[0].horizon,
        partitions=max(len(mets), *(one.partitions for one in mets)),
    )


def _kept_back(found: Sequence[Any]) -> KeptBack:
    count, first, last = found
    return KeptBack(
        count=count,
        first=None if first is None else from_ms(first),
        last=None if last is None else from_ms(last),
    )


def _for_ids(found: Sequence[Any]) -> WaitingForIds:
    count, example = found
    return WaitingForIds(count=count, example=example)


def _counted(
    connection: Connection, column: ColumnElement[int], *conditions: ColumnElement[bool]
) -> dict[int, int]:
    """The number of rows by the values of a column."""
    query = select(column, func.count()).where(*conditions).group_by(column)
    return {row[0]: row[1] for row in connection.execute(query)}
