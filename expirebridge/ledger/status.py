"""How a ledger stands, and which of its rows cannot be relayed: for people and probes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from expirebridge.errors import InvalidTask
from expirebridge.ledger.clock import NowMs
from expirebridge.ledger.entries import REFUSED
from expirebridge.ledger.rows import new_task_of
from expirebridge.ledger.schema import find
from expirebridge.ledger.tables import Status, Tables, Todo

PAGE_ROWS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """How far the relay got with one partition."""

    partition: int
    number: int
    """The last number that was taken."""
    stamp: int
    """The highest number that a row carries."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerStatus:
    """How a ledger stands, as SQL knows it."""

    ledger: str
    """Its name."""
    version: int
    """Of the tables."""
    waiting: int
    """Tasks that wait or run."""
    succeeded: int
    failed: int
    cancelled: int
    to_relay: int
    """Rows that are new, or changed, and not yet carried to Redis."""
    to_rebuild: int
    """Rows that Redis lost, and does not have again yet."""
    refused: int
    """Rows that cannot be tasks, as long as they are kept."""
    oldest: float | None
    """How many seconds the oldest row to be relayed waits, on the database's clock."""
    passes: list[Pass] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Unfit:
    """A row that cannot be relayed."""

    id: str
    reason: str


def status_of(connection: Connection, tables: Tables, ledger: str) -> LedgerStatus:
    """Count the rows of a ledger. This reads the whole table.

    Raises LedgerUnsuitable if the tables are missing, or of another version.
    """
    schema = find(connection, tables)
    row = tables.task.c
    ours = row.ledger == ledger
    grouped = select(row.status, func.count()).where(ours).group_by(row.status)
    by_status = _counts(connection, grouped)
    grouped = select(row.todo, func.count()).where(ours, row.todo > 0).group_by(row.todo)
    by_todo = _counts(connection, grouped)
    waits = select(NowMs() - func.min(row.modified)).where(ours, row.todo > 0)
    oldest = connection.execute(waits).scalar()
    return LedgerStatus(
        ledger=ledger,
        version=schema.version,
        waiting=by_status.get(Status.WAITING, 0),
        succeeded=by_status.get(Status.SUCCEEDED, 0),
        failed=by_status.get(Status.FAILED, 0),
        cancelled=by_status.get(Status.CANCELLED, 0),
        to_relay=by_todo.get(Todo.RELAY, 0),
        to_rebuild=by_todo.get(Todo.REBUILD, 0),
        refused=_refused(connection, row, ours),
        oldest=None if oldest is None else max(oldest, 0) / 1000,
        passes=_passes(connection, tables, ledger),
    )


def _refused(connection: Connection, row: Any, ours: ColumnElement[bool]) -> int:
    said = row.message.like(f"{REFUSED}%")
    query = select(func.count()).where(ours, row.status == Status.FAILED.value, said)
    return connection.scalar(query) or 0


def _counts(connection: Connection, query: Select[Any]) -> dict[int, int]:
    return {row[0]: row[1] for row in connection.execute(query)}


def _passes(connection: Connection, tables: Tables, ledger: str) -> list[Pass]:
    one = tables.passes.c
    query = select(one.partition, one.number, one.stamp).where(one.ledger == ledger)
    return [Pass(**row) for row in connection.execute(query.order_by(one.partition)).mappings()]


def unfit_rows(connection: Connection, tables: Tables, ledger: str) -> Iterator[Unfit]:
    """Find the rows that wait for the relay and would be refused by it, without their arguments."""
    task = tables.task
    after = ""
    while True:
        page = connection.execute(
            select(*task.c, NowMs().label("now"))
            .where(task.c.ledger == ledger, task.c.todo > 0, task.c.id > after)
            .order_by(task.c.id)
            .limit(PAGE_ROWS)
        ).mappings()
        rows: list[Any] = list(page)
        for row in rows:
            try:
                new_task_of(row, row["now"])
            except InvalidTask as error:
                yield Unfit(id=str(row["id"]), reason=str(error))
        if len(rows) < PAGE_ROWS:
            return
        after = rows[-1]["id"]
