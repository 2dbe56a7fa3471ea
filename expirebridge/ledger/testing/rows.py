"""The rows of a test's ledger: carried to the test's database, and written back to."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy import delete, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import greenlet_spawn

from expirebridge.ledger.binding import Addresses, Binder, Met
from expirebridge.ledger.calls import read_ledger
from expirebridge.ledger.completion import Completer
from expirebridge.ledger.db_errors import is_missing
from expirebridge.ledger.engine import Transactions
from expirebridge.ledger.relay import INTERRUPTED, Relay, finish
from expirebridge.ledger.relay_statements import RelayState
from expirebridge.ledger.row_check import decide, outcome_by_row
from expirebridge.ledger.rows import Row, RowState, RowVersion, ledger_task
from expirebridge.ledger.schema import find
from expirebridge.ledger.series_ticks import make_ticks, next_due
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.ledger.sql_types import NowMs
from expirebridge.ledger.testing.moved_relay_store import MovedRelayStore
from expirebridge.ledger.testing.transactions import (
    AwaitedTransaction,
    DjangoTransaction,
    commits,
)
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import producing
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.task import State, Task, from_ms
from expirebridge.testing import time
from expirebridge.testing.environment import waiting_thread
from expirebridge.testing.errors import TravelError

T = TypeVar("T")

PLACE = Addresses(("test",), "test", "test")
"""The name of both sides of every test, for a ledger."""


class Rows:
    """Relays between one ledger of the test and its database, in the test's own thread.

    Raises what SQLAlchemy does, LedgerUnsuitable for tables that are missing or of another version,
    and TravelError for a ledger that real listeners have used.
    """

    def __init__(self, source: Transactions, store: Store, settings: Settings) -> None:
        database = store.database
        self._relay_store = MovedRelayStore(
            source, own_tables(), name=settings.ledger_name, layout=database.layout,
            partition=database.layout.number_of(database.prefix), horizon=settings.ledger_horizon,
        )  # fmt: skip
        self._relay_store.noted = set()
        self._source = source
        self._is_open = False
        self._behind = 0
        """The ms by which the database's clock is behind that of the server."""
        self.awaits = isinstance(source, AwaitedTransaction)
        """True if the methods of this class are to be called by `run`, in an event loop."""
        self._keep = settings.keep_succeeded
        self._store = store
        place = PLACE._replace(partitions=database.layout.count)
        binder = Binder(self._relay_store, lambda: store, place, lambda: None)
        self._relay = Relay(self._relay_store, lambda: store, settings, binder)
        self.undone: set[str] = set()
        """Tasks that were carried, and whose rows were rolled back since."""
        self._key_ring = settings.key_ring
        self.kept_back: list[Task] = []
        """The rows that are due too late to be carried yet, the soonest first."""

    async def run(self, method: Callable[[], T]) -> T:
        """Call one of the other methods in an event loop."""
        if self.awaits:
            return await greenlet_spawn(method)
        in_test_thread = waiting_thread() if self.is_elsewhere else None
        return method() if in_test_thread is None else await in_test_thread(method)()

    @property
    def is_elsewhere(self) -> bool:
        """True in an async test of Django, whose transaction belongs to the thread that waits."""
        return isinstance(self._source, DjangoTransaction) and waiting_thread() is not None

    def _open(self) -> None:
        """Look at the tables, and delete what earlier tests left where tests commit.

        Raises TravelError if there are rows, and no test has relayed this ledger.
        """
        with self._source.connect() as connection:
            find(connection, own_tables())
            here: int = connection.scalar(select(NowMs())) or 0
        there = self._store.run(time.now()) // 1000 - time.ahead(self._store)
        self._behind = max(there - here, 0)
        self._is_open = True
        if not commits(self._source):
            return
        if self._numbers() is not None:
            self.clear()
            return
        with self._source.connect() as connection:
            task = own_tables().task.c
            query = select(task.id).where(task.ledger == self._relay_store.name).limit(1)
            if connection.execute(query).first() is not None:
                raise TravelError(
                    "this ledger has rows that no test made: they would be run, and deleted. Give "
                    "the test a database, or a ledger, of its own, and call use_ledger before "
                    "tasks are made"
                )

    def clear(self) -> None:
        """Delete all that is the ledger's, where tests commit, unless its tables are gone."""
        if not commits(self._source):
            return
        made, name = own_tables(), self._relay_store.name
        try:
            with self._source.begin() as connection:
                for table in (made.task, made.series, made.passes):
                    connection.execute(delete(table).where(table.c.ledger == name))
        except DBAPIError as error:
            if not is_missing(error):
                raise

    def exchange(self) -> None:
        """Make ticks of series, carry rows, and write back how tasks ended, until all is done."""
        if not self._is_open:
            self._open()
        if self._lost_passes():
            self._relay.rebind()
            self._undo()
        while make_ticks(self._source, own_tables(), self._relay_store.name):
            pass
        self._relay_store.look_ahead()
        while (carried := finish(self._relay.carry())) or finish(self._relay.bring_back()):
            if carried == INTERRUPTED:
                raise TravelError("something else relays this ledger: is a listener running?")
        if self.undone:
            self.undone -= set(self._relay_store.ask(self.undone))
        self.kept_back = [_as_task(row, self._key_ring) for row in self._relay_store.kept_back()]

    def bring_near(self, id: str) -> None:
        """Carry the row of this task, if there is one, also if it is kept back."""
        self.exchange()
        if any(task.id == id for task in self.kept_back):
            self._relay_store.note_met([id])

    def ahead(self) -> int:
        """The ms from the database's clock to the time to which the test moved.

        If the database's clock were behind, the ticks of series would be due before they are made.
        """
        return time.ahead(self._store) + self._behind

    def next_moment(self) -> int | None:
        """The ms when the next tick of a series is to be made, or the next row comes near; None if
        none is, and none does."""
        tick = next_due(self._source, own_tables(), self._relay_store.name)
        near = self._relay_store.next_near()
        return min((ms for ms in (tick, near) if ms is not None), default=None)

    def _lost_passes(self) -> bool:
        """True if the test rolled back passes that its database has seen."""
        numbers, known = self._numbers(), self._store.run(read_ledger())
        if numbers is None:
            return bool(known.nonce)
        return bool(known.nonce) and (numbers.nonce != known.nonce or known.number > numbers.number)

    def _numbers(self) -> RelayState | None:
        """Read the state of the relay. Raises TravelError if it is not that of tests."""
        numbers = self._relay_store.read()
        if numbers is not None and Met.read(self._relay_store.met()).redis != PLACE.redis:
            raise TravelError(
                "listeners have used this ledger outside of tests: nothing is taken from it. Give "
                "the test a database, or a ledger, of its own"
            )
        return numbers

    def _undo(self) -> None:
        """Cancel those tasks of the ledger that have no rows any more."""
        noted = self._relay_store.noted
        self.undone = noted - set(self._relay_store.ask(noted))
        if self.undone:
            self._store.run(producing.cancel(sorted(self.undone), keep=self._keep))

    async def look_up(self, attempt: Attempt) -> AttemptOutcome | None:
        """The outcome if the row of a claimed task says that it is not to run now."""
        row = await self.run(partial(self._row_of, attempt))
        return outcome_by_row(attempt, RowVersion.read(attempt.claimed.ledger), row)

    async def look_after(self, attempt: Attempt, failed: AttemptOutcome) -> AttemptOutcome:
        """The outcome to record for an attempt that failed: its row may be newer."""
        return await self.look_up(attempt) or failed

    def completer_for(self, attempt: Attempt) -> Completer:
        """The function that completes the task in a transaction of its handler."""
        claimed = attempt.claimed
        version = RowVersion.read(claimed.ledger) or RowVersion(0, 0)
        return Completer(
            self._relay_store.name,
            claimed.id,
            version.generation,
            version.revision,
            claimed.attempt,
        )

    def _row_of(self, attempt: Attempt) -> RowState | None:
        id, record = attempt.claimed.id, RowVersion.read(attempt.claimed.ledger)
        row = self._relay_store.ask([id]).get(id)
        if row is not None and decide(record, row)[0] == "undecided":
            return self._relay_store.decide({id: row.version}).get(id)
        return row


def _as_task(row: Row, key_ring: KeyRing | None) -> Task:
    """The task that a row becomes once it is carried."""
    shown = ledger_task(row, key_ring)
    return Task(
        id=shown.id,
        func=shown.func,
        args=shown.args,
        kwargs=shown.kwargs,
        key=b"",
        state=State.PENDING,
        due=from_ms(row["planned"]),
        tags=shown.tags,
        urgent=shown.urgent,
        on_signal=shown.on_signal,
    )
