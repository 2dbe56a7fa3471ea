"""Sends the ledger's statements through whatever the caller's transaction runs in.

It is checked first whether that is in the ledger's database.

A statement is compiled once for each kind of driver and then sent as text, so that it costs the
caller little more than the driver does.
"""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol
from weakref import WeakSet

from sqlalchemy import URL, ClauseElement, Connection, Engine, Table, make_url
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import NullPool

from expirebridge.errors import InvalidTask, LedgerUnsuitable
from expirebridge.ledger.db_errors import is_missing, reason_of
from expirebridge.ledger.engine import engine_of
from expirebridge.ledger.schema import Schema, checked, find, missing
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.statements import statements
from expirebridge.task.texts import event
from expirebridge.task.transactions import Transaction

logger = logging.getLogger("expirebridge")

Values = Mapping[str, Any]

_ACCEPTED: Final = (
    "give a Session or a Connection of SQLAlchemy, or a connection of psycopg, psycopg2, sqlite3, "
    "PyMySQL, mysqlclient or Django"
)
_FIRST: Final = "the first argument of each call is your transaction; "
_DRIVERS: Final = {
    "sqlite3": ("sqlite://", "qmark"),
    "psycopg": ("postgresql+psycopg://", "pyformat"),
    "psycopg2": ("postgresql+psycopg2://", "pyformat"),
    "pymysql": ("mysql+pymysql://", "format"),
    "MySQLdb": ("mysql+mysqldb://", "format"),
}
"""Of each driver, by its module: its dialect, and how it writes parameters."""
_VENDORS: Final = {
    "postgresql": "postgresql+psycopg://",
    "sqlite": "sqlite://",
    "mysql": "mysql+pymysql://",
}
"""Of each kind of database in Django: its dialect. All are sent parameters as `format`."""


class TransactionAdapter(Protocol):
    """One transaction of the caller."""

    @property
    def dialect(self) -> Dialect:
        """The dialect of its database."""
        ...

    @property
    def database(self) -> object | None:
        """An identity of the database, equal for all of its transactions; None if unknown."""
        ...

    def execute(self, statement: ClauseElement, values: Values) -> int:
        """Send a statement; returns how many rows it changed."""
        ...

    def execute_many(self, statement: ClauseElement, rows: Sequence[Values]) -> None:
        """Send a statement once for each of these."""
        ...

    def rows(self, statement: ClauseElement, values: Values) -> list[Values]:
        """Send a query; returns its rows by their columns' names."""
        ...


def adapter_of(transaction: Transaction, table: Table) -> TransactionAdapter:
    """The way to the database that holds `table` in the caller's transaction.

    Raises InvalidTask for what is no transaction that can be used.
    """
    check_transaction(transaction)
    if isinstance(transaction, Session | scoped_session):
        return SqlAlchemyAdapter(transaction.connection(bind_arguments={"clause": table}))
    if isinstance(transaction, Connection):
        return SqlAlchemyAdapter(transaction)
    if isinstance(transaction, str):
        return _django_adapter(_of_alias(transaction))
    if _is_django(transaction):
        return _django_adapter(transaction)
    return _driver_adapter(transaction)


def check_transaction(transaction: object) -> None:
    """Raise InvalidTask for what is no transaction that can be used, before anything is sent."""
    if isinstance(transaction, Session | scoped_session | Connection) or _is_django(transaction):
        return
    if hasattr(transaction, "run_sync"):
        raise InvalidTask(
            "session: of an async one, call `await session.run_sync(lambda session: "
            "ledger.make_task(session, ...))`"
        )
    if isinstance(transaction, str):
        _of_alias(transaction)
        return
    connection = type(transaction)
    if connection.__module__.partition(".")[0] not in _DRIVERS or not hasattr(connection, "cursor"):
        raise InvalidTask(f"session={_shown(transaction)}: {_FIRST}{_ACCEPTED}")
    if inspect.iscoroutinefunction(getattr(transaction, "commit", None)):
        raise InvalidTask(f"session={connection.__name__}: it is async; {_ACCEPTED}")


def _shown(given: object) -> str:
    """A value, or the type of what may be large, or hold a password."""
    plain = given is None or isinstance(given, str | int | float)
    return f"{given!r:.60}" if plain else type(given).__name__


def _is_django(transaction: object) -> bool:
    return hasattr(transaction, "vendor") and hasattr(transaction, "alias")


def _of_alias(alias: str) -> Any:
    try:
        from django.core.exceptions import (  # noqa: PLC0415 - only programs with Django name them
            ImproperlyConfigured,
        )
        from django.db import connections  # noqa: PLC0415
    except ImportError:
        raise InvalidTask(f"session={_shown(alias)}: {_FIRST}{_ACCEPTED}") from None
    try:
        known = list(connections)
    except ImproperlyConfigured:
        known = []
    if alias not in known:
        raise InvalidTask(f"session={_shown(alias)}: {_FIRST}{_ACCEPTED}")
    return connections[alias]


def _django_adapter(wrapper: Any) -> "DriverAdapter":
    if wrapper.vendor not in _VENDORS:
        raise InvalidTask(f"session: a Django database of {wrapper.vendor!r} holds no ledger")
    return DriverAdapter(wrapper, _dialect(_VENDORS[wrapper.vendor], "format"), wrapper.alias)


def _driver_adapter(connection: Any) -> "DriverAdapter":
    module = type(connection).__module__.partition(".")[0]
    return DriverAdapter(connection, _dialect(*_DRIVERS[module]), None)


@lru_cache
def _dialect(url: str, paramstyle: str) -> Dialect:
    make: Callable[..., Dialect] = make_url(url).get_dialect()
    return make(paramstyle=paramstyle)


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement as text, for drivers that write parameters in one way."""

    text: str
    constants: Values
    names: tuple[str, ...] | None
    """The parameters in their order; None if the driver takes them by name."""

    def bound(self, values: Values) -> Any:
        """The parameters as the driver takes them."""
        merged = {**self.constants, **values}
        return merged if self.names is None else tuple(merged[name] for name in self.names)


_compiled: dict[tuple[ClauseElement, str, str, str], _Compiled] = {}


def _compile(statement: ClauseElement, dialect: Dialect) -> _Compiled:
    key = (statement, dialect.name, dialect.driver, dialect.paramstyle)
    found = _compiled.get(key)
    if found is None:
        compiled = statement.compile(dialect=dialect)
        names = getattr(compiled, "positiontup", None)
        found = _Compiled(
            compiled.string, dict(compiled.params or {}), None if names is None else tuple(names)
        )
        _compiled[key] = found
    return found


class SqlAlchemyAdapter:
    """A connection of SQLAlchemy."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.dialect = connection.dialect

    @property
    def database(self) -> object | None:
        """The engine."""
        return self._connection.engine

    def execute(self, statement: ClauseElement, values: Values) -> int:
        """Send a statement; returns how many rows it changed."""
        compiled = _compile(statement, self.dialect)
        return self._connection.exec_driver_sql(compiled.text, compiled.bound(values)).rowcount

    def execute_many(self, statement: ClauseElement, rows: Sequence[Values]) -> None:
        """Send a statement once for each of these."""
        compiled = _compile(statement, self.dialect)
        self._connection.exec_driver_sql(compiled.text, [compiled.bound(row) for row in rows])

    def rows(self, statement: ClauseElement, values: Values) -> list[Values]:
        """Send a query; returns its rows by their columns' names."""
        compiled = _compile(statement, self.dialect)
        result = self._connection.exec_driver_sql(compiled.text, compiled.bound(values))
        return [dict(row) for row in result.mappings()]


class DriverAdapter:
    """A connection of a driver, or of Django."""

    def __init__(self, connection: Any, dialect: Dialect, database: object | None) -> None:
        self._connection = connection
        self.dialect = dialect
        self.database = database

    def execute(self, statement: ClauseElement, values: Values) -> int:
        """Send a statement; returns how many rows it changed."""
        compiled = _compile(statement, self.dialect)
        cursor = self._connection.cursor()
        try:
            cursor.execute(compiled.text, compiled.bound(values))
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def execute_many(self, statement: ClauseElement, rows: Sequence[Values]) -> None:
        """Send a statement once for each of these."""
        compiled = _compile(statement, self.dialect)
        cursor = self._connection.cursor()
        try:
            cursor.executemany(compiled.text, [compiled.bound(row) for row in rows])
        finally:
            cursor.close()

    def rows(self, statement: ClauseElement, values: Values) -> list[Values]:
        """Send a query; returns its rows by their columns' names."""
        compiled = _compile(statement, self.dialect)
        cursor = self._connection.cursor()
        try:
            cursor.execute(compiled.text, compiled.bound(values))
            names = [column[0] for column in cursor.description]
            return [_by_name(names, row) for row in cursor.fetchall()]
        finally:
            cursor.close()


def _by_name(names: Sequence[str], row: Any) -> Values:
    return row if isinstance(row, Mapping) else dict(zip(names, row, strict=True))


# Whether it is in the ledger's database.


class DatabaseCheck:
    """Checks once, when a database is first seen, that it is the ledger's.

    `url` is that of the ledger's own database; without one, any with its tables is taken for it.
    `engine` is the application's own for it: its sessions need no comparison.
    """

    def __init__(self, tables: Tables, url: URL | None, engine: Engine | None = None) -> None:
        self._tables = tables
        self._url = url
        self._engine = engine
        self._known: WeakSet[object] = WeakSet()
        self._own: Schema | None = None

    def check(self, adapter: TransactionAdapter) -> None:
        """Raise LedgerUnsuitable unless this is the ledger's database, with tables that it can use.

        What the database or its driver raises is passed on.
        """
        if adapter.database in self._known:
            return
        found = self._read(adapter)
        is_own = self._engine is not None and adapter.database is self._engine
        own = found if is_own else self._own_schema()
        if own is not None and own.identity != found.identity:
            raise LedgerUnsuitable(
                "the session is of another database than the ledger's, "
                f"{_place(self._url)}: a task in it would never be relayed"
            )
        try:
            self._known.add(adapter.database)
        except TypeError:  # None, or a connection of sqlite3: it is looked at each time
            return

    def _read(self, adapter: TransactionAdapter) -> Schema:
        ours = statements(self._tables, adapter.dialect.name)
        try:
            rows = adapter.rows(ours.schema, {})
        except Exception as error:
            if is_missing(error):
                raise missing(self._tables) from error
            raise
        return checked(Schema(**rows[0]) if rows else None, self._tables)

    def _own_schema(self) -> Schema | None:
        """Which tables the ledger's URL leads to; None if that cannot be seen from here."""
        if self._own is None and self._url is not None and not _in_memory(self._url):
            engine = engine_of(self._url, reads_only=True, poolclass=NullPool)
            try:
                with engine.connect() as connection:
                    self._own = find(connection, self._tables)
            except DBAPIError as error:
                logger.warning(
                    "the ledger's database %s cannot be reached from here, so a session of another "
                    "database would not be noticed: %s", _place(self._url), reason_of(error),
                    extra=event("ledger unseen"),
                )  # fmt: skip
                self._url = None
        return self._own


def _in_memory(url: URL) -> bool:
    return url.get_backend_name() == "sqlite" and (url.database or ":memory:") == ":memory:"


def _place(url: URL | None) -> str:
    return "" if url is None else url.render_as_string(hide_password=True)
