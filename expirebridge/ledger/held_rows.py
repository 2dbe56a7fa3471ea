"""Finds the rows of a ledger that other transactions have locked, and says whose these are."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, select, text
from sqlalchemy.exc import DBAPIError

from expirebridge.ledger.row_writes import passing_over_locks
from expirebridge.ledger.sql_tables import Tables
from expirebridge.task.durations import human

LONG: Final = 5.0
"""Seconds for which a transaction has been open whose locks are reported."""
MOST_NAMED: Final = 10
"""Locked rows that are named."""
UNKNOWN: Final = "another transaction; the database does not say to this login which one"

# What a transaction has locked or changed has its number in xmax. Several that share a lock have
# another number there, and are not found.
_POSTGRESQL: Final = """
SELECT found.name, pid, usename, application_name, state,
    CAST(extract(epoch FROM clock_timestamp() - xact_start) AS float) AS seconds
FROM ({rows}) AS found
JOIN pg_locks ON locktype = 'transactionid' AND granted AND transactionid = found.xmax
LEFT JOIN pg_stat_activity USING (pid)
"""
# InnoDB names what is locked only while somebody waits for it: this is whose it may be.
_MYSQL: Final = """
SELECT trx_mysql_thread_id AS pid, user AS usename, '' AS application_name, command AS state,
    timestampdiff(SECOND, trx_started, now()) AS seconds
FROM information_schema.innodb_trx
JOIN information_schema.processlist ON id = trx_mysql_thread_id
WHERE trx_rows_locked > 0 AND trx_mysql_thread_id <> connection_id()
ORDER BY trx_started
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldRow:
    """A row that another transaction has locked for long."""

    row: str
    """The task's id, or that it is a row of `expirebridge_pass`."""
    by: str
    """The transaction, as far as the database says it to this login."""
    seconds: float | None
    """For how long that transaction has been open; None if it is not known."""

    def __str__(self) -> str:
        since = "" if self.seconds is None else f", open for {human(round(self.seconds))}"
        return f"{self.row} by {self.by}{since}"


def held_rows(
    connection: Connection, made: Tables, ledger: str, waiting: Collection[str],
    stuck: Collection[str],
) -> list[HeldRow]:  # fmt: skip
    """Return rows that are locked for long: of these ids, and of those with the numbers of batches.

    Those in `stuck` could not be written for long, also if the database does not say so. SQLite has
    no locks of rows. Raises SQLAlchemy's errors.
    """
    task, passes = made.task.c, made.passes.c
    rows: Select[Any] = select(task.id.label("name")).where(task.ledger == ledger)
    numbers = select(passes.partition.label("name")).where(passes.ledger == ledger)
    kinds = [
        (rows.where(task.id.in_(sorted(ids))), task.id, ids is stuck)
        for ids in (waiting, stuck)
        if ids
    ]
    found: dict[str, HeldRow] = {}
    for query, key, is_long in [*kinds, (numbers, passes.partition, False)]:
        for each in _locked(connection, query, key, is_long=is_long):
            name = f"batch numbers of partition {each.row}" if key is passes.partition else each.row
            found[name] = HeldRow(row=name, by=each.by, seconds=each.seconds)
    return list(found.values())[:MOST_NAMED]


def _locked(
    connection: Connection, query: Select[Any], key: ColumnElement[Any], *, is_long: bool
) -> Sequence[HeldRow]:
    match connection.dialect.name:
        case "postgresql":
            rows = query.add_columns(text("xmax"))
            sql = str(rows.compile(connection, compile_kwargs={"literal_binds": True}))
            held = connection.exec_driver_sql(_POSTGRESQL.format(rows=sql)).all()
            return [
                HeldRow(row=str(one.name), by=_by(one), seconds=one.seconds)
                for one in held
                if (is_long if one.seconds is None else one.seconds >= LONG)
            ]
        case "sqlite":
            return []
    ids = list(connection.scalars(query))
    free = set(connection.scalars(passing_over_locks(query.where(key.in_(ids)))))
    connection.rollback()
    locked = [id for id in ids if id not in free]
    by, seconds = _holder(connection) if locked else (UNKNOWN, None)
    is_reported = is_long if seconds is None else seconds >= LONG
    return [HeldRow(row=str(id), by=by, seconds=seconds) for id in locked if is_reported]


def _holder(connection: Connection) -> tuple[str, float | None]:
    """The transaction in InnoDB that has rows locked, or the oldest of several."""
    with suppress(DBAPIError):  # the login may lack the right PROCESS
        found = connection.exec_driver_sql(_MYSQL).all()
        if found:
            one = "" if len(found) == 1 else f"one of {len(found)} transactions, perhaps "
            return one + _by(found[0]), float(found[0].seconds)
    return UNKNOWN, None


def _by(one: Row[Any]) -> str:
    if one.pid is None:
        return UNKNOWN
    words = [one.usename, one.application_name, one.state]
    known = ", ".join(str(word) for word in words if word)
    return f"process {one.pid} ({known})" if known else f"process {one.pid}"
