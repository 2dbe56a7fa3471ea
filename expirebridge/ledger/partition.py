"""The books: one ledger and one partition of a server, as a listener that has both uses them."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import ParamSpec, TypeVar, cast

from sqlalchemy import MetaData, event

from expirebridge.hooks import Passed
from expirebridge.ledger import threads
from expirebridge.ledger.addresses import place_of
from expirebridge.ledger.binder import Binder
from expirebridge.ledger.completion import Completer
from expirebridge.ledger.engine import engine_of, read_url, translated
from expirebridge.ledger.entries import RelayState
from expirebridge.ledger.relay import INTERRUPTED, Pass, Relay, RelaySnapshot, finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.retention import Pruned, Retention, RetentionCursor
from expirebridge.ledger.series_ticks import make_ticks
from expirebridge.ledger.tables import tables
from expirebridge.ledger.threads import DaemonPool, too_slow
from expirebridge.model.partitions import PartitionLayout
from expirebridge.model.row_state import RowState, RowVersion
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.commands import ledger as calls
from expirebridge.store.partitions import Partitions

# Looks at the ledger that several partitions share: those that look at once ask once.


class RelayStateCache:
    """What the ledger knows of the passes of all partitions.

    A look is answered by whatever was read after it was asked for, by whichever partition.
    """

    def __init__(self, passbook: RelayStore) -> None:
        self._passbook = passbook
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._numbers: dict[int, RelayState] = {}

    def of(self, partition: int, since: float) -> RelayState | None:
        """The numbers of a partition, read after `since` by time.monotonic(); None before the
        first pass. Rows that belong nowhere yet are sorted. Raises SQLAlchemy's errors.
        """
        with self._lock:
            if self._read_at < since:
                began = time.monotonic()
                self._numbers = self._read()
                self._read_at = began
            return self._numbers.get(partition)

    def _read(self) -> dict[int, RelayState]:
        numbers = self._passbook.read_all()
        if any(each.unsorted for each in numbers.values()):
            self._passbook.sort()
            numbers = self._passbook.read_all()
        return numbers


P = ParamSpec("P")
T = TypeVar("T")
THREADS = 4
TRIES = 5
LOOKS, LOOK_PAUSE = 5, 0.05
"""How often in all, and after how many seconds, a server is asked again that seems to have lost
something: another listener's pass stamps its rows a moment before the server has seen it."""
MOST_TICKS = 10
"""How often a pass looks for ticks that are to be made: what is left is for the next."""


class LedgerEngine:
    """The connections to a ledger's database, and the threads that wait for it.

    A listener has one, whatever the number of its partitions. Raises InvalidSetting for a URL that
    cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller's to see
        self.settings = settings
        self.url = read_url(settings.ledger)
        self.made = tables(MetaData())
        self.engine = engine_of(self.url, pool_pre_ping=True)
        self.connections = 0
        """How many were made to the database: each may lead to another server."""
        event.listen(self.engine, "connect", self._count)
        self.waiters = DaemonPool(THREADS)
        self._glances: dict[PartitionLayout, RelayStateCache] = {}

    def books(
        self, store: Callable[[], Store], link: Callable[[], object] = lambda: None
    ) -> "LedgerPartition":
        """The books of the ledger and this partition of the server, which can change its node.

        `link` is equal as long as the server is reached on the same connections.
        """
        return LedgerPartition(self, store, link)

    def _count(self, *_: object) -> None:
        self.connections += 1

    def glances(self, passbook: RelayStore) -> RelayStateCache:
        """The looks that all partitions of one layout share."""
        return self._glances.setdefault(passbook.layout, RelayStateCache(passbook))

    def all_books(self, server: Partitions) -> list["LedgerPartition"]:
        """Those of each partition of the server. Raises a ServerError if it does not answer."""
        return [self.books(partial(_itself, store)) for store in server.each()]

    def close(self) -> None:
        """Close the connections to the database; one in use ends with its call, or the process."""
        self.waiters.close(self.engine.dispose)


class LedgerPartition:
    """What a listener does with its ledger.

    Each method waits; `run` calls one in a thread, and does not wait for long.

    Each raises a LedgerError if the ledger's database fails, and a ServerError if the server does.
    """

    def __init__(
        self, office: LedgerEngine, store: Callable[[], Store], link: Callable[[], object]
    ) -> None:
        settings, database = office.settings, store().database
        layout = database.layout
        self._url = office.url
        self._made = office.made
        self._engine = office.engine
        self._passbook = RelayStore(
            office.engine, office.made, name=settings.ledger_name, layout=layout,
            partition=layout.number_of(database.prefix),
        )  # fmt: skip
        self.name = settings.ledger_name
        self.partitions = layout.count
        """How many partitions share the connections and threads."""
        binder = Binder(
            self._passbook, store, place_of(settings, office.url, layout.count),
            lambda: (link(), office.connections),
        )  # fmt: skip
        self.relay = Relay(self._passbook, store, settings, binder)
        self._archive = Retention(
            self._engine, self._made, self.relay, store, name=self.name,
            partition=self._passbook.partition,
        )  # fmt: skip
        self._is_first = self._passbook.partition == 0
        self._glances = office.glances(self._passbook) if layout.count > 1 else None
        self._store = store
        self._one_pass = threading.Lock()
        self._waiters = office.waiters

    async def run(self, method: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call one of the other methods in a thread, and await it.

        Raises LedgerUnreachable if that takes longer than 5 s. A call that has begun goes on.
        """
        waited = threads.PATIENCE
        call = self.begin(method, *args, **options)
        # Not asyncio.timeout: in a task that was cancelled before, Python 3.11.2 takes the time
        # that is over for another cancellation.
        try:
            done, _ = await asyncio.wait([call], timeout=waited)
        finally:
            call.cancel()
        if not done:
            raise too_slow(waited)
        return call.result()

    def begin(
        self, method: Callable[P, T], *args: P.args, **options: P.kwargs
    ) -> asyncio.Future[T]:
        """Call one of the other methods in a thread, however long it takes."""
        return asyncio.wrap_future(self._waiters.submit(partial(method, *args, **options)))

    def pass_once(self, since: float | None = None) -> int:
        """Make a pass in each direction where there is something to carry; returns how many rows
        were carried by the fuller one.

        Of several partitions, those that look at once share what they read of the ledger after
        `since`, by time.monotonic(). The first partition's makes the ticks of series, for all.
        """
        with translated(self._url), self._one_pass:
            looked = self._look(time.monotonic() if since is None else since)
            carried, found = 0, cast(RelaySnapshot | None, looked)
            if looked.is_to_carry:
                carried, found = self._repeated(self.relay.carry, looked), None
            if self._is_first and self._make_ticks():
                carried, found = max(carried, self._repeated(self.relay.carry)), None
            if found is None or found.known.dirty:
                carried = max(carried, self._repeated(self.relay.bring_back, found))
            return carried

    def _repeated(
        self, make: Callable[[RelaySnapshot | None], Pass[int]], found: RelaySnapshot | None = None
    ) -> int:
        """Make a pass, again if another came before; that is tried so often, for the next look."""
        for _ in range(TRIES):
            if (carried := finish(make(found or self._settled(self.relay.bind())))) != INTERRUPTED:
                return carried
            found = None  # what was read is not so any more
        return 0

    def _look(self, since: float) -> RelaySnapshot:
        """What both sides know of passes; Raises as `Relay.bind`."""
        if self._glances is None:
            return self._settled(self.relay.bind())
        return self._settled(self.relay.bind(self._glances.of(self._passbook.partition, since)))

    def _settled(self, found: RelaySnapshot) -> RelaySnapshot:
        """The same, once no pass of another listener is about to end. Raises as `Relay.bind`."""
        for _ in range(LOOKS):
            if not found.seems_lost:
                break
            time.sleep(LOOK_PAUSE)
            found = self.relay.bind()
        return found

    def _make_ticks(self) -> bool:
        """Make the ticks of series that are due soon; returns whether there were any."""
        made = [make_ticks(self._engine, self._made, self.name)]
        while made[-1] and len(made) < MOST_TICKS:
            made.append(make_ticks(self._engine, self._made, self.name))
        return made[0] > 0

    def take_passed(self) -> list[Passed]:
        """The passes that were made since this was called last, for hooks."""
        passed = self.relay.passed
        return [passed.popleft() for _ in range(len(passed))]

    def fence(self, seen: int) -> None:
        """Take a number, so that passes which stalled are fenced out; see `RelayStore.fence`."""
        with translated(self._url):
            self._passbook.fence(seen)

    def read_beside(self, known: calls.RedisCheckpoint) -> RelayState | None:
        """What the ledger knows of its passes, beside what the server does.

        Raises LedgerUnsuitable if they agree, and are copies.
        """
        with translated(self._url):
            numbers = self._passbook.read()
            if numbers is not None and numbers.agrees_with(known):
                self.relay.check(numbers, known)
            return numbers

    def ask(self, ids: Iterable[str]) -> dict[str, RowState]:
        """What it says of these tasks; those without a row are left out."""
        with translated(self._url):
            return self._passbook.ask(ids)

    def recall(self, ids: Iterable[str]) -> None:
        """Have those of these tasks that wait carried again, since the server has no records."""
        with translated(self._url):
            self._passbook.recall(ids)

    def completer(self, id: str, version: RowVersion, attempt: int) -> Completer:
        """What lets the handler of this attempt complete its task."""
        return Completer(self.name, id, version.generation, version.revision, attempt)

    def prune(self, keep: float, place: RetentionCursor | None = None) -> Pruned:
        """Delete one batch of the rows that ended more than `keep` seconds ago.

        `place` is where the batch before said to go on.
        """
        with translated(self._url):
            return self._archive.prune(keep, place or RetentionCursor())

    def rebuild(self) -> None:
        """Bind ledger and server to each other, and have every row carried again."""
        with translated(self._url):
            self.relay.rebind()

    def known(self) -> calls.RedisCheckpoint:
        """What the server knows of its ledger."""
        return self._store().run(calls.read_ledger())


def _itself(store: Store) -> Store:
    return store
