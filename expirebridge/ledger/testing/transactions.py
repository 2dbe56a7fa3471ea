"""Where the rows of a test are: in a database, or in a transaction that the test holds open."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session
from sqlalchemy.pool import StaticPool

from expirebridge.errors import InvalidTask
from expirebridge.ledger.engine import Transactions, engine_of
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.ledger.transaction import adapter_of
from expirebridge.task.transactions import Transaction
from expirebridge.testing.environment import unseen_loop


@contextmanager
def transactions_of(source: object) -> Iterator[Transactions]:
    """The transactions of the relay, for a block: in the database that `source` names or is in.

    Raises InvalidTask for what is neither a database nor a transaction, and InvalidSetting for a
    URL that cannot be used.
    """
    if isinstance(source, AsyncEngine):
        source = source.url
    if isinstance(source, URL) or (isinstance(source, str) and "://" in source):
        with _disposed(engine_of(source)) as engine:
            yield engine
    elif isinstance(source, Engine):
        yield source
    elif isinstance(source, AsyncConnection):
        yield AwaitedTransaction(lambda: _started(source))
    elif isinstance(source, async_scoped_session):
        yield AwaitedTransaction(lambda: _connection_of(source().sync_session))
    elif isinstance(source, AsyncSession):
        yield AwaitedTransaction(lambda: _connection_of(source.sync_session))
    elif isinstance(source, Session | scoped_session):
        yield OpenTransaction(lambda: _connection_of(source))
    elif isinstance(source, Connection):
        yield OpenTransaction(lambda: source)
    else:
        with _of_driver(source) as found:
            yield found


@contextmanager
def seen_after(session: Transaction) -> Iterator[tuple[Transactions, bool]]:
    """A transaction that shows what the session of a finished handler committed.

    It is on another connection, unless the handler was in a transaction of the test. The second
    value says whether it is one of asyncio.
    """
    if isinstance(session, Session | scoped_session):
        bind = session.get_bind(clause=own_tables().task)
    elif isinstance(session, Connection):
        bind = session
    else:
        with _of_driver(session) as found:
            yield found, False
        return
    if isinstance(bind, Engine):
        yield bind, bind.dialect.is_async
    elif bind.in_transaction():
        yield OpenTransaction(lambda: bind), bind.dialect.is_async
    else:
        yield bind.engine, bind.dialect.is_async


def commits(transactions: Transactions) -> bool:
    """True if what is written there stays when the test has ended."""
    if isinstance(transactions, DjangoTransaction):
        return transactions.commits
    return isinstance(transactions, Engine)


def _connection_of(session: Session | scoped_session[Any]) -> Connection:
    """That in which a session has the ledger's tables."""
    return session.connection(bind_arguments={"clause": own_tables().task})


def _started(connection: AsyncConnection) -> Connection:
    if connection.sync_connection is None:
        raise InvalidTask("the AsyncConnection is not open: enter it, or await its start()")
    return connection.sync_connection


@contextmanager
def _disposed(engine: Engine) -> Iterator[Engine]:
    """An engine, and an end of its connections."""
    try:
        yield engine
    finally:
        engine.dispose()


class OpenTransaction:
    """A transaction of the test: what the relay does is a savepoint in it, and never committed."""

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self._connection = connection

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A savepoint."""
        connection = self._connection()
        _begin_in_sqlite(connection)
        with connection.begin_nested():
            yield connection

    connect = begin


class AwaitedTransaction(OpenTransaction):
    """One of asyncio, whose users are called by SQLAlchemy's `greenlet_spawn`."""


def _begin_in_sqlite(connection: Connection) -> None:
    """Begin what Python's `sqlite3` begins later: a savepoint alone would be committed."""
    if connection.dialect.name == "sqlite":
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            connection.exec_driver_sql("BEGIN")


class _Lent:
    """A driver's connection of the test, whose users can neither end nor close it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def commit(self) -> None:
        """Leave that to the test."""

    rollback = close = commit


class DjangoTransaction:
    """A block of Django's as a transaction of SQLAlchemy: a savepoint, if the test is in a block.

    `atomic` opens it, and `engine` knows Django's `wrapper` of a connection only.
    """

    def __init__(
        self, engine: Engine, wrapper: Any, atomic: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._engine = engine
        self._wrapper = wrapper
        self._atomic = atomic

    @property
    def commits(self) -> bool:
        """True if the test is in no block of its own now."""
        return not self._wrapper.in_atomic_block

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A block of Django's."""
        with unseen_loop(), self._atomic(), self._engine.connect() as connection:
            yield connection

    connect = begin


@contextmanager
def _of_driver(source: Any) -> Iterator[Transactions]:
    """That of a driver's connection, of Django's, or of the alias of one in Django."""
    adapter_of(source, own_tables().task)  # refuses what is none
    if isinstance(source, str):
        from django.db import connections  # noqa: PLC0415 - only programs with Django name aliases

        with unseen_loop():  # Django has others for what runs in an event loop
            source = connections[source]
    if hasattr(source, "vendor"):
        from django.db import transaction  # noqa: PLC0415

        alias = source.alias
        with unseen_loop():
            source.ensure_connection()
            own = source.connection
        with _disposed(_lending(own)) as engine:
            yield DjangoTransaction(engine, source, lambda: transaction.atomic(using=alias))
        return
    with _disposed(_lending(source)) as engine, engine.connect() as connection:
        yield OpenTransaction(lambda: connection)


def _lending(own: Any) -> Engine:
    """An engine that has only this connection of a driver."""
    dialect = adapter_of(own, own_tables().task).dialect
    options: dict[str, Any] = {}
    if dialect.driver == "psycopg":
        options["use_native_hstore"] = False  # else it looks for that type, in its own way
    return create_engine(
        f"{dialect.name}+{dialect.driver}://",
        creator=lambda: _Lent(own),
        poolclass=StaticPool,
        pool_reset_on_return=None,
        hide_parameters=True,
        **options,
    )
