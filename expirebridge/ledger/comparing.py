"""Compares rows that Redis does not have yet with other code, before that code runs."""

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, func, or_, select

from expirebridge.handlers.compatibility import Comparison
from expirebridge.ledger.clock import NowMs
from expirebridge.ledger.tables import Status, Tables, Todo, Wanted
from expirebridge.store.commands import StoredCall

PAGE_ROWS: Final = 1000


def compare_rows(
    connection: Connection,
    tables: Tables,
    ledger: str,
    comparison: Comparison,
    *,
    due_within: float | None = None,
) -> int:
    """Compare the tasks of rows that are new or changed, or that Redis has lost.

    `due_within` leaves out what is due in so many seconds or later, on the database's clock; the
    number of these is returned. A row that is relayed meanwhile may be compared twice: here, and as
    a task of Redis.
    """
    task, later, after = tables.task, 0, ""
    planned = func.coalesce(task.c.due, task.c.at_ms, task.c.written + task.c.delay_ms)
    while True:
        rows: list[Any] = list(
            connection.execute(
                select(task.c.id, task.c.func, task.c.params, planned.label("due"), NowMs())
                .where(*_unrelayed(task, ledger), task.c.id > after)
                .order_by(task.c.id)
                .limit(PAGE_ROWS)
            )
        )
        for id, name, params, due, now in rows:
            if due_within is not None and due >= now + due_within * 1000:
                later += 1
            else:
                comparison.add(StoredCall(id, name, str(params).encode(), due))
        if len(rows) < PAGE_ROWS:
            return later
        after = rows[-1].id


def _unrelayed(task: Table, ledger: str) -> tuple[ColumnElement[bool], ...]:
    """Rows whose tasks Redis does not have, or has with another call."""
    row = task.c
    return (
        row.ledger == ledger,
        row.todo > 0,
        row.status == Status.WAITING,
        row.wanted == Wanted.NONE.value,
        or_(row.stamp == 0, row.todo == Todo.REBUILD, row.due.is_(None)),
    )
