"""The rows of a test's ledger: carried to the test's database, and written back to."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sqlalchemy import delete, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import greenlet_spawn

from expirebridge.ledger.binder import Binder
from expirebridge.ledger.binding import Met, Place
from expirebridge.ledger.completer import Completer
from expirebridge.ledger.db_errors import is_missing
from expirebridge.ledger.entries import Fate, Numbers, Page
from expirebridge.ledger.relay import INTERRUPTED, Relay, finish
from expirebridge.ledger.relay_store import Passbook
from expirebridge.ledger.schema import find
from expirebridge.ledger.series_ticks import make_ticks, next_due
from expirebridge.ledger.tables import own_tables
from expirebridge.ledger.transactions import Transactions
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.outcome import Conclusion
from expirebridge.listener.ledger.row_check import by_row
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.client import Store
from expirebridge.store.commands.ledger import MAX_ROWS, Life, read_ledger
from expirebridge.testing.errors import TravelError
from expirebridge.testing.sources import AwaitedTransaction, commits

T = TypeVar("T")

PLACE = Place(("test",), "test", "test")
"""Where both sides of every test are, for a ledger."""


class _NotingPassbook(Passbook):
    """Notes which rows were carried."""

    noted: set[str]

    def page(self, most: int = MAX_ROWS) -> Page:
        """Rows to be carried."""
        page = super().page(most)
        self.noted |= {row.id for row in page.rows}
        return page

    def identity(self) -> str:
        """Each database of a test will do."""
        return "test"


class Rows:
    """Relays between one ledger of the test and its database, in the test's own thread.

    Raises what SQLAlchemy does, LedgerUnsuitable for tables that are missing or of another version,
    and TravelError for a ledger that real listeners have used.
    """

    def __init__(self, source: Transactions, store: Store, settings: Settings) -> None:
        database = store.database
        self._passbook = _NotingPassbook(
            source, own_tables(), name=settings.ledger_name, layout=database.layout,
            partition=database.layout.number_of(database.prefix),
        )  # fmt: skip
        self._passbook.noted = set()
        self._source = source
        self._is_open = False
        self.awaits = isinstance(source, AwaitedTransaction)
        """Whether the methods of this class are to be called by `run`, in an event loop."""
        self._keep = settings.keep_succeeded
        self._store = store
        place = PLACE._replace(partitions=database.layout.count)
        binder = Binder(self._passbook, lambda: store, place, lambda: None)
        self._relay = Relay(self._passbook, lambda: store, settings, binder)
        self.undone: set[str] = set()
        """Tasks that were carried, and whose rows were rolled back since."""

    async def run(self, method: Callable[[], T]) -> T:
        """Call one of the other methods in an event loop."""
        return await greenlet_spawn(method) if self.awaits else method()

    def _open(self) -> None:
        """Look at the tables, and delete what earlier tests left where tests commit.

        Raises TravelError if there are rows, and no test has relayed this ledger.
        """
        with self._source.connect() as connection:
            find(connection, own_tables())
        self._is_open = True
        if not commits(self._source):
            return
        if self._numbers() is not None:
            self.clear()
            return
        with self._source.connect() as connection:
            task = own_tables().task.c
            query = select(task.id).where(task.ledger == self._passbook.name).limit(1)
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
        made, name = own_tables(), self._passbook.name
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
        while make_ticks(self._source, own_tables(), self._passbook.name):
            pass
        while (carried := finish(self._relay.carry())) or finish(self._relay.bring_back()):
            if carried == INTERRUPTED:
                raise TravelError("something else relays this ledger: is a listener running?")
        if self.undone:
            self.undone -= set(self._passbook.ask(self.undone))

    def next_tick(self) -> int | None:
        """The ms when the next tick of a series is to be made; None if none is."""
        return next_due(self._source, own_tables(), self._passbook.name)

    def _lost_passes(self) -> bool:
        """Whether the test rolled back passes that its database has seen."""
        numbers, known = self._numbers(), self._store.run(read_ledger())
        if numbers is None:
            return bool(known.nonce)
        return bool(known.nonce) and (numbers.nonce != known.nonce or known.number > numbers.number)

    def _numbers(self) -> Numbers | None:
        """What the ledger knows of passes. Raises TravelError if they are not those of tests."""
        numbers = self._passbook.read()
        if numbers is not None and Met.read(self._passbook.met()).redis != PLACE.redis:
            raise TravelError(
                "listeners have used this ledger outside of tests: nothing is taken from it. Give "
                "the test a database, or a ledger, of its own"
            )
        return numbers

    def _undo(self) -> None:
        """Cancel those tasks of the ledger that have no rows any more."""
        noted = self._passbook.noted
        self.undone = noted - set(self._passbook.ask(noted))
        if self.undone:
            self._store.run(commands.cancel(sorted(self.undone), keep=self._keep))

    async def look_up(self, attempt: Attempt) -> Conclusion | None:
        """The conclusion if the row of a claimed task says that it is not to run now."""
        fate = await self.run(partial(self._fate, attempt))
        return by_row(attempt, Life.read(attempt.claimed.ledger), fate)

    async def look_after(self, attempt: Attempt, failed: Conclusion) -> Conclusion:
        """What is to be recorded of an attempt that failed: its row may know better."""
        return await self.look_up(attempt) or failed

    def completer_for(self, attempt: Attempt) -> Completer:
        """What completes the task in a transaction of its handler."""
        claimed = attempt.claimed
        life = Life.read(claimed.ledger) or Life(0, 0)
        return Completer(
            self._passbook.name, claimed.id, life.generation, life.revision, claimed.attempt
        )

    def _fate(self, attempt: Attempt) -> Fate | None:
        id = attempt.claimed.id
        return self._passbook.ask([id]).get(id)
