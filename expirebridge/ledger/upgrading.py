"""Upgrades the ledger's tables that an earlier version of expirebridge created."""

from typing import Any, Final

from sqlalchemy import insert, literal_column, select, text, update
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from expirebridge.ledger.clock import NowMs
from expirebridge.ledger.tables import OLDEST, VERSION, Tables
from expirebridge.ledger.view import CreateView, DropView

_FORMER: Final = "expirebridge_task_former"
"""What SQLite's table is called while another takes its place."""


def upgrade_statements(dialect: Dialect, made: Tables) -> list[str]:
    """The statements that make these tables of the oldest version those of the present one.

    Version 1 counted generations from 1; since version 2 the time at which a life began is its
    number. Rows keep theirs. Since version 2 a series can be paused, and it is remembered where
    both databases were met: after the upgrade `ledger rebuild` binds them.
    """
    version = update(made.schema).where(made.schema.c.version == OLDEST).values(version=VERSION)
    change = {"postgresql": _in_postgresql, "sqlite": _in_sqlite}.get(dialect.name, _in_mysql)
    paused = _text(CreateColumn(made.series.c.paused), dialect)
    met = _text(CreateColumn(made.passes.c.met), dialect)
    return [
        *change(dialect, made),
        f"ALTER TABLE {_name(dialect, made, made.series.name)} ADD COLUMN {paused}",
        f"ALTER TABLE {_name(dialect, made, made.passes.name)} ADD COLUMN {met}",
        _text(version, dialect, literal_binds=True),
    ]


def _in_postgresql(dialect: Dialect, made: Tables) -> list[str]:
    column = "ALTER COLUMN generation"
    return [
        f"ALTER TABLE {_name(dialect, made)} {column} DROP DEFAULT, {column} TYPE BIGINT, "
        f"{column} SET DEFAULT {_text(NowMs(), dialect)}"
    ]


def _in_mysql(dialect: Dialect, made: Tables) -> list[str]:
    column = _text(CreateColumn(made.task.c.generation), dialect)
    return [f"ALTER TABLE {_name(dialect, made)} MODIFY {column}"]


def _in_sqlite(dialect: Dialect, made: Tables) -> list[str]:
    """SQLite cannot change a default: another table takes the place of the former one."""
    task, former = made.task, _name(dialect, made, _FORMER)
    names = [column.name for column in task.columns]
    old: Any = select(*(literal_column(name) for name in names)).select_from(text(former))
    return [
        _text(DropView(task), dialect),
        f"ALTER TABLE {_name(dialect, made)} RENAME TO {_FORMER}",
        _text(CreateTable(task), dialect),
        _text(insert(task).from_select(names, old, include_defaults=False), dialect),
        f"DROP TABLE {former}",
        *(_text(CreateIndex(index), dialect) for index in sorted(task.indexes, key=_index_name)),
        _text(CreateView(task), dialect),
    ]


def _index_name(index: Any) -> str:
    return str(index.name)


def _name(dialect: Dialect, made: Tables, name: str = "") -> str:
    preparer = dialect.identifier_preparer
    schema = f"{preparer.quote(made.task.schema)}." if made.task.schema else ""
    return f"{schema}{preparer.quote(name or made.task.name)}"


def _text(statement: Any, dialect: Dialect, **options: Any) -> str:
    return str(statement.compile(dialect=dialect, compile_kwargs=options)).strip()
