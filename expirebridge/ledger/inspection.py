"""The auditor: looks at ledger and server from outside, for metrics, checks and the dashboard."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Executable, MetaData, Select, case, func, literal, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from expirebridge.errors import LedgerError
from expirebridge.ledger.addresses import identity_of
from expirebridge.ledger.clock import NowMs
from expirebridge.ledger.engine import engine_of, ledger_error, read_url
from expirebridge.ledger.entries import REFUSED, Account
from expirebridge.ledger.row_pages import RECENT_MS, Kind, RowPage, read_page
from expirebridge.ledger.rows import LedgerTask, ledger_task
from expirebridge.ledger.schema import find
from expirebridge.ledger.series_queries import (
    listing_of,
    page_query,
    place_in,
    series_of,
    series_query,
)
from expirebridge.ledger.tables import Status, Todo, tables
from expirebridge.ledger.threads import in_time
from expirebridge.series.state import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.store.commands.ledger import Known

MOST: Final = 10_000
"""Rows of a kind that are counted at most: a look must not become a load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
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
    accounts: Mapping[int, Account]
    """How far the passes of each partition got that has made any."""
    known: Mapping[int, Known]
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

    def figures(self, known: Mapping[int, Known]) -> Figures:
        """The numbers; `known` is what each partition of the server knows of its ledger."""
        return in_time(lambda: self._figures(known))

    def page(self, kind: Kind, cursor: str | None = None) -> RowPage:
        """A page of the rows that wait for something. Raises InvalidTask for a foreign cursor."""
        return in_time(lambda: read_page(self._rows, self._made.task, self._name, kind, cursor))

    def find(self, ext: str, limit: int = 100) -> list[LedgerTask]:
        """The tasks of this `ext`, the latest first."""
        row = self._made.task.c
        query = select(self._made.task).where(self._ours, row.ext_string == ext)
        return in_time(lambda: self._tasks(query.order_by(row.created.desc()).limit(limit)))

    def series(self, limit: int, cursor: str | None) -> SeriesListing:
        """A page of the series. Raises InvalidTask for a foreign cursor."""
        due, id = place_in(cursor)
        query = page_query(self._made, literal(self._name), (literal(due), literal(id)), limit)
        return in_time(lambda: listing_of(self._rows(query), limit))

    def one_series(self, id: str) -> Series | None:
        """A series; None if there is none."""
        query = series_query(self._made, literal(self._name)).where(self._made.series.c.id == id)
        rows = in_time(lambda: self._rows(query))
        return series_of(rows[0]) if rows else None

    def identity(self) -> str:
        """What only this database has."""
        return in_time(self._identity)

    def try_to_write(self) -> None:
        """See whether the relay could write: change nothing in its numbers, and roll that back."""
        in_time(self._try_to_write)

    def _figures(self, known: Mapping[int, Known]) -> Figures:
        try:
            with self._engine.connect() as connection:
                find(connection, self._made)
                to_relay, oldest = connection.execute(self._waiting(Todo.RELAY)).one()
                to_rebuild, _ = connection.execute(self._waiting(Todo.REBUILD)).one()
                refused = connection.scalar(self._count_refused()) or 0
                passes = connection.execute(self._passes()).all()
        except DBAPIError as error:
            raise self._error(error) from None
        return Figures(
            to_relay=to_relay,
            to_rebuild=to_rebuild,
            oldest=max(oldest or 0, 0) / 1000,
            refused=refused,
            dirty=sum(one.dirty for one in known.values()),
            oldest_dirty=max((one.behind for one in known.values()), default=0.0),
            accounts={row.partition: Account(*row[1:]) for row in passes},
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

    def _waiting(self, todo: Todo) -> Executable:
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
