"""The queries for the rows of a ledger that wait for the relay."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    Table,
    false,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from expirebridge.ledger.rows import LARGEST_TIME, SyncState
from expirebridge.ledger.sql_types import NowMs

# A million rows may wait, and as many may have waited a moment ago. The query for them takes its
# rows from one stretch of the index `expirebridge_task_todo`, in the order of the index, and with
# constants that the planner can see: with an OR, another order, or EXISTS, databases read all that
# wait, for each page again.

_FORCE_INDEX = "FORCE INDEX (expirebridge_task_todo)"
"""For MySQL, which otherwise may walk over the primary key."""
PartitionOfRow = ColumnElement[int] | int | None
"""A partition; None: that of a row which was not sorted yet."""


class BacklogQuery:
    """The queries for the rows of one ledger that wait for the relay.

    New rows that are planned after the horizon, in ms from now, are not among them.
    """

    def __init__(
        self, task: Table, ledger: str | ColumnElement[str], horizon: ColumnElement[int]
    ) -> None:
        self._task = task
        self._ledger = ledger
        self._horizon = horizon

    def first(
        self, most: ColumnElement[int], *columns: Any, partition: PartitionOfRow, todo: SyncState
    ) -> Select[Any]:
        """So many rows of one stretch: those to be relayed at once first, then as they are due."""
        row = self._task.c
        rows = self._rows_of(partition, *columns).where(*self._stretch(todo))
        return rows.order_by(_InIndexOrder(row.slot, row.planned)).limit(most)

    def kept_back(
        self, most: ColumnElement[int], *columns: Any, partition: PartitionOfRow,
        latest: bool = False,
    ) -> Select[Any]:  # fmt: skip
        """So many new rows that are planned after the horizon: the nearest first, or the latest."""
        row = self._task.c
        order = _InReverseOrder if latest else _InIndexOrder
        rows = self._rows_of(partition, *columns).where(
            row.ledger == self._ledger, row.todo == constant(SyncState.RELAY),
            IsInIndex(row.todo), row.planned > self._near(),
        )  # fmt: skip
        return rows.order_by(order(row.slot, row.planned)).limit(most)

    def _rows_of(self, partition: PartitionOfRow, *columns: Any) -> Select[Any]:
        slot = self._task.c.slot
        return (
            select(*columns)
            .select_from(self._task)
            .with_hint(self._task, _FORCE_INDEX, "mysql")
            .with_hint(self._task, _FORCE_INDEX, "mariadb")
            .where(slot.is_(None) if partition is None else slot == partition)
        )

    def _stretch(self, todo: SyncState) -> list[ColumnElement[bool]]:
        row = self._task.c
        stretch = [row.ledger == self._ledger, row.todo == constant(todo), IsInIndex(row.todo)]
        if todo is SyncState.RELAY:
            stretch.append(row.planned <= self._near())
        return stretch

    def _near(self) -> ColumnElement[int]:
        # As a query of its own it is made once; a bare clock would be no end of a range.
        return select(NowMs() + self._horizon).scalar_subquery()

    def any(self, partitions: Sequence[PartitionOfRow], todo: SyncState) -> ColumnElement[bool]:
        """A condition: there is such a row. It reads the index once for each slot."""
        looks = (
            self.first(constant(1), constant(1), partition=partition, todo=todo)
            .scalar_subquery()
            .is_not(None)
            for partition in partitions
        )
        return or_(false(), *looks)

    def page(self, most: ColumnElement[int], partitions: Sequence[PartitionOfRow]) -> Select[Any]:
        """So many rows: new ones first."""
        found = together(
            self.first(most, self._task, partition=partition, todo=todo)
            for partition in partitions
            for todo in (SyncState.RELAY, SyncState.REBUILD)
        )
        return select(found).order_by(found.c.todo, found.c.planned).limit(most)

    def coming(self, start: int, width: int, spans: int) -> list[Select[Any]]:
        """Count new rows by when they are due: in which span of so many ms from `start` on.

        Most have no partition yet: of these only what is due in that time is read.
        """
        row = self._task.c
        number = ((row.planned - start) // width).label("number")
        due = row.planned.between(start, start + spans * width - 1)
        return [
            select(number, row.func, func.count())
            .with_hint(self._task, _FORCE_INDEX, "mysql")
            .with_hint(self._task, _FORCE_INDEX, "mariadb")
            .where(
                row.ledger == self._ledger, row.todo == constant(SyncState.RELAY),
                IsInIndex(row.todo), row.stamp == 0, slot, due,
            )
            .group_by(number, row.func)
            for slot in (row.slot.is_(None), row.slot.is_not(None))
        ]  # fmt: skip


def together(stretches: Iterable[Select[Any]]) -> Subquery:
    """The rows of several queries, each of which has an order and a limit of its own."""
    return union_all(*(select(each.subquery()) for each in stretches)).subquery()


class IsInIndex(FunctionElement[Any]):
    """The condition of the partial index, as each dialect recognises it."""

    inherit_cache = True
    name = "is_in_index"
    beyond = 0


class HasEnded(IsInIndex):
    """The condition of the index `expirebridge_task_ended`."""

    inherit_cache = True
    beyond = 1


@compiles(IsInIndex)
def _condition(element: IsInIndex, compiler: SQLCompiler, **options: Any) -> str:
    return f"{compiler.process(element.clauses, **options)} > {element.beyond}"


@compiles(IsInIndex, "sqlite")
def _likely_condition(element: IsInIndex, compiler: SQLCompiler, **options: Any) -> str:
    # Otherwise SQLite walks over the range that this is, and not only what equals the constant.
    return f"likely({compiler.process(element.clauses, **options)} > {element.beyond})"


class _InIndexOrder(FunctionElement[Any]):
    """The order of the index within a stretch: slot and planned time."""

    inherit_cache = True
    name = "in_index_order"


@compiles(_InIndexOrder)
def _order(element: _InIndexOrder, compiler: SQLCompiler, **options: Any) -> str:
    # For PostgreSQL IS NULL is no constant, so an order without the slot is none of the index.
    return compiler.process(element.clauses, **options)


@compiles(_InIndexOrder, "mysql")
@compiles(_InIndexOrder, "mariadb")
def _mysql_order(element: _InIndexOrder, compiler: SQLCompiler, **options: Any) -> str:
    # For MySQL it is one, but it sorts if that is in the order.
    _, planned = element.clauses
    return compiler.process(planned, **options)


class _InReverseOrder(FunctionElement[Any]):
    """The reverse order of the index within a stretch."""

    inherit_cache = True
    name = "in_reverse_order"


@compiles(_InReverseOrder)
def _reverse_order(element: _InReverseOrder, compiler: SQLCompiler, **options: Any) -> str:
    return ", ".join(f"{compiler.process(each, **options)} DESC" for each in element.clauses)


@compiles(_InReverseOrder, "mysql")
@compiles(_InReverseOrder, "mariadb")
def _mysql_reverse_order(element: _InReverseOrder, compiler: SQLCompiler, **options: Any) -> str:
    _, planned = element.clauses
    return f"{compiler.process(planned, **options)} DESC"


def constant(value: int) -> ColumnElement[int]:
    """A number that the planner can see."""
    return literal_column(str(int(value)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """How far ahead, and in how many partitions, the rows of a ledger are relayed."""

    horizon: int | None = None
    """In ms; None: all rows are relayed at once."""
    partitions: int = 1

    @property
    def ms(self) -> int:
        """Milliseconds from now within which rows are relayed; without a horizon, all time."""
        return LARGEST_TIME if self.horizon is None else self.horizon

    @property
    def slots(self) -> list[PartitionOfRow]:
        """Where rows may be in the index."""
        return [None, *range(self.partitions)]


def horizon_ms(horizon: float | None) -> int:
    """Milliseconds from now within which rows are relayed; without a horizon, all time."""
    return LARGEST_TIME if horizon is None else round(horizon * 1000)
