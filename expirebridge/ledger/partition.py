"""One ledger in one partition of a server, as a listener uses it, and the connections to it."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from sqlalchemy import URL, MetaData, event

from expirebridge.hooks import Passed
from expirebridge.ledger import calls, engine
from expirebridge.ledger.binding import Binder, place_of
from expirebridge.ledger.completion import Completer
from expirebridge.ledger.early_sends import EarlySends
from expirebridge.ledger.engine import (
    DaemonPool,
    RelayTransactions,
    check_after_idling,
    engine_of,
    read_url,
    too_slow,
    translated,
)
from expirebridge.ledger.looks import Look
from expirebridge.ledger.relay import INTERRUPTED, BatchSteps, Relay, RelaySnapshot, finish
from expirebridge.ledger.relay_statements import RelayState
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.retention import Pruned, Retention, RetentionCursor
from expirebridge.ledger.rows import RowState, RowVersion
from expirebridge.ledger.series_ticks import make_ticks
from expirebridge.ledger.sql_tables import tables
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore, Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.partitions import PartitionLayout


class RelayStateCache:
    """The relay's state of all partitions: those that ask at the same moment share one query."""

    def __init__(
        self, relay_store: RelayStore, url: URL,
        begin: "Callable[[Callable[[], dict[int, RelayState]]], asyncio.Future[Any]]",
    ) -> None:  # fmt: skip
        self._relay_store = relay_store
        self._url = url
        self._begin = begin
        self._call: asyncio.Task[None] | None = None
        self._read_at = float("-inf")
        self._states: dict[int, RelayState] = {}

    async def of(self, partition: int, since: float) -> RelayState | None:
        """Return the state of a partition, read after `since` by time.monotonic(); None before its
        first batch. Rows without a partition get theirs.

        Raises a LedgerError, LedgerUnreachable if that takes longer than 5 s. A query that has
        begun goes on, and there is one at a time.
        """
        while self._read_at < since:
            call = self._call = self._call or asyncio.create_task(self._refresh())
            done, _ = await asyncio.wait([call], timeout=engine.PATIENCE)
            if not done:
                call.add_done_callback(_ignore_result)
                raise too_slow(engine.PATIENCE)
            call.result()
        return self._states.get(partition)

    async def _refresh(self) -> None:
        began = time.monotonic()
        try:
            self._states = await self._begin(self._read)
            self._read_at = began
        finally:
            self._call = None

    def _read(self) -> dict[int, RelayState]:
        with translated(self._url):
            states = self._relay_store.read_all()
            if any(each.unsorted for each in states.values()):
                self._relay_store.sort()
                states = self._relay_store.read_all()
            return states


def _ignore_result(call: "asyncio.Task[None]") -> None:
    """Take note of an error that nobody waits for any more."""
    if not call.cancelled():
        call.exception()


P = ParamSpec("P")
T = TypeVar("T")
RELAY_THREADS, THREADS = 4, 2
"""For batches, and for what claims and gates wait for, which is not to wait for batches."""
TRIES = 5
LOOKS, LOOK_PAUSE = 5, 0.05
"""How often in all, and after how many seconds, a server is asked again that seems to have lost
something: another listener's batch stamps its rows a moment before the server has seen it."""
ASKED_AGAIN = 60.0
"""Seconds after which rows whose ids belong to other tasks are relayed again."""
MOST_TICKS = 10
"""How often one call makes due ticks: the next call makes the others."""


class LedgerEngine:
    """The connections to a ledger's database, and the threads that use them.

    A listener has one, whatever the number of its partitions. Raises InvalidSetting for a URL that
    cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller checks it
        self.settings = settings
        self.url = read_url(settings.ledger)
        self.made = tables(MetaData())
        self.engine = engine_of(self.url, pool_size=RELAY_THREADS + THREADS + 1)
        check_after_idling(self.engine)
        self.transactions = RelayTransactions(self.engine)
        self.connections = 0
        """The number of connections made to the database: each may lead to another server."""
        event.listen(self.engine, "connect", self._count)
        self._relays, self._waiters = DaemonPool(RELAY_THREADS), DaemonPool(THREADS)
        self._early_sender = DaemonPool(1)
        self._state_caches: dict[PartitionLayout, RelayStateCache] = {}

    def partition(
        self, store: Callable[[], Store], link: Callable[[], object] = lambda: None
    ) -> "LedgerPartition":
        """Return the ledger in this partition, which can move to another server.

        `link` is equal as long as the server is reached on the same connections.
        """
        return LedgerPartition(self, store, link)

    def _count(self, *_: object) -> None:
        self.connections += 1

    def state_cache(self, relay_store: RelayStore) -> RelayStateCache:
        """Return the state that all partitions of one layout share."""
        cache = RelayStateCache(relay_store, self.url, self.ask)
        return self._state_caches.setdefault(relay_store.layout, cache)

    def begin(self, method: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a method in a thread for batches, however long it takes."""
        return asyncio.wrap_future(self._relays.submit(method))

    def ask(self, method: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a method for which claims or gates wait, in a thread for these."""
        return asyncio.wrap_future(self._waiters.submit(method))

    def send_early(self, method: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a method in the thread of early sends."""
        return asyncio.wrap_future(self._early_sender.submit(method))

    def all_partitions(self, server: Partitions) -> list["LedgerPartition"]:
        """Return the ledger in each partition. Raises a ServerError if one does not answer."""
        return [self.partition(partial(_itself, store)) for store in server.each()]

    def close(self) -> None:
        """Close the connections to the database; one in use ends with its call, or the process."""
        pools = (self._early_sender, self._waiters, self._relays)
        using, lock = set(pools), threading.Lock()

        def end(pool: DaemonPool) -> None:
            with lock:
                using.discard(pool)
                is_last = not using
            if is_last:  # what is given back after this would stay open
                self.engine.dispose()

        for pool in pools:
            pool.close(partial(end, pool))


class LedgerPartition:
    """The operations of a listener on its ledger, for one partition of the server.

    Each method blocks; `run` calls one in a thread, and waits up to 5 s.

    Each raises a LedgerError if the ledger's database fails, and a ServerError if the server does.
    """

    def __init__(
        self, engine: LedgerEngine, store: Callable[[], Store], link: Callable[[], object]
    ) -> None:
        settings, database = engine.settings, store().database
        layout = database.layout
        self._url = engine.url
        self._made = engine.made
        self._transactions = engine.transactions
        self._relay_store = RelayStore(
            engine.transactions, engine.made, name=settings.ledger_name, layout=layout,
            partition=layout.number_of(database.prefix), horizon=settings.ledger_horizon,
        )  # fmt: skip
        self.name = settings.ledger_name
        self.partitions = layout.count
        """The number of partitions that share the connections and threads."""
        binder = Binder(
            self._relay_store, store, place_of(settings, engine.url, layout.count),
            lambda: (link(), engine.connections),
        )  # fmt: skip
        self.relay = Relay(self._relay_store, store, settings, binder)
        self._retention = Retention(
            self._transactions, self._made, self.relay, store, name=self.name,
            partition=self._relay_store.partition,
        )  # fmt: skip
        self._early_sends = EarlySends(self.relay, self._relay_store, store)
        self._is_first = self._relay_store.partition == 0
        self._state_cache = engine.state_cache(self._relay_store) if layout.count > 1 else None
        self._store = store
        self._asks_again = float("-inf")
        """When rows that wait for their ids are next relayed again, by time.monotonic()."""
        self._lock = threading.Lock()
        self._engine = engine

    async def run(self, method: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call one of the other methods in a thread, and await it.

        Raises LedgerUnreachable if that takes longer than 5 s. A call that has begun goes on.
        """
        return await self._answer(self._engine.ask(partial(method, *args, **options)))

    async def bring_together(self) -> int:
        """As `relay_once`; raises as `run`."""
        return await self._answer(self.begin(self.relay_once))

    async def _answer(self, call: asyncio.Future[T]) -> T:
        waited = engine.PATIENCE
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
        return self._engine.begin(partial(method, *args, **options))

    async def look_and_relay(
        self, store: AsyncStore, since: float, *, look: Look = Look.ALL
    ) -> int:
        """As `relay_once`, in a thread, and only if there is something to do.

        Partitions that look at the same moment share what they read of the ledger after `since`, by
        time.monotonic().
        """
        snapshot = None
        if self._state_cache is not None:
            state = await self._state_cache.of(self._relay_store.partition, since)
            if state is not None:
                snapshot = RelaySnapshot(state, await store.run(calls.read_ledger()))
        if snapshot is not None and self._is_at_rest(snapshot):
            return 0
        if look is Look.ENDS and self._state_cache is None:
            return await self.begin(self.write_back_once)
        return await self.begin(self.relay_once, snapshot, in_hurry=look is Look.ROWS)

    def _is_at_rest(self, snapshot: RelaySnapshot) -> bool:
        """True if `relay_once` would do nothing; the first partition has the series to look at."""
        if self._is_first or snapshot.is_to_carry or snapshot.checkpoint.dirty:
            return False
        return self.relay.is_checked(*snapshot)

    def relay_once(self, looked: RelaySnapshot | None = None, *, in_hurry: bool = False) -> int:
        """Relay a batch in each direction where rows wait; returns the size of the larger one.

        `looked` was read a moment ago. The first partition makes the ticks of series, for all.
        `in_hurry`: if rows wait, relay them and nothing else; more may be committed meanwhile.
        """
        with translated(self._url), self._lock:
            if in_hurry and looked is None and (count := self._unseen(self.relay.carry)) > 0:
                return count
            looked = self._look(looked)
            count, snapshot = 0, cast(RelaySnapshot | None, looked)
            if looked.is_to_carry:
                count, snapshot = self._repeated(self.relay.carry, looked), None
                if in_hurry:
                    return count
            if self._is_first:
                self._ask_for_ids_again()
            if self._is_first and self._make_ticks():
                count, snapshot = max(count, self._repeated(self.relay.carry)), None
            if snapshot is None or snapshot.checkpoint.dirty:
                count = max(count, self._repeated(self.relay.bring_back, snapshot))
            return count

    def write_back_once(self) -> int:
        """Write back what has ended, and then relay rows, if some wait, both without a look.

        Returns the size of the larger batch. If that cannot be, as `relay_once`.
        """
        with translated(self._url), self._lock:
            counts = [self._unseen(self.relay.bring_back)]
            if counts != [INTERRUPTED]:
                counts.append(self._unseen(self.relay.carry))
        return self.relay_once() if INTERRUPTED in counts else max(counts)

    def _unseen(self, start: Callable[[RelaySnapshot | None], BatchSteps[int]]) -> int:
        """Relay a batch as if nothing had changed since the latest batch here, without a look.

        If something has, this does nothing: the batch finds other numbers, and is interrupted. So
        it is after a new connection to either side, and with several partitions.
        """
        latest = self.relay.latest
        is_known = latest is not None and self.relay.is_checked(*latest)
        if self._state_cache is not None or not is_known:
            return INTERRUPTED
        return finish(start(latest))

    def _repeated(
        self, start: Callable[[RelaySnapshot | None], BatchSteps[int]],
        snapshot: RelaySnapshot | None = None,
    ) -> int:  # fmt: skip
        """Relay a batch; again, up to TRIES times, if another listener's came before it."""
        for _ in range(TRIES):
            count = finish(start(snapshot or self._settled(self.relay.bind())))
            if count != INTERRUPTED:
                return count
            snapshot = None  # it is outdated
        return 0

    def _look(self, looked: RelaySnapshot | None) -> RelaySnapshot:
        """Read the state of both sides, unless that was done. Raises as `Relay.bind`."""
        if looked is None:
            return self._settled(self.relay.bind())
        self.relay.check(*looked)
        return self._settled(looked)

    def _settled(self, snapshot: RelaySnapshot) -> RelaySnapshot:
        """Read it again while a batch of another listener may be about to end. Raises as `bind`."""
        for _ in range(LOOKS):
            if not snapshot.seems_lost:
                break
            time.sleep(LOOK_PAUSE)
            snapshot = self.relay.bind()
        return snapshot

    def _ask_for_ids_again(self) -> None:
        """Once a minute, have rows relayed again that wait for their ids; for all partitions."""
        if self._relay_store.horizon is not None and time.monotonic() >= self._asks_again:
            self._asks_again = time.monotonic() + ASKED_AGAIN
            self._relay_store.ask_for_ids_again()

    def has(self, id: str) -> bool:
        """True if the task of this id belongs to this partition."""
        return self._relay_store.layout.partition_of(id) == self._relay_store.partition

    def begin_early(self, ids: Collection[str], least: int) -> asyncio.Future[bool]:
        """Call `send_early` in the thread for that, however long it takes."""
        return self._engine.send_early(partial(self.send_early, ids, least))

    def send_early(self, ids: Collection[str], least: int) -> bool:
        """Send these rows before their batch, as `EarlySends.send`; whether all were sent."""
        with translated(self._url):
            return finish(self._early_sends.send(ids, least=least))

    def _make_ticks(self) -> bool:
        """Make the ticks of series that are due soon; returns whether there were any."""
        made = [make_ticks(self._transactions, self._made, self.name)]
        while made[-1] and len(made) < MOST_TICKS:
            made.append(make_ticks(self._transactions, self._made, self.name))
        return made[0] > 0

    def take_batches(self) -> list[Passed]:
        """Return the batches that were relayed since the last call, for hooks."""
        passed = self.relay.passed
        return [passed.popleft() for _ in range(len(passed))]

    def fence(self, seen: int) -> None:
        """Take a number, so that stalled batches are fenced out; see `RelayStore.fence`."""
        with translated(self._url):
            self._relay_store.fence(seen)

    async def compare(self, checkpoint: calls.RedisCheckpoint) -> RelayState | None:
        """As `read_beside`; partitions that compare at the same moment share one query."""
        if self._state_cache is not None:
            state = await self._state_cache.of(self._relay_store.partition, time.monotonic())
            if state is None or self.relay.is_checked(state, checkpoint):
                return state
        return await self.run(self.read_beside, checkpoint)

    def read_beside(self, checkpoint: calls.RedisCheckpoint) -> RelayState | None:
        """Read the relay's state in SQL, to compare it with the server's checkpoint.

        Raises LedgerUnsuitable if they agree although one of them is a copy.
        """
        with translated(self._url):
            state = self._relay_store.read()
            if state is not None and state.agrees_with(checkpoint):
                self.relay.check(state, checkpoint)
            return state

    def is_rebuild_held_up(self) -> bool:
        """Return whether what is left to be rebuilt is little, or locked by other transactions."""
        with translated(self._url):
            return self._relay_store.lost_rows.is_held_up()

    def ask(self, ids: Iterable[str]) -> dict[str, RowState]:
        """Return the states of the rows of these tasks; those without a row are left out."""
        with translated(self._url):
            return self._relay_store.ask(ids)

    def decide(self, versions: Mapping[str, RowVersion]) -> dict[str, RowState]:
        """Let the deadlines of these tasks decide, unless a signal has; return their rows."""
        with translated(self._url):
            return self._relay_store.decide(versions)

    def note_met(self, ids: Collection[str]) -> None:
        """Have rows relayed however late they are due: the server has their tasks."""
        with translated(self._url):
            self._relay_store.note_met(ids)

    def recall(self, ids: Iterable[str]) -> list[str]:
        """Have the waiting ones of these tasks relayed again: the server lost their records.

        Returns those whose rows another transaction has locked: they are to be asked again.
        """
        with translated(self._url):
            return self._relay_store.recall(ids)

    def completer(self, id: str, version: RowVersion, attempt: int) -> Completer:
        """Return the object with which the handler of this attempt completes its task."""
        return Completer(self.name, id, version.generation, version.revision, attempt)

    def prune(self, keep: float, place: RetentionCursor | None = None) -> Pruned:
        """Delete one batch of the rows that ended more than `keep` seconds ago.

        `place` is where the batch before said to go on.
        """
        with translated(self._url):
            return self._retention.prune(keep, place or RetentionCursor())

    def rebuild(self) -> None:
        """Bind ledger and server to each other, and have every row relayed again."""
        with translated(self._url):
            self.relay.rebind()

    def known(self) -> calls.RedisCheckpoint:
        """Read the server's checkpoint."""
        return self._store().run(calls.read_ledger())


def _itself(store: Store) -> Store:
    return store
