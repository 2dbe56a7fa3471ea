"""Opens a SQL database from which schedules are read, and says what its errors mean."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from expirebridge.errors import InvalidSetting
from expirebridge.importing.job import Found, JobFilter

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection

_PAGE = 500


class SqlSource(ABC):
    """The rows of a query, each of which is a job or the reason why it is left out."""

    table: ClassVar[str]
    query: ClassVar[str]

    def __init__(self, connection: "Connection", wanted: JobFilter) -> None:
        self._connection, self._wanted = connection, wanted

    def count(self) -> int:
        """See `Source.count`."""
        check_tables(self._connection, self.table)
        return count(self._connection, self.table)

    def pages(self) -> Iterator[list[Found]]:
        """See `Source.pages`."""
        for page in pages(self._connection, self.query):
            yield [self._found(row) for row in page]

    @abstractmethod
    def _found(self, row: dict[str, Any]) -> Found: ...


@contextmanager
def connected(url: str) -> Iterator["Connection"]:
    """A connection that only reads. Raises InvalidSetting for a URL or database of no use."""
    try:
        from sqlalchemy import create_engine, exc, make_url  # noqa: PLC0415 - rarely needed
    except ModuleNotFoundError:
        raise InvalidSetting(
            "SQLAlchemy reads the source, and is not installed: pip install 'expirebridge[sql]'"
        ) from None
    try:
        read = make_url(url)
        _check_file(read)
        engine = create_engine(read, hide_parameters=True)
    except (exc.ArgumentError, ValueError) as error:
        if isinstance(error, InvalidSetting):
            raise
        raise InvalidSetting(
            "the source's URL cannot be read: write it like postgresql+psycopg://user@host/database"
        ) from None
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"the driver {error.name!r} is not installed: install it, or name another one in the "
            "URL, such as postgresql+psycopg://"
        ) from None
    try:
        with engine.connect() as connection:
            yield connection
    except exc.DBAPIError as error:
        reason = str(error.orig).strip().partition("\n")[0]
        raise InvalidSetting(f"{address_of(read)}, the source: {reason}") from None
    finally:
        engine.dispose()


def address_of(url: "URL") -> str:
    """The server and database, without the login."""
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").resolve())
    return f"{url.host or 'localhost'}:{url.port or ''}/{url.database or ''}"


def check_tables(connection: "Connection", *tables: str) -> None:
    """Raise InvalidSetting unless the database has these tables."""
    from sqlalchemy import inspect  # noqa: PLC0415 - rarely needed

    inspected = inspect(connection)
    for table in tables:
        if not inspected.has_table(table):
            raise InvalidSetting(
                f"there is no table {table} in {address_of(connection.engine.url)}: check the URL"
            )


def count(connection: "Connection", table: str) -> int:
    """The number of rows of a table."""
    return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())  # noqa: S608 - a name of ours


def pages(connection: "Connection", statement: str) -> Iterator[list[dict[str, Any]]]:
    """The rows of a query, a few hundred at a time."""
    for page in connection.exec_driver_sql(statement).mappings().partitions(_PAGE):
        yield [dict(row) for row in page]


def _check_file(url: "URL") -> None:
    """SQLite would make a file that is not there."""
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise InvalidSetting(f"there is no file {url.database}")
