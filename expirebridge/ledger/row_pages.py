"""The rows that wait, and those that were refused, for people: a page at a time.

A million may wait, so each query reads a bounded part of one index. New and lost rows are
together in `expirebridge_task_todo`, and refused ones are among the last that failed, in
`expirebridge_task_ended`: of these, up to 10,000 are listed. No index holds the rows that Redis has
already: they are looked for along the primary key, among 2,000 rows for a page.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import BigInteger, Executable, Select, Table, func, literal, select

from expirebridge.errors import InvalidTask
from expirebridge.ledger.backlog import BacklogQuery, HasEnded, Reach, constant, together
from expirebridge.ledger.relay_statements import REFUSED
from expirebridge.ledger.rows import (
    DesiredState,
    LedgerTask,
    Row,
    Status,
    SyncState,
    ledger_task,
    new_task_of,
    planned_at,
)
from expirebridge.ledger.series_ticks import NEVER
from expirebridge.ledger.sql_tables import LONGEST_ID
from expirebridge.ledger.sql_types import NowMs
from expirebridge.task.task import from_ms

PAGE_ROWS: Final = 50
MOST_LISTED: Final = 10_000
"""Rows of a kind that are listed, and those that failed last among which refused ones are found."""
MOST_LOOKED_AT: Final = 2_000
"""Rows that a page of those that Redis has looks at."""
RECENT_MS: Final = 86_400_000
"""For how long a refused row is news."""
_FORCE_INDEX: Final = "FORCE INDEX (expirebridge_task_ended)"
"""For MySQL, which may choose another."""

Read = Callable[[Executable], list[Row]]
"""Sends a query, and returns its rows."""


class RowKind(StrEnum):
    """The kinds of rows that are listed."""

    RELAY = "relay"  # it is new, or changed, and not carried to Redis yet
    KEPT_BACK = "kept-back"  # it is new, and due later than the horizon
    TAKEN = "taken"  # it came near, and another task has its id
    REBUILD = "rebuild"  # Redis lost it
    REFUSED = "refused"  # within the last day; it waits for nobody
    TIME = "time"  # Redis has it: until it is due, or has run


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRow:
    """A row of a page."""

    task: LedgerTask
    due: datetime | None
    """The time at which it is to run: on Redis's clock, or as its row asks if that is not known
    yet. None if it is paused, or that cannot be read."""
    reason: str
    """Why it is listed, without what a handler said."""
    near: datetime | None = None
    """When it is brought to Redis, if it is kept back until then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPage:
    """A page of rows."""

    rows: list[ListedRow]
    cursor: str | None
    """The position of the next page; None if there is none."""
    is_cut: bool = False
    """True if there are more rows than are listed."""


def read_page(
    read: Read, task: Table, ledger: str, kind: RowKind, cursor: str | None, *, reach: Reach
) -> RowPage:
    """Read a page of the rows of one kind. Raises InvalidTask for a foreign cursor."""
    if kind is RowKind.TIME:
        return _read_by_id(read, task, ledger, _id_in(cursor))
    skipped = _skipped(cursor)
    if kind is RowKind.REFUSED:
        query = _refused(task, ledger)
    else:
        query = _to_carry(task, ledger, kind, reach)
    rows = read(query.offset(skipped).limit(PAGE_ROWS + 1))
    following = skipped + PAGE_ROWS
    more = len(rows) > PAGE_ROWS
    return RowPage(
        rows=[_listed(row, kind, reach) for row in rows[:PAGE_ROWS]],
        cursor=str(following) if more and following < MOST_LISTED else None,
        is_cut=more and following >= MOST_LISTED,
    )


def _skipped(cursor: str | None) -> int:
    """Return the number of rows before a page."""
    if cursor is None:
        return 0
    if not re.fullmatch(r"[0-9]{1,5}", cursor) or int(cursor) >= MOST_LISTED:
        raise InvalidTask(f"cursor={cursor[:60]!r}: give that of the page before")
    return int(cursor)


def _id_in(cursor: str | None) -> str:
    """The id after which a page begins. A refused row may have one that no task has."""
    id = cursor or ""
    if len(id) > LONGEST_ID or not id.isprintable():
        raise InvalidTask(f"cursor={id[:60]!r}: give that of the page before")
    return id


_TODO: Final = {
    RowKind.RELAY: SyncState.RELAY,
    RowKind.REBUILD: SyncState.REBUILD,
    RowKind.TAKEN: SyncState.TAKEN,
}


def _to_carry(task: Table, ledger: str, kind: RowKind, reach: Reach) -> Select[Any]:
    """Select the first that wait for the relay, in an order that is the same for each page."""
    # The index does not have the id. Rows that are equal to it have no order, and the database
    # would sort all that wait; so as many as are listed are sorted, and one, if there are more.
    backlog = BacklogQuery(task, ledger, literal(reach.ms, BigInteger()))
    most = constant(MOST_LISTED + 1)
    if kind is RowKind.KEPT_BACK:
        rows = [backlog.kept_back(most, task, partition=slot) for slot in reach.slots]
    else:
        todo = _TODO[kind]
        rows = [backlog.first(most, task, partition=slot, todo=todo) for slot in reach.slots]
    found = together(rows)
    return select(found, NowMs().label("now")).order_by(found.c.planned, found.c.id)


def count_refused(task: Table, ledger: str) -> Select[Any]:
    """Count the refused rows that are listed."""
    return select(func.count()).select_from(_refused(task, ledger).order_by(None).subquery())


def _refused(task: Table, ledger: str) -> Select[Any]:
    """Select those of the last day among the last that failed, the latest first."""
    row = task.c
    # As a query of its own, which is made once: for PostgreSQL its clock is no constant, so a bare
    # condition on the time would not end the walk along the index.
    day_ago = select(NowMs() - RECENT_MS).scalar_subquery()
    failed = (
        select(task)
        .with_hint(task, _FORCE_INDEX, "mysql")
        .with_hint(task, _FORCE_INDEX, "mariadb")
        .where(
            row.ledger == ledger, row.status == constant(Status.FAILED), HasEnded(row.status),
            row.modified > day_ago,
        )
        .order_by(row.modified.desc())
        .limit(MOST_LISTED)
        .subquery()
    )  # fmt: skip
    return (
        select(failed, NowMs().label("now"))
        .where(failed.c.message.like(f"{REFUSED}%"))
        .order_by(failed.c.modified.desc(), failed.c.id)
    )


def _read_by_id(read: Read, task: Table, ledger: str, after: str) -> RowPage:
    """Read waiting rows that were relayed, in the order of their ids."""
    row = task.c
    looked_at = (
        select(task)
        .where(row.ledger == ledger, row.id > after)
        .order_by(row.id)
        .limit(MOST_LOOKED_AT)
    )
    ids = looked_at.with_only_columns(row.id).subquery()
    some = looked_at.subquery()
    found = read(
        select(some, NowMs().label("now"))
        .where(some.c.status == Status.WAITING.value, some.c.todo == SyncState.NOTHING.value)
        .order_by(some.c.id)
        .limit(PAGE_ROWS + 1)
    )
    shown = found[:PAGE_ROWS]
    cursor = None
    if len(found) > PAGE_ROWS:
        cursor = shown[-1]["id"]
    else:
        [seen] = read(select(func.count().label("count"), func.max(ids.c.id).label("last")))
        cursor = seen["last"] if seen["count"] == MOST_LOOKED_AT else None
    return RowPage(rows=[_listed(row, RowKind.TIME, Reach()) for row in shown], cursor=cursor)


def _listed(row: Row, kind: RowKind, reach: Reach) -> ListedRow:
    near = from_ms(row["planned"] - reach.ms) if kind is RowKind.KEPT_BACK else None
    return ListedRow(task=ledger_task(row), due=_due(row), reason=_reason(row, kind), near=near)


def _due(row: Row) -> datetime | None:
    due = row["due"] if isinstance(row["due"], int) else planned_at(row)
    # A paused row is due at the end of time.
    return from_ms(due) if due is not None and due < NEVER else None


def _reason(row: Row, kind: RowKind) -> str:
    match kind:
        case RowKind.REFUSED:
            return str(row["message"]).removeprefix(REFUSED)
        case RowKind.TIME:
            return _why_it_waits(row)
        case _ if row["status"] == Status.WAITING and (fault := _fault(row)):
            return f"it will be refused: {fault}"
        case RowKind.REBUILD:
            return "Redis lost it"
        case RowKind.KEPT_BACK:
            return "kept back in SQL until"
        case RowKind.TAKEN:
            return str(row["message"])
        case _ if row["wanted"] == DesiredState.CANCELLED:
            return "to be cancelled"
        case _:
            return "changed" if row["stamp"] else "new"


def _why_it_waits(row: Row) -> str:
    due = _due(row)
    if due is None:
        return "paused"
    if due <= from_ms(row["now"]):
        return "due, or running"
    return "to be retried" if row["retry_times"] else "not due yet"


def _fault(row: Row) -> str:
    """Why the relay will refuse a row; nothing if it will not."""
    try:
        new_task_of(row, row["now"])
    except InvalidTask as error:
        return str(error)
    return ""
