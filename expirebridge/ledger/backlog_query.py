"""The rows that wait for the relay, in the order of the index.

A million may wait, and as many may have waited a moment ago. A query here takes its rows from one
stretch of the index `expirebridge_task_todo`, in the order of the index, and with constants that
the planner can see: with an OR, another order, or EXISTS, databases read all that wait, for each
page again.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    false,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from expirebridge.ledger.row_state import SyncState

_FORCE_INDEX = "FORCE INDEX (expirebridge_task_todo)"
"""For MySQL, which otherwise may walk over the primary key."""
Slot = ColumnElement[int] | int | None
"""A partition; None: that of a row which was not sorted yet."""


class BacklogQuery:
    """The queries for the rows of one ledger that wait."""

    def __init__(self, task: Table, ledger: str | ColumnElement[str]) -> None:
        self._task = task
        self._ledger = ledger

    def first(
        self, most: ColumnElement[int], *columns: Any, slot: Slot, todo: SyncState
    ) -> Select[Any]:
        """So many rows of one stretch: new ones as they came, lost ones that ended first."""
        row = self._task.c
        order = _Forwards if todo is SyncState.RELAY else _Backwards
        return (
            select(*columns)
            .select_from(self._task)
            .with_hint(self._task, _FORCE_INDEX, "mysql")
            .with_hint(self._task, _FORCE_INDEX, "mariadb")
            .where(
                row.ledger == self._ledger,
                row.slot.is_(None) if slot is None else row.slot == slot,
                row.todo == constant(todo),
                _IsInIndex(row.todo),
            )
            .order_by(order(row.slot, row.status))
            .limit(most)
        )

    def all(self, *columns: Any, todo: SyncState) -> Select[Any]:
        """Select those of all partitions in the order of the index, to be read in pages."""
        row = self._task.c
        return (
            select(*columns)
            .select_from(self._task)
            .with_hint(self._task, _FORCE_INDEX, "mysql")
            .with_hint(self._task, _FORCE_INDEX, "mariadb")
            .where(row.ledger == self._ledger, row.todo == constant(todo), _IsInIndex(row.todo))
            .order_by(row.slot, row.status)
        )

    def any(self, slots: Sequence[Slot], todo: SyncState) -> ColumnElement[bool]:
        """A condition: there is such a row. It reads the index once for each slot."""
        looks = (
            self.first(constant(1), constant(1), slot=slot, todo=todo)
            .scalar_subquery()
            .is_not(None)
            for slot in slots
        )
        return or_(false(), *looks)

    def page(self, most: ColumnElement[int], slots: Sequence[Slot]) -> Select[Any]:
        """So many rows: new ones first, then of what is rebuilt those that ended."""
        stretches = [
            select(self.first(most, self._task, slot=slot, todo=todo).subquery())
            for slot in slots
            for todo in (SyncState.RELAY, SyncState.REBUILD)
        ]
        found = union_all(*stretches).subquery()
        order = found.c.todo, found.c.status.desc()
        return select(found).order_by(*order).limit(most)


class _IsInIndex(FunctionElement[Any]):
    """The condition of the partial index, as each dialect recognises it."""

    inherit_cache = True
    name = "is_in_index"
    beyond = 0


class HasEnded(_IsInIndex):
    """The condition of the index `expirebridge_task_ended`."""

    inherit_cache = True
    beyond = 1


@compiles(_IsInIndex)
def _condition(element: _IsInIndex, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.clauses, **options)} > {element.beyond}"


@compiles(_IsInIndex, "sqlite")
def _likely_condition(element: _IsInIndex, compiler: SQLCompiler, **options: Any) -> str:
    # Otherwise SQLite walks over the range that this is, and not only what equals the constant.
    return f"likely({compiler.process(element.clauses, **options)} > {element.beyond})"


class _Forwards(FunctionElement[Any]):
    """The order of the index within a stretch: slot and status."""

    inherit_cache = True
    name = "forwards"
    way = ""


class _Backwards(_Forwards):
    """The reverse order of the index: slot and status, descending."""

    inherit_cache = True
    name = "backwards"
    way = " DESC"


@compiles(_Forwards)
def _order(element: _Forwards, compiler: SQLCompiler, **options: Any) -> str:
    # For PostgreSQL IS NULL is no constant, so an order without the slot is none of the index.
    parts = (compiler.process(each, **options) + element.way for each in element.clauses)
    return ", ".join(parts)


@compiles(_Forwards, "mysql")
@compiles(_Forwards, "mariadb")
def _mysql_order(element: _Forwards, compiler: SQLCompiler, **options: Any) -> str:
    # For MySQL it is one, but it sorts if that is in the order.
    _, status = element.clauses
    return compiler.process(status, **options) + element.way


def constant(value: int) -> ColumnElement[int]:
    """A number that the planner can see."""
    return literal_column(str(int(value)))
