"""Makes the ticks of the ledger's series: in SQL, one transaction for all that are to be made."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson
from sqlalchemy import Connection, Row, func, insert, select, update

from expirebridge.ledger.db_errors import is_refusal, reason_of
from expirebridge.ledger.engine import Transactions
from expirebridge.ledger.row_writes import passing_over_locks
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.sql_types import NowMs, ahead
from expirebridge.series.calls import Times
from expirebridge.series.records import read_schedule
from expirebridge.series.ticks import following
from expirebridge.task import keys
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

AHEAD: Final = 2000
"""Milliseconds before a tick is due at which its successor is made: the relay looks each second."""
NEVER: Final = 2**53 - 1
"""The due time of a series that makes no more ticks."""
MOST: Final = 100
"""Series whose next tick one transaction makes."""


def make_ticks(engine: Transactions, made: Tables, ledger: str) -> int:
    """Make the next ticks of `MOST` series, or some more, whose latest is due soon.

    Returns how many. It is to be repeated until it makes none: the tick that was made may be due
    soon as well. Of two that do this at once, one makes each tick. A series that another
    transaction has locked is left for the next time, and so is one whose tick the database refuses:
    those behind it come first. Raises SQLAlchemy's errors.
    """
    met = set[str]()
    count = 0
    while count < MOST:
        found = _first_due(engine, made, ledger, besides=met)
        count += _follow_each(engine, made, found)
        if len(found) < MOST:
            break
        met.update(row.id for row in found)
    return count


def _first_due(
    engine: Transactions, made: Tables, ledger: str, *, besides: Collection[str]
) -> Sequence[Row[Any]]:
    series = made.series.c
    now = NowMs() + ahead()
    query = (
        select(made.series, now.label("now"))
        .where(series.ledger == ledger, series.due <= now + AHEAD)
        .order_by(series.due)
        .limit(MOST)
    )
    if besides:
        query = query.where(series.id.not_in(besides))
    with engine.connect() as connection:
        return connection.execute(query).all()


def _follow_each(engine: Transactions, made: Tables, rows: Sequence[Row[Any]]) -> int:
    """Make the next ticks of these series together; if one is refused, each alone."""
    if not rows:
        return 0
    try:
        return _follow_all(engine, made, rows)
    except Exception as error:
        if not is_refusal(error):
            raise
    return sum(_follow_alone(engine, made, row) for row in rows)


def next_due(engine: Transactions, made: Tables, ledger: str) -> int | None:
    """The ms when the first of the latest ticks is due, before which its successor is made.

    None if no series makes another tick. Raises SQLAlchemy's errors.
    """
    series = made.series.c
    query = select(func.min(series.due)).where(series.ledger == ledger, series.due < NEVER)
    with engine.connect() as connection:
        due: int | None = connection.scalar(query)
        return due


def _follow_all(engine: Transactions, made: Tables, rows: Sequence[Row[Any]]) -> int:
    """Make the next ticks of these series of one ledger, without those that are locked."""
    series = made.series.c
    ids = [row.id for row in rows]
    ours = (series.ledger == rows[0].ledger, series.id.in_(ids))
    with engine.begin() as connection:
        query = passing_over_locks(select(series.id).where(*ours).order_by(series.id))
        free = set(connection.scalars(query))
        return sum(_follow(connection, made, row) for row in rows if row.id in free)


def _follow_alone(engine: Transactions, made: Tables, row: Row[Any]) -> int:
    try:
        return _follow_all(engine, made, [row])
    except Exception as error:
        if not is_refusal(error):
            raise
        reason = reason_of(error)
    logger.error(
        "the database refuses the next tick of series %s of the ledger: %s", row.id, reason,
        extra=event("tick refused", series=row.id, reason=reason),
    )  # fmt: skip
    return 0


def _follow(connection: Connection, made: Tables, row: Row[Any]) -> bool:
    """Make the next tick of a series, unless another was faster, or it was changed or paused."""
    times, values = _next(row)
    series = made.series.c
    moved = connection.execute(
        update(made.series)
        .where(
            series.ledger == row.ledger, series.id == row.id, series.tick == row.tick,
            series.fingerprint == row.fingerprint, series.due == row.due,
        )
        .values(tick=times.tick if times else row.tick, due=times.due if times else NEVER)
    )  # fmt: skip
    if not moved.rowcount or times is None:
        return False
    task = made.task.c
    known = select(task.id).where(task.ledger == row.ledger, task.id == values["id"])
    if connection.execute(known).first() is None:
        connection.execute(insert(made.task).values(values))
    return True


def _next(row: Row[Any]) -> tuple[Times | None, dict[str, Any]]:
    """The times of the next tick, and the columns of its row; no times if there is none.

    A damaged series makes no more ticks: it stays, to be looked at.
    """
    try:
        schedule = read_schedule(row.schedule.encode())
        times = following(schedule, row.id, row.tick, row.now, made=row.made)
        return times, tick_values(row._mapping, times) if times else {}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        logger.error(  # noqa: TRY400 - the reason is in the row, not in this code
            "series %s of the ledger makes no more ticks: it cannot be read: %s",
            row.id, error, extra=event("series broken", series=row.id, error=str(error)),
        )  # fmt: skip
        return None, {}


def tick_values(series: Mapping[Any, Any], times: Times) -> dict[str, Any]:
    """The columns of the row of a tick: a task like any other."""
    options: dict[str, Any] = orjson.loads(series["options"] or "{}")
    options["tick"] = (
        str(times.tick) if times.successor is None else f"{times.tick} {times.successor}"
    )
    if read_schedule(series["schedule"].encode()).overlap == "allow":
        options["overlap"] = "allow"
    return {
        "ledger": series["ledger"],
        "id": tick_id(series["id"], times.tick),
        "func": series["func"],
        "params": series["params"],
        "options": orjson.dumps(options).decode(),
        "at_ms": times.due,
        "delay_ms": None,
    }


def tick_id(series: str, tick: int) -> str:
    """The id of the tick for this time, in ms."""
    return keys.check_id(f"{series}@{tick}")
