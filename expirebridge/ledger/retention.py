"""Retention: finished rows are kept for a while, and then deleted."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, delete, or_, select

from expirebridge.ledger import calls
from expirebridge.ledger.backlog import HasEnded
from expirebridge.ledger.engine import Transactions
from expirebridge.ledger.relay import Relay
from expirebridge.ledger.row_writes import Write, passing_over_locks, unless_refused
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.sql_tables import Tables
from expirebridge.ledger.sql_types import NowMs
from expirebridge.store.client import Store

BATCH: Final = 500
"""Rows that are deleted in one transaction, at most."""
_ENDED: Final = (Status.SUCCEEDED, Status.FAILED, Status.CANCELLED)


class RetentionCursor(NamedTuple):
    """The position of a round through the finished rows."""

    status: Status = _ENDED[0]
    modified: int = -1
    id: str = ""


class Pruned(NamedTuple):
    """The result of one batch."""

    deleted: int
    """Rows that were deleted."""
    place: RetentionCursor | None
    """The position of the next one; None: the round is over."""


class Retention:
    """Deletes the finished rows of one ledger and partition.

    A row is deleted after the server has forgotten its task, and only if that has ended there, too:
    so nobody can revive a task whose row is gone. The numbers of batches stay, in a table of their
    own. What a server gets back from an older copy of it has no row then, and is cancelled.
    """

    def __init__(
        self, engine: Transactions, made: Tables, relay: Relay, store: Callable[[], Store], *,
        name: str, partition: int = 0,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._relay = relay
        self._store = store
        self._task = made.task
        row = made.task.c
        self._ours = (
            row.ledger == name, or_(row.slot == partition, row.slot.is_(None)),
            row.todo == SyncState.NOTHING.value,
        )  # fmt: skip

    def prune(self, keep: float, place: RetentionCursor) -> Pruned:
        """Delete one batch of the rows that ended more than `keep` seconds ago.

        Nothing is deleted while the server gets back what it lost, but for rows that are locked.
        Raises LedgerUnsuitable if ledger and server are not each other's, a ServerError, or
        SQLAlchemy's errors.
        """
        state, checkpoint = self._relay.bind()
        if not state.agrees_with(checkpoint) or self._relay.is_rebuilding(state):
            return Pruned(0, None)
        rows = self._old(keep, place)
        ids = sorted(row.id for row in rows)
        forget = calls.forget_ended(ids, nonce=state.nonce, least=state.stamp)
        gone = self._store().run(forget) if ids else []
        return Pruned(self._delete(gone, keep) if gone else 0, _next(place, rows))

    def _old(self, keep: float, place: RetentionCursor) -> Sequence[Any]:
        row = self._task.c
        later = or_(
            row.modified > place.modified, and_(row.modified == place.modified, row.id > place.id)
        )
        query = (
            select(row.id, row.modified)
            .where(
                *self._ours,
                row.status == place.status.value,
                HasEnded(row.status),
                self._is_old(keep),
                later,
            )
            .order_by(row.modified, row.id)
            .limit(BATCH)
        )
        with self._engine.connect() as connection:
            return connection.execute(query).all()

    def _delete(self, ids: Sequence[str], keep: float) -> int:
        row = self._task.c
        old = (*self._ours, row.status > Status.WAITING.value, self._is_old(keep))
        found = select(row.id).where(*old, row.id.in_(ids)).order_by(row.id)
        gone = delete(self._task).where(*old, row.id.in_(bindparam("b_ids", expanding=True)))

        def delete_all(write: Write) -> int:
            with self._engine.begin() as connection:
                free = connection.scalars(passing_over_locks(found)).all()
                return len(free) - len(write.to_ids(connection, gone, {}, free))

        return unless_refused(delete_all)

    def _is_old(self, keep: float) -> ColumnElement[bool]:
        return self._task.c.modified < NowMs() - round(keep * 1000)


def _next(place: RetentionCursor, rows: Sequence[Any]) -> RetentionCursor | None:
    """Return the next position: after the last row, or at the next status."""
    if len(rows) == BATCH:
        return RetentionCursor(place.status, rows[-1].modified, rows[-1].id)
    following = _ENDED.index(place.status) + 1
    return RetentionCursor(_ENDED[following]) if following < len(_ENDED) else None
