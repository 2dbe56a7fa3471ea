"""The relay's reads and writes in a test, which moves the time on."""

from typing import Final

from sqlalchemy import BigInteger, bindparam, func, null, select, update

from expirebridge.ledger.backlog import IsInIndex, constant, horizon_ms
from expirebridge.ledger.calls import Lost
from expirebridge.ledger.relay_statements import RelayState, RowBatch
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.row_writes import passing_over_locks
from expirebridge.ledger.rows import Row, SyncState
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.ledger.sql_types import NowMs, ahead

_TASK: Final = own_tables().task
_LATE: Final = (
    _TASK.c.ledger == bindparam("b_ledger"),
    _TASK.c.todo == constant(SyncState.RELAY),
    IsInIndex(_TASK.c.todo),
    _TASK.c.planned > NowMs() + bindparam("b_horizon", type_=BigInteger),
)
"""The rows that are kept back."""


class MovedRelayStore(RelayStore):
    """Notes which rows were carried, and keeps rows back by the time to which the test moved."""

    noted: set[str]

    def begin_batch(
        self, expected: RelayState, *, seen: int, unmarked: Lost | None = None
    ) -> RowBatch | None:
        """Rows to be carried."""
        page = super().begin_batch(expected, seen=seen, unmarked=unmarked)
        self.noted |= {row.id for row in page.rows} if page else set()
        return page

    def identity(self) -> str:
        """Each database of a test will do."""
        return "test"

    def look_ahead(self) -> None:
        """Let rows come near as of the time to which the test has moved.

        A delay that is kept back counts from the time at which the test made it. The database's
        clock is not moved: it would count the time over which the test travels from now on again.
        """
        if self.horizon is None:
            return
        self._waiting["b_horizon"] = horizon_ms(self.horizon) + ahead()
        far = {**self._ledgers, "b_horizon": horizon_ms(self.horizon)}
        delayed = passing_over_locks(
            select(_TASK.c.id).where(*_LATE, _TASK.c.stamp == 0, _TASK.c.delay_ms.is_not(None))
        )
        at = _TASK.c.written + _TASK.c.delay_ms + bindparam("b_ahead", ahead(), type_=BigInteger)
        of_ids = _TASK.c.id.in_(bindparam("b_ids", expanding=True))
        move = update(_TASK).where(_TASK.c.ledger == self.name, of_ids)
        with self.engine.begin() as connection:
            ids = connection.scalars(delayed, far).all()
            if ids:
                connection.execute(move.values(at_ms=at, delay_ms=null()), {"b_ids": ids})
        self.ask_for_ids_again()

    def kept_back(self) -> list[Row]:
        """The rows that are not near yet, the soonest first."""
        if self.horizon is None:
            return []
        rows = select(_TASK).where(*_LATE).order_by(_TASK.c.planned)
        with self.engine.connect() as connection:
            return list(connection.execute(rows, self._waiting).mappings())

    def next_near(self) -> int | None:
        """The ms when the next of them comes near; None if none does."""
        if self.horizon is None:
            return None
        soonest = select(func.min(_TASK.c.planned)).where(*_LATE)
        with self.engine.connect() as connection:
            first = connection.scalar(soonest, self._waiting)
        return None if first is None else first - horizon_ms(self.horizon)
