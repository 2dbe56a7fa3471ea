"""The columns of the ledger's tables in each kind of database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from sqlalchemy import BigInteger, Column, DateTime, Select, String, Table, Text, select, text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.ddl import ExecutableDDLElement
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

_MYSQL: Final = ("mysql", "mariadb")
INNODB: Final[dict[str, Any]] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


def ascii_(length: int) -> TypeEngine[str]:
    """Text whose bytes are compared: `A` is not `a`, and no collation decides."""
    return (
        String(length)
        .with_variant(String(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), *_MYSQL)
    )


def unicode_(length: int) -> TypeEngine[str]:
    """Text of any characters whose bytes are compared."""
    return (
        String(length)
        .with_variant(postgresql.VARCHAR(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL)
    )


def long_text() -> TypeEngine[str]:
    """Text of up to 64 KiB and more: what MySQL calls TEXT ends one byte before that."""
    return Text().with_variant(
        mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL
    )


def column(
    name: str, type: TypeEngine[Any], default: Any = None, *, nullable: bool = False, **more: Any
) -> Column[Any]:
    """A column, with the default that the database itself gives."""
    if isinstance(default, int):
        default = text(str(int(default)))
    return Column(name, type, server_default=default, nullable=nullable, **more)


# SQL expressions that each dialect writes in its own way: the time, and a random text.

# In PostgreSQL now() is when the transaction began. In MySQL UNIX_TIMESTAMP(NOW()) passes through
# the session's time zone, and its repeated hour.
_MYSQL_NOW = "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000)"
_NOW: Final = {
    "postgresql": "(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)",
    "sqlite": "(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER))",
    "mysql": _MYSQL_NOW,
    "mariadb": _MYSQL_NOW,
}
_RANDOM: Final = {
    "postgresql": "(replace(gen_random_uuid()::text, '-', ''))",
    "sqlite": "(lower(hex(randomblob(16))))",
    "mysql": "(replace(uuid(), '-', ''))",
    "mariadb": "(replace(uuid(), '-', ''))",
}


class NowMs(FunctionElement[int]):
    """The database's clock when the statement runs, in whole milliseconds since 1970."""

    type = BigInteger()
    inherit_cache = True
    name = "now_ms"


class RandomId(FunctionElement[str]):
    """A text of 32 hexadecimal digits that nothing else has: an id for a task."""

    type = String(32)
    inherit_cache = True
    name = "random_id"


_ahead: Callable[[], int] = int


def ahead() -> int:
    """Milliseconds that are added to the database's clock where the ticks of series are computed.

    0, but in tests: they move Redis's clock, and the times of ticks are compared with that.
    """
    return _ahead()


@contextmanager
def moved(by: Callable[[], int]) -> Iterator[None]:
    """While the block runs, `ahead` returns what this returns."""
    global _ahead  # noqa: PLW0603 - the one place that says how far tests moved the clock
    before, _ahead = _ahead, by
    try:
        yield
    finally:
        _ahead = before


@compiles(NowMs)
def _now(_: NowMs, compiler: SQLCompiler, **__: Any) -> str:
    return _NOW[compiler.dialect.name]


@compiles(RandomId)
def _random(_: RandomId, compiler: SQLCompiler, **__: Any) -> str:
    return _RANDOM[compiler.dialect.name]


# The view `delay_queue`: the tasks in the columns of a table of delayed tasks, times as times.

NAME = "delay_queue"


class Moment(FunctionElement[datetime]):
    """Milliseconds since 1970 as the database's own type for a time, in UTC."""

    type = DateTime(timezone=True)
    inherit_cache = True
    name = "moment"

    def __init__(self, column: Column[int]) -> None:
        super().__init__(column)


@compiles(Moment, "postgresql")
def _moment_postgresql(element: Moment, compiler: SQLCompiler, **options: Any) -> str:
    return f"to_timestamp({compiler.process(element.clauses, **options)} / 1000.0)"


@compiles(Moment, "sqlite")
def _moment_sqlite(element: Moment, compiler: SQLCompiler, **options: Any) -> str:
    ms = compiler.process(element.clauses, **options)
    return f"strftime('%Y-%m-%d %H:%M:%f', {ms} / 1000.0, 'unixepoch')"


@compiles(Moment, "mysql", "mariadb")
def _moment_mysql(element: Moment, compiler: SQLCompiler, **options: Any) -> str:
    ms = compiler.process(element.clauses, **options)
    return f"TIMESTAMPADD(MICROSECOND, {ms} * 1000, '1970-01-01')"


def _selected(task: Table) -> Select[Any]:
    row = task.c
    return select(
        row.id,
        row.params,
        row.message,
        row.ext_string,
        row.retry_times,
        row.status,
        Moment(row.created).label("created"),
        Moment(row.modified).label("modified"),
    )


class CreateView(ExecutableDDLElement):
    """Creates the view, beside the table."""

    def __init__(self, task: Table) -> None:
        self.task = task


class DropView(ExecutableDDLElement):
    """Drops the view, if it is there."""

    def __init__(self, task: Table) -> None:
        self.task = task


@compiles(CreateView)
def _create(element: CreateView, compiler: DDLCompiler, **_: Any) -> str:
    query = compiler.sql_compiler.process(_selected(element.task), literal_binds=True)
    return f"CREATE VIEW {_name(element.task, compiler)} AS {query}"


@compiles(DropView)
def _drop(element: DropView, compiler: DDLCompiler, **_: Any) -> str:
    return f"DROP VIEW IF EXISTS {_name(element.task, compiler)}"


def _name(task: Table, compiler: DDLCompiler) -> str:
    return f"{compiler.preparer.quote(task.schema)}.{NAME}" if task.schema else NAME
