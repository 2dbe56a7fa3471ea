"""The traveller: moves a database's time on, and runs each task at its moment."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from functools import partial
from time import sleep
from typing import Any

import redis

from expirebridge.errors import ServerUnreachable
from expirebridge.groups import calls as groups
from expirebridge.groups.calls import Cancelling
from expirebridge.handlers import Registry
from expirebridge.hooks import Claimed, Hooks
from expirebridge.limits.calls import declare_limits
from expirebridge.limits.declared_limits import LimitsDeclaration
from expirebridge.listener.execution.attempt import Attempt, RowLookup
from expirebridge.listener.execution.follow_up import written
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.execution.invoke import Invoker, OverrunPolicy
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.execution.steps import AttemptSteps, after_error
from expirebridge.listener.lifespans import entered
from expirebridge.listener.partition.key_events import HEARD
from expirebridge.listener.partition.reconciler import News, key_event_of, sift
from expirebridge.listener.wakeups import StopRequest
from expirebridge.series.definition import declare
from expirebridge.series.ticks import make_due_ticks
from expirebridge.settings import Settings
from expirebridge.store.client import Database, Store
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls import claiming, reconciling
from expirebridge.task.calls.call import Steps, chunks, new_nonce
from expirebridge.task.calls.claiming import Claim, SettledThen, Settlement
from expirebridge.task.calls.pages import Pages
from expirebridge.task.calls.producing import NewTask, Obstacle
from expirebridge.task.calls.reconciling import EventKind, KeyEvent
from expirebridge.task.keys import group_of
from expirebridge.task.operations.making import not_made
from expirebridge.task.task import Task, from_ms
from expirebridge.task.texts import plural
from expirebridge.testing import time
from expirebridge.testing.attempt import Ran, ran, shown
from expirebridge.testing.carried_rows import CarriedRows
from expirebridge.testing.environment import unseen_loop, waiting_thread
from expirebridge.testing.errors import NeverIdle
from expirebridge.testing.handlers import Handlers
from expirebridge.testing.time import PythonClock
from expirebridge.urgent.calls import declaration_of

# The attempts of a test: as a listener makes them, but in the test's own thread and event loop.


class OwnThread:
    """Calls plain functions in the thread of the test, one at a time.

    A listener has threads for them, in which no event loop runs. Nor do they see one here: they may
    call `asyncio.run`, and what refuses to wait inside of an event loop.

    An async test of Django has its event loop in a thread beside that of its transaction, in which
    they are called.
    """

    def call(self, function: Callable[[], Any], /) -> asyncio.Future[Any]:
        """Call a function that raises nothing, soon; the future has what it returns."""
        loop = asyncio.get_running_loop()
        if in_test_thread := waiting_thread():
            return asyncio.ensure_future(in_test_thread(function)())
        future = loop.create_future()
        # Not inside of the asyncio task that waits for it, which would be seen, too.
        loop.call_soon(self._call, function, future)
        return future

    def _call(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        with unseen_loop():
            value = function()
        if not future.done():
            future.set_result(value)


class KitSteps(AttemptSteps):
    """Takes the steps of attempts without a listener; some have a database."""

    def __init__(
        self, registry: Registry, settings: Settings, hooks: Hooks, store: Store | None = None
    ) -> None:
        overrun_policy = OverrunPolicy(settings.grace, StopRequest(), InFlight())
        invoker = Invoker(OwnThread(), overrun_policy)
        super().__init__(registry, settings, invoker=invoker, hooks=hooks)
        self._store = store

    async def _write(self, new: NewTask, attempt: Attempt) -> NewTask:
        store = self._store
        if store is None:
            return new
        layout = store.database.layout
        return store.run(written(new, attempt.claimed, self._settings, layout))

    async def _look_after(
        self, attempt: Attempt, row_check: RowLookup, failed: AttemptOutcome
    ) -> AttemptOutcome:
        if _is_not_for_handler(failed.error):
            return failed
        return await super()._look_after(attempt, row_check, failed)


def _is_not_for_handler(error: BaseException | None) -> bool:
    """True for KeyboardInterrupt, and for how pytest ends a test."""
    return error is not None and not isinstance(error, Exception | SystemExit)


class Attempts:
    """Runs claimed tasks as a listener does, without a listener."""

    def __init__(self, registry: Registry, settings: Settings, store: Store | None = None) -> None:
        self.hooks = Hooks(registry.hooks)
        self._steps = KitSteps(registry, settings, self.hooks, store)

    async def run(
        self,
        claimed: ClaimedTask,
        *,
        lateness: float = 0.0,
        row: RowLookup | None = None,
    ) -> tuple[Attempt, AttemptOutcome]:
        """Run a task that was claimed so many seconds late.

        Of a task of a ledger, `row` says whether it is to run.

        Raises what is not for its handler: KeyboardInterrupt, and how pytest ends a test.
        """
        attempt = self._steps.attempt_of(claimed, row_check=row)
        attempt.lateness = lateness
        # A task of asyncio for each, as in a listener: it has a context of its own.
        outcome = await asyncio.create_task(self._steps.take(attempt))
        attempt.is_over = True
        if (error := outcome.error) is not None and _is_not_for_handler(error):
            raise error
        return attempt, outcome


# Receives key events of plain commands, as a listener's subscription does.

EDITED = "expire"
"""The event of every key whose end is set: to move the clock causes one for each key."""
PATIENCE = 5.0


class KeyEventReader:
    """Keeps events until they are taken."""

    def __init__(self, client: redis.Redis, database: Database) -> None:
        self._channels = {database.events(kind).encode(): heard for kind, heard in HEARD.items()}
        self._edits = database.events(EDITED).encode()
        self._heard: dict[bytes, EventKind] = {}
        self._pubsub = client.pubsub()  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(*self._channels)
        self._read()

    def take(self) -> dict[bytes, EventKind]:
        """The last event of each key since the previous call; all events have arrived."""
        self._read()
        heard, self._heard = self._heard, {}
        return heard

    def mute(self) -> None:
        """Ignore events from now on."""
        self._pubsub.unsubscribe(self._edits)
        self._read()

    def unmute(self) -> None:
        """Receive events again, before the next call of `take`."""
        self._pubsub.subscribe(self._edits)

    def close(self) -> None:
        """End the subscription."""
        self._pubsub.close()

    def _read(self) -> None:
        """Read what has arrived. The server answers the ping after all that came before."""
        self._pubsub.ping()
        while message := self._pubsub.get_message(timeout=PATIENCE):
            if message["type"] == "pong":
                return
            if message["type"] == "message" and b":?" in message["data"]:
                name = message["data"]
                self._heard.pop(name, None)
                self._heard[name] = self._channels[message["channel"]]
        raise ServerUnreachable(f"the server did not answer a PING within {PATIENCE:g} s")


# Names the task that repeats without end.

MOST_SHOWN = 3


def never_idle(done: Sequence[Ran], limit: int) -> NeverIdle:
    """The error after so many attempts, with those that ran most often."""
    counts = Counter(ran.func for ran in done)
    last = {ran.func: ran for ran in done}
    after = plural(limit, "attempt", "attempts")
    lines = [f"after {after} more were due, so this may go on for ever. Most often ran:"]
    for func, count in counts.most_common(MOST_SHOWN):
        ran = last[func]
        lines.append(
            f"  {func}, {plural(count, 'time', 'times')}; the last was {shown(ran.task)}, "
            f"task {ran.task.id}, at {ran.at:%Y-%m-%d %H:%M:%S}, which {_ended(ran)}"
        )
    lines.append(
        "Travel for a time instead, such as travel('3d'), or allow more attempts: limit=10_000"
    )
    return NeverIdle("\n".join(lines))


def _ended(ran: Ran) -> str:
    return str(ran.end) if ran.delay is None else f"ended as {ran.end}, to run again"


STEP = 1000
"""About how many keys one step of a scan walks over."""
LAST_MS = 2
"""Milliseconds that are waited for, not moved: what ends in them expires by itself, as in life."""
DECLARING = "test"
"""The name of the listener that a test stands for."""
UNKNOWN_FOR = 86400.0
"""Seconds for which a listener tries a task again whose function it does not know."""


class Traveller:
    """Does what a listener does that runs one task at a time, and moves the clock in between.

    It hears what plain commands did to keys, makes the ticks of series, claims one task that is
    due, runs it and records how it ended. When nothing is due, it moves the clock to when something
    is.
    """

    def __init__(
        self,
        store: Store,
        key_events: KeyEventReader,
        settings: Settings,
        *,
        handlers: Handlers,
        python_clock: PythonClock | None,
    ) -> None:
        self._store = store
        self._key_events = key_events
        self._settings = settings
        self._handlers = handlers
        self._python_clock = python_clock
        self.rows: CarriedRows | None = None
        """Those of the test's ledger, if it has one."""
        self.ran: list[Ran] = []
        """All attempts so far."""

    async def travel(self, goal: int | None, *, limit: int, raising: bool) -> list[Ran]:
        """Run what is due until that ms, or until nothing waits; at most `limit` attempts.

        Rows of the ledger are carried before each claim, and written back to after each attempt.

        Raises NeverIdle if more are due, and with `raising` what a handler raised.
        """
        first, arrived = len(self.ran), False
        self._store.run(_scan(self._settings))
        async with AsyncExitStack() as stack:
            attempts: Attempts | None = None
            while True:
                making = await self._make_ticks()
                left = limit - len(self.ran) + first
                if attempts is None and await self._is_any_due():
                    attempts = await self._begin(stack)
                claim = await self._claim(places=min(left, 1) if attempts else 0)
                if claim.tasks and attempts:
                    done = await self._run(claim, attempts)
                    if done is not None:
                        self.ran.append(done)
                        if raising:
                            done.raise_failure()
                    continue
                due = min((ms for ms in (claim.next_due, making) if ms is not None), default=None)
                if due is not None and (goal is None or due <= goal):
                    if not left and claim.next_due == due:
                        raise never_idle(self.ran[first:], limit)
                    await self._move(due)
                elif arrived:
                    return self.ran[first:]
                else:
                    await self._move(goal or claim.now_us // 1000)
                    # An expired key that was not scanned yet is found by a scan.
                    self._store.run(_scan(self._settings))
                    arrived = True

    @property
    def undone(self) -> set[str]:
        """The tasks of the ledger whose rows were rolled back."""
        return set() if self.rows is None else self.rows.undone

    @property
    def kept_back(self) -> list[Task]:
        """The rows of the ledger that are due too late to be carried yet."""
        return [] if self.rows is None else self.rows.kept_back

    async def exchange(self) -> None:
        """Carry rows of the ledger, and write back to them."""
        if self.rows is not None:
            await self.rows.run(self.rows.exchange)

    async def bring_near(self, id: str) -> None:
        """Carry rows of the ledger, among them that of this task."""
        if self.rows is not None:
            await self.rows.run(partial(self.rows.bring_near, id))
        await self.exchange()

    def declare_series(self) -> None:
        """Declare the series of the handlers, as a listener does when it starts."""
        specs = self._handlers.registry.series
        self._store.run(declare(DECLARING, self._settings.lease, specs))

    async def sleep(self, goal: int) -> None:
        """Move the time to that ms, without a listener."""
        self._follow()
        await self._move(goal)
        self._key_events.take()

    async def _begin(self, stack: AsyncExitStack) -> Attempts:
        """Load the handlers, declare their limits and marks, and enter their lifespans."""
        registry = self._handlers.registry
        names = registry.names()
        self._store.run(declare_limits(*LimitsDeclaration.of(names)))
        self._store.run(declaration_of(names))
        await stack.enter_async_context(entered(registry.lifespans))
        return Attempts(registry, self._settings, self._store)

    async def _make_ticks(self) -> int | None:
        """Make the ticks of series whose turn has come; returns the ms when the next one's does, or
        when a row of the ledger comes near."""
        while True:
            ticked = self._store.run(make_due_ticks())
            if ticked.next is None or ticked.next > ticked.now:
                break
        rows = None if self.rows is None else await self.rows.run(self.rows.next_moment)
        return min((ms for ms in (ticked.next, rows) if ms is not None), default=None)

    async def _is_any_due(self) -> bool:
        claim = await self._claim(places=0)
        return claim.next_due is not None and claim.next_due * 1000 <= claim.now_us

    async def _claim(self, *, places: int) -> Claim:
        """Take up what plain commands did, and claim what is due."""
        self._follow()
        await self.exchange()
        nonce = new_nonce()
        # The server's state of the ledger was compared just now.
        gate = None if self.rows is None else 0
        return self._store.run(
            claiming.claim(nonce, self._settings, places=places, idle=True, gate=gate)
        )

    def _follow(self) -> None:
        self._store.run(_take_up(self._key_events.take().items(), self._settings))

    async def _run(self, claim: Claim, attempts: Attempts) -> Ran | None:
        """Run the one task of a claim, and record how it ended; None if its row let it not run."""
        [claimed] = claim.tasks
        attempts.hooks.emit(Claimed(count=1))
        lateness = claim.now_us / 1e6 - claimed.due / 1000 - claimed.waited
        row = None if claimed.ledger is None else self.rows
        attempt, outcome = await attempts.run(claimed, lateness=lateness, row=row)
        code, state = self._settle(outcome.settlement)
        while isinstance(code, Obstacle):
            then = outcome.settlement.then
            assert then is not None and state is not None  # noqa: S101, PT018 - for the type checker
            outcome = after_error(attempt, not_made(code, then.id, state, then.call))
            code, state = self._settle(outcome.settlement)
        if (group := group_of(claimed.id)) is not None:
            self._store.run(_cancel_members(group, self._settings))
        await self.exchange()
        if row is not None and attempt.task.completer is None:
            return None  # a row that lets its task run gives it one
        attempts.hooks.emit(outcome.ended(attempt.task, attempt.took, code))
        return ran(attempt, outcome, from_ms(claim.now_us // 1000))

    def _settle(self, settlement: Settlement) -> SettledThen:
        if settlement.then is not None:
            return self._store.run(claiming.settle_then([settlement], self._settings))[0]
        if settlement.outcome == "unknown":
            # A listener looks again every 15 s for a day: that ends alike, after 5,760 attempts.
            settlement = settlement._replace(delay=UNKNOWN_FOR)
        [code] = self._store.run(claiming.settle([settlement], self._settings))
        return SettledThen(code)

    async def _move(self, to: int) -> None:
        """Move the clock to that ms; wait for the last of them."""
        self._key_events.mute()
        now = self._store.run(time.shift(to - LAST_MS))
        self._key_events.unmute()
        if self._python_clock is not None:
            self._python_clock.move(now)
        _wait(to / 1000 - now / 1e6)


def _wait(seconds: float) -> None:
    """Wait for a few milliseconds; not by the event loop's clock, which a test may have frozen."""
    sleep(max(seconds, 0))


def _cancel_members(name: str, settings: Settings) -> Steps[None]:
    """Cancel the members of a group that a failure has cancelled, as sweeps of listeners do."""
    group = yield from groups.get_group(name)
    if group is None or group.stopped is None:
        return
    while (yield from groups.cancel_group(name, keep=settings.keep_succeeded)) is Cancelling.MORE:
        pass


def _take_up(news: Collection[News], settings: Settings) -> Steps[None]:
    """Reconcile the keys that had events."""
    if news:
        yield from _adopt((yield from sift(news)), settings)


def _scan(settings: Settings) -> Steps[None]:
    """Scan all keys, for those without events."""
    pages = Pages(lambda cursor: reconciling.scan(cursor, STEP, settings))
    while page := (yield from pages.next()):
        hints = [key_event_of(name, EventKind.LIVE) for name in page.found]
        yield from _adopt([hint for hint in hints if hint], settings)


def _adopt(hints: list[KeyEvent], settings: Settings) -> Steps[None]:
    for chunk in chunks(hints):
        yield from reconciling.adopt(chunk, settings)
