"""Reads the series of a ledger.

Only Redis has the time when a tick began, and its lateness.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    Table,
    and_,
    bindparam,
    func,
    select,
    tuple_,
)
from sqlalchemy.sql.elements import Grouping

from expirebridge.errors import InvalidTask
from expirebridge.ledger.row_state import FINAL_STATES, DesiredState, Status
from expirebridge.ledger.series_ticks import NEVER
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.sql_types import NowMs
from expirebridge.series.records import read_schedule
from expirebridge.series.schedule import Schedule
from expirebridge.series.values import Series, SeriesListing
from expirebridge.task import keys
from expirebridge.task.task import from_ms

Row = Mapping[Any, Any]
"""A row of `series_query` by the names of its columns."""


def series_query(made: Tables, ledger: ColumnElement[str]) -> Select[Any]:
    """The series of a ledger, each beside the row of its latest tick, and of the last one that was
    due. The ids of both are found in the primary key."""
    series, waiting, last = made.series, made.task.alias("waiting"), made.task.alias("last")
    latest = and_(
        waiting.c.ledger == series.c.ledger, waiting.c.id == _tick_id(series, series.c.tick)
    )
    before = and_(last.c.ledger == series.c.ledger, last.c.id == _last_id(made))
    return (
        select(
            *series.c,
            _now().label("now"),
            waiting.c.status.label("waiting_status"),
            waiting.c.wanted.label("waiting_wanted"),
            func.coalesce(waiting.c.due, waiting.c.at_ms).label("waiting_due"),
            last.c.id.label("last_id"),
            last.c.status.label("last_status"),
            last.c.modified.label("last_modified"),
        )
        .select_from(series.outerjoin(waiting, latest).outerjoin(last, before))
        .where(series.c.ledger == ledger)
    )


def _tick_id(series: Table, at: ColumnElement[Any]) -> ColumnElement[str]:
    """The time is not cast to text: in MySQL that would have a collation, and cost the index."""
    return series.c.id.concat("@").concat(at)


def _now() -> ColumnElement[int]:
    """The database's clock, and how far it is ahead in a test."""
    # In parentheses: in SQLite `||` comes before `+`.
    return Grouping(NowMs() + bindparam("b_ahead", 0, type_=BigInteger))


def _last_id(made: Tables) -> ColumnElement[str]:
    series, task = made.series, made.task.alias("tick")
    return (
        select(func.max(task.c.id))
        .where(
            task.c.ledger == series.c.ledger,
            task.c.id > series.c.id.concat("@"),
            task.c.id <= _tick_id(series, _now()),
        )
        .correlate(series)
        .scalar_subquery()
    )


def page_query(
    made: Tables, ledger: ColumnElement[str], after: tuple[Any, Any], limit: Any
) -> Select[Any]:
    """A page of them, those first whose next tick is first, after this due time and id."""
    series = made.series.c
    return (
        series_query(made, ledger)
        .where(tuple_(series.due, series.id) > tuple_(*after))
        .order_by(series.due, series.id)
        .limit(limit)
    )


def place_in(cursor: str | None) -> tuple[int, str]:
    """The due time and the id after which a page begins. Raises InvalidTask for a foreign one."""
    due, _, id = ("-1", ".", "") if cursor is None else cursor.partition(".")
    if not re.fullmatch(r"-1|\d{1,16}", due):
        raise InvalidTask(f"cursor={cursor!r}: give that of the page before")
    return int(due), id


def listing_of(rows: list[Row], limit: int) -> SeriesListing:
    """A page; it was full if there may be more."""
    cursor = f"{rows[-1]['due']}.{rows[-1]['id']}" if len(rows) >= limit else None
    return SeriesListing(series=[series_of(row) for row in rows], cursor=cursor)


def series_of(row: Row) -> Series:
    """Return a row as a series; values that cannot be read are left out."""
    tick_due = row["waiting_due"] if _waits(row) else None
    last = None if row["last_id"] is None or _is_to_come(row) else row["last_id"]
    state = None if last is None else FINAL_STATES.get(row["last_status"])
    args, kwargs = _arguments(row)
    return Series(
        id=row["id"],
        func=row["func"],
        args=args,
        kwargs=kwargs,
        schedule=_schedule(row),
        tags=_tags(row),
        ledger=True,
        declared=False,
        carriers=0,
        created=from_ms(row["made"]),
        next=None if tick_due is None else from_ms(row["tick"]),
        due=None if tick_due is None or tick_due >= NEVER else from_ms(tick_due),
        behind=timedelta(milliseconds=max(row["now"] - row["due"], 0)),
        paused=None if row["paused"] is None else from_ms(row["paused"]),
        over=row["due"] >= NEVER and row["paused"] is None,
        last=None if last is None else from_ms(int(last.rpartition("@")[2])),
        last_id=last,
        began=None,
        late=None,
        state=state,
        ended=None if state is None else from_ms(row["last_modified"]),
        succeeded=None,
        missed=0,
        overlapped=0,
    )


def _waits(row: Row) -> bool:
    """Return whether the latest tick is still to come, by its row."""
    waits = row["waiting_status"] == Status.WAITING and row["waiting_wanted"] == DesiredState.NONE
    return waits and row["paused"] is None


def _is_to_come(row: Row) -> bool:
    """Return whether the last tick by its time still waits: for its jitter, or a later time."""
    is_latest = row["last_id"] == f"{row['id']}@{row['tick']}"
    return is_latest and _waits(row) and row["waiting_due"] > row["now"]


def _schedule(row: Row) -> Schedule | None:
    try:
        return read_schedule(row["schedule"].encode())
    except (InvalidTask, ValueError):
        return None


def _arguments(row: Row) -> tuple[Any, Any]:
    try:
        return keys.decode_args(str(row["params"]).encode())
    except ValueError:
        return [], {}


def _tags(row: Row) -> tuple[str, ...]:
    try:
        options = orjson.loads(row["options"] or "{}")
        return tuple(map(str, options.get("tags", ())))
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        return ()
