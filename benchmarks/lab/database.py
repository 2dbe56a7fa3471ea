"""The SQL database of one measurement, with the table of an application: new, and alone.

PostgreSQL and MariaDB are Debian's, with their own defaults, so a commit waits for the disk; and
SQLite is a file in the folder of the measurement, with its defaults.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from sqlalchemy import create_engine, text

from tests.kit.databases import POSTGRESQL, SQLITE, DatabaseServer, SqliteFiles

ORDERS = """
    CREATE TABLE orders (
        id INTEGER PRIMARY KEY {drawn}, number BIGINT NOT NULL, customer VARCHAR(100) NOT NULL,
        note VARCHAR(200) NOT NULL
    )
"""
DRAWN = {"postgresql": "GENERATED ALWAYS AS IDENTITY", "mariadb": "AUTO_INCREMENT", "sqlite": ""}
COUNTS_STATEMENTS = "shared_preload_libraries=pg_stat_statements"


class Database:
    """A database of its own, in which the table of an application's orders is."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._server: DatabaseServer | None = None
        self._stack = ExitStack()
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self.name == SQLITE:
                url = SqliteFiles(self._folder).new_database()
            else:
                self._server = DatabaseServer(self.name, durable=True, settings=[COUNTS_STATEMENTS])
                stack.callback(self._server.close)
                url = self._server.new_database()
            self.url = url.render_as_string(hide_password=False)
            self._engine = create_engine(url, isolation_level="AUTOCOMMIT")
            stack.callback(self._engine.dispose)
            self.execute(ORDERS.format(drawn=DRAWN[self.name]))
            if self.name == POSTGRESQL:
                self.execute("CREATE EXTENSION pg_stat_statements")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def pids(self) -> list[int]:
        """Its process; none of SQLite."""
        return [self._server.pid] if self._server else []

    def execute(self, statement: str, **values: Any) -> None:
        """Execute a statement."""
        with self._engine.connect() as connection:
            connection.execute(text(statement), values)

    def rows(self, query: str, **values: Any) -> list[Any]:
        """The rows of a query."""
        with self._engine.connect() as connection:
            return list(connection.execute(text(query), values))

    def scalar(self, query: str, **values: Any) -> Any:
        """The one value of a query."""
        return self.rows(query, **values)[0][0]

    def statements(self) -> int:
        """The statements that PostgreSQL was sent so far, with those that begin and end
        transactions."""
        return int(self.scalar("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements"))

    def written(self) -> int:
        """The bytes of PostgreSQL's log of changes, so far."""
        return int(self.scalar("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
