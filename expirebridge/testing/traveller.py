"""The traveller: moves a database's time on, and runs each task at its moment."""

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from expirebridge.hooks import Claimed
from expirebridge.listener.lifespans import entered
from expirebridge.listener.partition.news import News, hint_for, sift
from expirebridge.model.task import from_ms
from expirebridge.series.definition import declare
from expirebridge.series.ticks import make_due_ticks
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.client import Store
from expirebridge.store.commands import Claim, Heard, Hint, Steps
from expirebridge.testing import time
from expirebridge.testing.attempt import Ran, ran
from expirebridge.testing.attempts import Attempts
from expirebridge.testing.ear import Ear
from expirebridge.testing.endless import never_idle
from expirebridge.testing.handlers import Handlers
from expirebridge.testing.python_clock import PythonClock

if TYPE_CHECKING:
    from expirebridge.testing.rows import Rows

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
        ear: Ear,
        settings: Settings,
        *,
        handlers: Handlers,
        python_clock: PythonClock | None,
    ) -> None:
        self._store = store
        self._ear = ear
        self._settings = settings
        self._handlers = handlers
        self._python_clock = python_clock
        self.rows: Rows | None = None
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
                room = limit - len(self.ran) + first
                claim = await self._claim(room=min(room, 1))
                if claim.tasks:
                    attempts = attempts or await self._begin(stack)
                    done = await self._run(claim, attempts)
                    if done is not None:
                        self.ran.append(done)
                        if raising:
                            done.raise_failure()
                    continue
                due = min((ms for ms in (claim.next_due, making) if ms is not None), default=None)
                if due is not None and (goal is None or due <= goal):
                    if not room:
                        raise never_idle(self.ran[first:], limit)
                    await self._move(due)
                elif arrived:
                    return self.ran[first:]
                else:
                    await self._move(goal or claim.now_us // 1000)
                    # What expired and was never looked at is noticed by a look.
                    self._store.run(_scan(self._settings))
                    arrived = True

    @property
    def undone(self) -> set[str]:
        """The tasks of the ledger whose rows were rolled back."""
        return set() if self.rows is None else self.rows.undone

    async def exchange(self) -> None:
        """Carry rows of the ledger, and write back to them."""
        if self.rows is not None:
            await self.rows.run(self.rows.exchange)

    def declare_series(self) -> None:
        """Declare the series of the handlers, as a listener does when it starts."""
        specs = self._handlers.registry.series
        self._store.run(declare(DECLARING, self._settings.lease, specs))

    async def sleep(self, goal: int) -> None:
        """Let the time pass until that ms, with nobody there to hear or run anything."""
        self._follow()
        await self._move(goal)
        self._ear.take()

    async def _begin(self, stack: AsyncExitStack) -> Attempts:
        """Load the handlers, and begin their lifespans, which end when the travel does."""
        registry = self._handlers.registry
        await stack.enter_async_context(entered(registry.lifespans))
        return Attempts(registry, self._settings)

    async def _make_ticks(self) -> int | None:
        """Make the ticks of series whose turn has come; returns the ms when the next one's does."""
        while True:
            ticked = self._store.run(make_due_ticks())
            if ticked.next is None or ticked.next > ticked.now:
                break
        rows = None if self.rows is None else await self.rows.run(self.rows.next_tick)
        return min((ms for ms in (ticked.next, rows) if ms is not None), default=None)

    async def _claim(self, *, room: int) -> Claim:
        """Take up what plain commands did, and claim what is due."""
        self._follow()
        await self.exchange()
        nonce = commands.new_nonce()
        # What the server has seen of the ledger was compared just now.
        gate = None if self.rows is None else 0
        return self._store.run(
            commands.claim(nonce, self._settings, room=room, idle=True, gate=gate)
        )

    def _follow(self) -> None:
        self._store.run(_take_up(self._ear.take().items(), self._settings))

    async def _run(self, claim: Claim, attempts: Attempts) -> Ran | None:
        """Run the one task of a claim, and record how it ended; None if its row let it not run."""
        [claimed] = claim.tasks
        attempts.hooks.emit(Claimed(count=1))
        lateness = claim.now_us / 1e6 - claimed.due / 1000
        row = None if claimed.ledger is None else self.rows
        attempt, conclusion = await attempts.run(claimed, lateness=lateness, row=row)
        settlement = conclusion.settlement
        if settlement.outcome == "unknown":
            # A listener looks again every 15 s for a day: that ends alike, after 5,760 attempts.
            settlement = settlement._replace(delay=UNKNOWN_FOR)
        [code] = self._store.run(commands.settle([settlement], self._settings))
        await self.exchange()
        if not attempt.is_over:
            return None
        attempts.hooks.emit(conclusion.ended(attempt.task, attempt.took, code))
        return ran(attempt, conclusion, from_ms(claim.now_us // 1000))

    async def _move(self, to: int) -> None:
        """Move the clock to that ms; wait for the last of them."""
        self._ear.mute()
        now = self._store.run(time.shift(to - LAST_MS))
        self._ear.unmute()
        if self._python_clock is not None:
            self._python_clock.move(now)
        await asyncio.sleep(max(to / 1000 - now / 1e6, 0))


def _take_up(news: Collection[News], settings: Settings) -> Steps[None]:
    """Take up what was heard of keys."""
    if news:
        yield from _adopt((yield from sift(news)), settings)


def _scan(settings: Settings) -> Steps[None]:
    """Walk over all keys, for what was not heard of."""
    pages = commands.Pages(lambda cursor: commands.scan(cursor, STEP, settings))
    while page := (yield from pages.next()):
        hints = [hint_for(name, Heard.LIVE) for name in page.found]
        yield from _adopt([hint for hint in hints if hint], settings)


def _adopt(hints: list[Hint], settings: Settings) -> Steps[None]:
    for batch in commands.batches(hints):
        yield from commands.adopt(batch, settings)
