"""Marks the rows that Redis has lost, around those that cannot be marked now."""

import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Update,
    bindparam,
    func,
    or_,
    select,
    update,
)

from expirebridge.ledger.backlog import IsInIndex, constant
from expirebridge.ledger.calls import Lost
from expirebridge.ledger.engine import Transactions
from expirebridge.ledger.row_writes import Write, passing_over_locks
from expirebridge.ledger.rows import SyncState
from expirebridge.ledger.sql_tables import Tables

MAX_MARKED: Final = 1000
"""Rows that are marked as lost at once."""
MARK_PAUSE: Final = 1.0
"""Seconds until rows are marked that could not be marked before."""
MARK_REST: Final = 10
"""And how many times as long as to look for them took."""
FEW: Final = 1000
"""So many rows that are to be rebuilt hold up only themselves: see `ConsistencyCheck`."""


class LostRows:
    """The rows of one ledger and partition that Redis has lost."""

    def __init__(
        self, engine: Transactions, made: Tables, own: dict[str, Any], *, is_single: bool
    ) -> None:
        self._engine = engine
        self._own = own
        self._statements = _statements(made, is_single=is_single)
        self._marks_at = float("-inf")
        """When rows are next marked that could not be before, by time.monotonic()."""

    @property
    def is_to_mark(self) -> bool:
        """True if it is time to try again to mark what could not be marked."""
        return time.monotonic() >= self._marks_at

    def mark(self, connection: Connection, lost: Lost, write: Write) -> Lost | None:
        """Have lost rows rebuilt; returns what was lost if not all of them could be marked.

        Those that another transaction has locked are left out, and those that the database refuses
        to change. The server is told so, in the script that notes the number of this batch: it
        cannot lose the one and keep the other. The rows that are left out have a stamp in that
        range until they are marked or relayed, and no later batch stamps a row with such a number.
        """
        began = time.monotonic()
        of_lost = {**self._own, "b_after": lost.after, "b_before": lost.before}
        stamp, id = lost.after, ""
        while rows := connection.execute(
            self._statements.unmarked,
            {**of_lost, "b_stamp": stamp, "b_id": id, "b_most": MAX_MARKED},
        ).all():
            ids = [row.id for row in rows]
            write.to_ids(connection, self._statements.mark, self._own, ids)
            stamp, id = rows[-1].stamp, rows[-1].id
        is_left = connection.scalar(self._statements.any_unmarked, of_lost)
        now = time.monotonic()
        self._marks_at = now + max(MARK_PAUSE, MARK_REST * (now - began))
        return lost if is_left else None

    def is_held_up(self, few: int | None = None) -> bool:
        """Return whether what is left to be rebuilt is locked by others, or up to `few` rows."""
        most = FEW if few is None else few
        limit = {**self._own, "b_most": most + 1}
        with self._engine.begin() as connection:
            if (connection.scalar(self._statements.to_rebuild, limit) or 0) <= most:
                return True
            return connection.execute(self._statements.free_to_rebuild, self._own).first() is None


_ledger: BindParameter[str] = bindparam("b_ledger")
_partition: BindParameter[int] = bindparam("b_partition")
_most: BindParameter[int] = bindparam("b_most", type_=Integer)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statements:
    unmarked: Select[Any]
    """The first rows of this partition, after `b_stamp` and `b_id`, that have a stamp between
    `b_after` and `b_before` and are not to be rebuilt yet. They are locked, but those that another
    transaction has locked are left out."""
    any_unmarked: Select[Any]
    """One of them, also if it is locked."""
    mark: Update
    """Have the rows of `b_ids` rebuilt."""
    to_rebuild: Select[Any]
    """The number of rows to be rebuilt, up to `b_most`."""
    free_to_rebuild: Select[Any]
    """One of them that nobody has locked."""


@lru_cache
def _statements(made: Tables, *, is_single: bool) -> _Statements:
    task, own = made.task.c, _mine(made, is_single=is_single)
    mine = task.ledger == _ledger
    return _Statements(
        unmarked=_unmarked(made, own),
        any_unmarked=select(constant(1)).select_from(made.task).where(*_lost(made, own)).limit(1),
        mark=update(made.task)
        .where(mine, task.id.in_(bindparam("b_ids", expanding=True)))
        .values(todo=SyncState.REBUILD),
        to_rebuild=_to_rebuild(made),
        free_to_rebuild=passing_over_locks(
            select(task.id).where(*_rebuilding(made)).limit(constant(1))
        ),
    )


def _mine(made: Tables, *, is_single: bool) -> ColumnElement[bool]:
    slot = made.task.c.slot
    return or_(slot.is_(None), slot == _partition) if is_single else slot == _partition


def _lost(made: Tables, own: ColumnElement[bool]) -> tuple[ColumnElement[bool], ...]:
    task = made.task.c
    after: BindParameter[int] = bindparam("b_after", type_=BigInteger)
    before: BindParameter[int] = bindparam("b_before", type_=BigInteger)
    return (
        task.ledger == _ledger, own, task.stamp > after, task.stamp < before,
        IsInIndex(task.stamp), task.todo != constant(SyncState.REBUILD),
    )  # fmt: skip


def _unmarked(made: Tables, own: ColumnElement[bool]) -> Select[Any]:
    task = made.task.c
    stamp: BindParameter[int] = bindparam("b_stamp", type_=BigInteger)
    behind = or_(task.stamp > stamp, task.id > bindparam("b_id"))
    return passing_over_locks(
        select(task.id, task.stamp)
        .where(*_lost(made, own), task.stamp >= stamp, behind)
        .order_by(task.stamp, task.id)
        .limit(_most)
    )


def _rebuilding(made: Tables) -> tuple[ColumnElement[bool], ...]:
    """Rows to be rebuilt, of this partition or of one that is not known yet."""
    task = made.task.c
    return (
        task.ledger == _ledger, task.todo == constant(SyncState.REBUILD), IsInIndex(task.todo),
        or_(task.slot == _partition, task.slot.is_(None)),
    )  # fmt: skip


def _to_rebuild(made: Tables) -> Select[Any]:
    some = select(made.task.c.id).where(*_rebuilding(made)).limit(_most).subquery()
    return select(func.count()).select_from(some)
