"""Knows the databases whose sessions a program gives to its ledger."""

import logging
from weakref import WeakSet

from sqlalchemy import URL, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.db_errors import is_missing, reason_of
from expirebridge.ledger.engine import engine_of
from expirebridge.ledger.schema import Schema, checked, find, missing
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.statements import statements
from expirebridge.ledger.transaction import TransactionAdapter
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")


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
