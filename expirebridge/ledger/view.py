"""The view `delay_queue`: the tasks in the columns of a table of delayed tasks, times as times."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, DateTime, Select, Table, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import DDLCompiler, SQLCompiler
from sqlalchemy.sql.ddl import ExecutableDDLElement
from sqlalchemy.sql.functions import FunctionElement

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
