"""The runner: runs claimed tasks side by side, as many as there is room for."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable

from expirebridge.handlers import Registry
from expirebridge.hooks import End, Hooks, Misfired, Started
from expirebridge.listener.attempt import Attempt, Outcome
from expirebridge.listener.deadlines import Deadlines
from expirebridge.listener.leases import Leases
from expirebridge.listener.outage import Outage
from expirebridge.listener.server_clock import ServerClock
from expirebridge.listener.settler import Finished, Settler
from expirebridge.listener.threads import Threads
from expirebridge.listener.unbegun import WITHDRAWN, NotBegun, Unbegun, Withdrawn
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store.store import AsyncStore
from expirebridge.store.views import ClaimedTask

logger = logging.getLogger("expirebridge")

MOST_ENDED = 500
"""Attempts that ended and are not recorded yet, at most: up to that they take no room."""
CANCEL_LIMIT = 5.0
"""Seconds that a cancelled handler has to end."""


class Runner:
    """Starts an attempt for each claimed task, and holds its lease until it is settled.

    `on_room` is called when room becomes free; `on_stuck` when a handler has not ended long
    after its timeout, so that its room is lost for good.
    """

    def __init__(
        self,
        store: AsyncStore,
        registry: Registry,
        settings: Settings,
        *,
        leases: Leases,
        server_clock: ServerClock,
        hooks: Hooks,
        outage: Outage,
        on_room: Callable[[], None],
        on_stuck: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._leases = leases
        self._server_clock = server_clock
        self._hooks = hooks
        self._on_room = on_room
        self._on_stuck = on_stuck
        self._threads = Threads(settings.concurrency)
        self._deadlines = Deadlines()
        self._settler = Settler(store, settings, hooks, outage, self._settled)
        self._running: dict[Attempt, asyncio.Task[None]] = {}
        self._unsettled: set[Attempt] = set()
        self._unbegun = Unbegun(leases)
        self._progress = asyncio.Event()

    @property
    def room(self) -> int:
        """How many more tasks can be taken."""
        free = self._settings.concurrency - len(self._running)
        return min(free, self._settings.concurrency + MOST_ENDED - len(self._unsettled))

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and nothing waits to be settled."""
        return not self._unsettled

    async def run(self) -> None:
        """Settle what ends, for ever."""
        await self._settler.run()

    def start(self, claimed: ClaimedTask, *, asked: float) -> None:
        """Run a task that was claimed; its claim was asked for at that time (monotonic)."""
        handler = self._registry.find(claimed.func)
        attempt = Attempt(
            claimed,
            handler,
            hint="" if handler else self._registry.suggest(claimed.func),
            timeout=self._settings.timeout,
            unbegun=self._unbegun,
            threads=self._threads,
            deadlines=self._deadlines,
            on_overtime=self._overtime,
        )
        self._leases.hold(claimed.id, claimed.token, asked=asked)
        self._unsettled.add(attempt)
        self._unbegun.add(attempt)
        self._running[attempt] = asyncio.create_task(self._run(attempt))

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for what runs; then cancel what can be cancelled.

        Plain functions that still run are left to their leases.
        """
        await self._wait_until(lambda: self.idle, grace)
        # An attempt that was made a moment ago must begin first: cancelled before, it would end
        # without an outcome.
        await asyncio.sleep(0)
        self.cancel_running()
        await self._wait_until(lambda: not any(a.is_async for a in self._unsettled), CANCEL_LIMIT)
        for attempt in self._unsettled:
            logger.warning(
                "%s %s still runs; its lease lapses", attempt.task.func, attempt.task.id,
                extra=event("left running", func=attempt.task.func, task=attempt.task.id),
            )  # fmt: skip

    def cancel_running(self) -> None:
        """Cancel the async handlers; their tasks are released for another listener."""
        self._cancel(list(self._running), "its listener stopped")

    def cancel(self, claims: Collection[tuple[str, str]]) -> None:
        """Cancel the async handlers of these claims, by id and token: their tasks were cancelled.

        An id alone may be that of the next task by now.
        """
        cancelled = [a for a in self._running if (a.claimed.id, a.claimed.token) in claims]
        self._cancel(cancelled, "it was cancelled")

    def attempt_in(self, task: asyncio.Task[object] | None) -> Attempt | None:
        """The attempt that this asyncio task is, if it is one."""
        return next((a for a, running in list(self._running.items()) if running is task), None)

    def withdraw(self) -> list[Outcome]:
        """Give up what has not begun, and return what is to be recorded of it.

        For the heartbeat's thread, while the event loop is blocked; the leases are let go.
        """
        return [attempt.given_back(WITHDRAWN) for attempt in self._unbegun.withdraw()]

    def _cancel(self, attempts: Iterable[Attempt], reason: str) -> None:
        for attempt in attempts:
            if attempt.is_async and not attempt.stopped:
                attempt.stopped = reason
                self._running[attempt].cancel()

    def close(self) -> None:
        """Let go of the threads; those that still run a handler end with the process."""
        self._threads.close()

    async def _run(self, attempt: Attempt) -> None:
        try:
            self._unbegun.check(attempt)
            outcome = await self._outcome_of(attempt)
        except Withdrawn as reason:
            # The heartbeat's thread records that.
            self._settler.tell(Finished(attempt, attempt.given_back(str(reason)), 0.0))
        except NotBegun as reason:
            # Another listener may run it by now. If none does, this one claims it again.
            self._settler.add(Finished(attempt, attempt.given_back(str(reason)), 0.0))
        else:
            self._settler.add(Finished(attempt, outcome, attempt.took))
        finally:
            del self._running[attempt]
        self._on_room()

    async def _outcome_of(self, attempt: Attempt) -> Outcome:
        lateness = self._server_clock.now() - attempt.claimed.due / 1000
        misfire = attempt.misfire(lateness)
        if misfire is not None:
            self._unbegun.begin(attempt)
            done = "skipped" if misfire.end is End.FAILED else "spread"
            self._hooks.emit(Misfired(task=attempt.task, lateness=lateness, done=done))
            return misfire
        if attempt.knows_its_handler:
            self._hooks.emit(Started(task=attempt.task, lateness=lateness))
        return await attempt.run()

    def _settled(self, attempt: Attempt) -> None:
        self._leases.drop(attempt.claimed.id, attempt.claimed.token)
        self._unsettled.discard(attempt)
        self._progress.set()
        self._on_room()

    async def _wait_until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Wait until `reached` holds after some attempt was settled, at most so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached():
                    self._progress.clear()
                    await self._progress.wait()

    def _overtime(self, attempt: Attempt) -> None:
        """Give a handler that overran its timeout the grace time to end."""
        func = attempt.task.func
        logger.warning(
            "%s %s overran its timeout: it cannot be stopped", func, attempt.task.id,
            extra=event("overtime", func=func, task=attempt.task.id),
        )  # fmt: skip

        def look_again() -> None:
            if attempt in self._running:
                self._on_stuck(func)

        asyncio.get_running_loop().call_later(self._settings.grace, look_again)
