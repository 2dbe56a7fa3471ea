"""The ledger's own connections, beside those of the application, and threads that wait for them.

The relay uses them, and commands.
"""

import importlib.util
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    DisconnectionError,
    NoSuchModuleError,
    SQLAlchemyError,
)
from sqlalchemy.pool import ConnectionPoolEntry

from expirebridge.errors import ExpirebridgeError, InvalidSetting, LedgerError, LedgerUnreachable
from expirebridge.ledger.db_errors import (
    is_locked,
    is_missing,
    is_unreachable,
    lacks_column,
    reason_of,
)
from expirebridge.ledger.schema import DIALECTS, missing, other_table
from expirebridge.ledger.sql_tables import own_tables

CONNECT_SECONDS: Final = 5
"""Seconds to wait for a connection; in SQLite, for another writer."""
LOCK_SECONDS: Final = 2
"""Seconds to wait for a lock of another transaction, where it cannot be passed over."""
STALLED_SECONDS: Final = 10
"""Seconds after which the database ends a transaction of ours that does nothing: its process was
stopped, or is gone without a word, and holds the row with the numbers of batches."""
SILENT_SECONDS: Final = 120
"""Seconds to wait for an answer of MySQL: its drivers have no keepalive."""
IDLE_SECONDS: Final = 0.5
"""Seconds after which a connection that nothing used is asked whether it still works."""
_USED: Final = "expirebridge_used"
_WAITING_DRIVERS: Final = {
    "sqlite+aiosqlite": "sqlite",
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
    "mysql+aiomysql": "mysql+pymysql",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb+aiomysql": "mariadb+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
}
"""Instead of a driver that is awaited, one that waits."""
_PREFERRED: Final = {
    "postgres": ("psycopg", "postgresql+psycopg"),
    "postgresql": ("psycopg", "postgresql+psycopg"),
    "mysql": ("pymysql", "mysql+pymysql"),
    "mariadb": ("pymysql", "mariadb+pymysql"),
}
"""For a URL that names no driver: one that is used if it is installed."""
_KEEPALIVES: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""A connection whose other end is gone without a word is given up after 25 s."""
_POSTGRESQL: Final = {
    "connect_timeout": CONNECT_SECONDS,
    # Whatever the encoding of the database is: it says itself which characters it does not have.
    "client_encoding": "utf8",
    **_KEEPALIVES,
}
_MYSQL: Final = {
    "connect_timeout": CONNECT_SECONDS,
    "read_timeout": SILENT_SECONDS,
    "charset": "utf8mb4",
    # The third is MariaDB's alone.
    "init_command": f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}, lock_wait_timeout = "
    f"{LOCK_SECONDS} /*M! , idle_transaction_timeout = {STALLED_SECONDS} */",
}
_CONNECT: Final[dict[str, dict[str, Any]]] = {
    # Prepared statements do not survive PgBouncer's transaction mode.
    "psycopg": {"prepare_threshold": None, **_POSTGRESQL},
    "psycopg2": _POSTGRESQL,
    "pymysql": _MYSQL,
    "mysqldb": _MYSQL,
    "pysqlite": {"timeout": CONNECT_SECONDS},
}


def read_url(url: str | URL) -> URL:
    """Read the URL of a ledger's database.

    Raises InvalidSetting, which does not repeat it: it may hold a password.
    """
    try:
        read = make_url(url)
    except (ArgumentError, ValueError):
        raise InvalidSetting(
            "the ledger's URL cannot be read: write it like postgresql+psycopg://user@host/database"
        ) from None
    module, preferred = _PREFERRED.get(read.drivername, ("", read.drivername))
    if module and (importlib.util.find_spec(module) or read.drivername == "postgres"):
        read = read.set(drivername=preferred)
    read = read.set(drivername=_WAITING_DRIVERS.get(read.drivername, read.drivername))
    dialect = read.get_backend_name()
    if dialect not in DIALECTS:
        raise InvalidSetting(f"{dialect!r} cannot hold a ledger: one of {', '.join(DIALECTS)}")
    return read


def engine_of(url: str | URL, *, reads_only: bool = False, **options: Any) -> Engine:
    """An engine whose transactions suit the ledger; `options` are those of `create_engine`.

    In SQLite each transaction takes the write lock when it begins, so that none fails half-way,
    unless it only reads. Raises InvalidSetting for a URL that cannot be used.
    """
    read = read_url(url)
    if read.get_backend_name() in {"mysql", "mariadb"}:
        options.setdefault("isolation_level", "READ COMMITTED")
    try:
        engine = create_engine(
            read,
            connect_args=_CONNECT.get(read.get_driver_name(), {}),
            hide_parameters=True,
            **options,
        )
    except NoSuchModuleError:
        raise InvalidSetting(f"SQLAlchemy has no driver {read.drivername!r}") from None
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"the driver {error.name!r} of the ledger's database is not installed: pip install "
            f"{error.name}"
        ) from None
    if engine.dialect.name == "sqlite":
        _read_any_text(engine)
        if not reads_only:
            begin_immediate(engine)
    return engine


def _read_any_text(engine: Engine) -> None:
    """Let text of SQLite that is no UTF-8 be read: it keeps what it is given.

    Otherwise a query that finds one such text would fail, with all its rows.
    """

    @event.listens_for(engine, "connect")
    def escape(connection: sqlite3.Connection, _: object) -> None:
        connection.text_factory = lambda raw: raw.decode(errors="backslashreplace")


def check_after_idling(engine: Engine) -> None:
    """Let a connection be asked whether it still works if it was idle for a while.

    It is replaced if it does not. To ask before each use would be a round trip more for each.
    """

    @event.listens_for(engine, "checkin")
    def note(_: object, record: ConnectionPoolEntry) -> None:
        record.info[_USED] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def check(connection: DBAPIConnection, record: ConnectionPoolEntry, _: object) -> None:
        if time.monotonic() - record.info.get(_USED, 0.0) < IDLE_SECONDS:
            return
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            raise DisconnectionError from error


def allow_undoing(connection: Connection) -> None:
    """Let the commit of this transaction not wait for the disk: a power cut may undo it.

    PostgreSQL can say that for one transaction; it keeps the order of commits.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")


def begin_immediate(engine: Engine) -> None:
    """Let each transaction of an SQLite engine take the write lock when it begins.

    Savepoints work then as well, which they do not with what `sqlite3` does by itself.
    """

    @event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def ledger_error(error: DBAPIError, url: URL) -> LedgerError:
    """Describe an error in one line, without the password and the parameters."""
    place = url.render_as_string(hide_password=True)
    if is_unreachable(error):
        return LedgerUnreachable(
            f"the ledger's database {place} cannot be reached: {reason_of(error)}"
        )
    if lacks_column(error):
        return other_table(own_tables(), reason_of(error))
    if is_missing(error):
        return missing(own_tables())
    if is_locked(error):
        return LedgerError(
            f"another transaction holds a lock in the ledger's database {place}: {reason_of(error)}"
        )
    return LedgerError(f"the ledger's database {place} refused a call: {reason_of(error)}")


@contextmanager
def connected(url: str, *, reads_only: bool = False) -> Iterator[Connection]:
    """A transaction through an engine of its own; errors of the database become a LedgerError."""
    engine = engine_of(url, reads_only=reads_only)
    try:
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise ledger_error(error, engine.url) from None
    finally:
        engine.dispose()


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Let any error be raised as LedgerError, except our own.

    Drivers raise errors of any class, such as UnicodeEncodeError: each is the relay's trouble, and
    must not end a listener, which runs other tasks as well.
    """
    try:
        yield
    except ExpirebridgeError:
        raise
    except DBAPIError as error:
        raise ledger_error(error, url) from error
    except SQLAlchemyError as error:
        raise LedgerError(f"the ledger's database cannot be used: {error}") from error
    except Exception as error:
        raise LedgerError(
            f"the ledger's database cannot be used: {type(error).__name__}: {error}"
        ) from error


# The source of the relay's transactions: an engine, or a substitute.


class RelayTransactions:
    """The transactions of an engine; what only reads takes no round trip to begin and to end.

    In PostgreSQL: the drivers of others would send a statement for that. There, each transaction
    also says how long it waits for locks: other databases know it from the connection, but what is
    set for a whole session, PgBouncer would hand to other programs.
    """

    def __init__(self, engine: Engine) -> None:
        self._reading = self._writing = engine
        self._first = ""
        """The statement with which a transaction begins."""
        if engine.dialect.name == "postgresql":
            self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")
            self._first = (
                f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'; "
                f"SET LOCAL idle_in_transaction_session_timeout = '{STALLED_SECONDS}s'"
            )
        if engine.dialect.driver == "psycopg":
            # It would send BEGIN by itself, in a round trip more. It commits what it did not begin.
            self._writing, self._first = self._reading, f"BEGIN; {self._first}"

    def connect(self) -> Connection:
        """A connection that reads."""
        return self._reading.connect()

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction."""
        with self._writing.begin() as connection:
            if self._first:
                connection.exec_driver_sql(self._first)
            yield connection


class Transactions(Protocol):
    """A source of transactions: an Engine of SQLAlchemy, or the open transaction of a test."""

    def connect(self) -> AbstractContextManager[Connection]:
        """A connection that reads; nothing is left of its transaction."""
        ...

    def begin(self) -> AbstractContextManager[Connection]:
        """A transaction, which is committed when the block ends, or rolled back if it raises."""
        ...


# The threads are daemons, so a call that never returns does not keep the process from its end, as a
# thread of `concurrent.futures` would.

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds to wait for an answer of the database before the caller gets an error."""
CLOSING: Final = 0.2
"""Seconds to wait at the end for calls under way. A batch cut off then is repeated."""


class DaemonPool:
    """Makes calls in up to `most` threads, which are started when they are needed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = 0
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._then: Callable[[], None]
        self._over = threading.Event()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call; one whose future is cancelled before its turn is left out."""
        future: Future[T] = Future()
        with self._lock:
            self._calls.put((call, future))
            if self._idle:
                self._idle -= 1
            elif self._count < self._most:
                self._count += 1
                threading.Thread(target=self._run, name="expirebridge-ledger", daemon=True).start()
        return future

    def close(self, then: Callable[[], None]) -> None:
        """Let the threads end, and call `then` after the last one: what they use can go.

        That is waited for a moment only; a call that never returns ends with the process.
        """
        with self._lock:
            self._then = then
            count = self._count
            for _ in range(count):
                self._calls.put(None)
        if not count:
            then()
            return
        self._over.wait(CLOSING)

    def _run(self) -> None:
        self._make_calls()
        with self._lock:
            self._count -= 1
            is_last = not self._count
        if is_last:
            self._then()
            self._over.set()

    def _make_calls(self) -> None:
        while (taken := self._calls.get()) is not None:
            call, future = taken
            if future.set_running_or_notify_cancel():
                _make(call, future)
            del taken, call, future
            with self._lock:
                self._idle += self._calls.empty()


def _make(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def with_timeout(call: Callable[[], T]) -> T:
    """Make a call in a thread of its own. Raises LedgerUnreachable if it takes longer than 5 s."""
    seconds = PATIENCE
    future: Future[T] = Future()
    threading.Thread(target=_make, args=(call, future), daemon=True).start()
    with suppress(TimeoutError):
        return future.result(seconds)
    raise too_slow(seconds)


def too_slow(seconds: float) -> LedgerUnreachable:
    """The database has not answered for so long."""
    return LedgerUnreachable(f"the ledger's database has not answered for {seconds:g} s")
