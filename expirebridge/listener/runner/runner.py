"""The runner: runs claimed tasks side by side, as many as there is room for."""

import asyncio
import logging
from collections.abc import Collection, Iterable

from expirebridge.handlers import Registry
from expirebridge.hooks import End, Hooks, Misfired, Started
from expirebridge.listener.runner.attempt import Attempt
from expirebridge.listener.runner.caller import Caller
from expirebridge.listener.runner.conclusion import Conclusion
from expirebridge.listener.runner.origin import Origin
from expirebridge.listener.runner.overtime import Overtime
from expirebridge.listener.runner.room import Room
from expirebridge.listener.runner.settler import Finished
from expirebridge.listener.runner.threads import Threads
from expirebridge.listener.runner.unbegun import NotBegun, Unbegun, Withdrawn
from expirebridge.listener.runner.unsettled import Unsettled
from expirebridge.listener.shutdown import Shutdown
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store.views import ClaimedTask

logger = logging.getLogger("expirebridge")

CANCEL_LIMIT = 5.0
"""Seconds that a cancelled handler has to end."""


class Runner:
    """Takes an attempt for each claimed task through its steps, whichever station claimed it.

    Each has a place in the room until its handler has ended, and a lease until its outcome is
    recorded.
    """

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        *,
        hooks: Hooks,
        shutdown: Shutdown,
    ) -> None:
        self._registry = registry
        self._settings = settings
        self._hooks = hooks
        self.unsettled = Unsettled()
        self.room = Room(settings.concurrency, self.unsettled)
        self._threads = Threads(settings.concurrency)
        self._unbegun = Unbegun()
        self._caller = Caller(self._threads, self._unbegun, Overtime(settings.grace, shutdown))
        self._running: dict[Attempt, asyncio.Task[None]] = {}

    def start(self, claimed: ClaimedTask, origin: Origin, *, asked: float) -> None:
        """Run a task for which a place was reserved; its claim was asked for then (monotonic)."""
        attempt = self._take(claimed, origin)
        origin.leases.hold(claimed.id, claimed.token, asked=asked)
        self._unbegun.add(attempt)
        self._running[attempt] = asyncio.create_task(self._run(attempt))

    def give_back(self, claimed: ClaimedTask, origin: Origin, reason: str) -> None:
        """Let another listener run a task that was claimed, but for which there is no place."""
        attempt = self._take(claimed, origin)
        origin.settler.add(Finished(attempt, attempt.conclusions.given_back(reason), 0.0))

    def _take(self, claimed: ClaimedTask, origin: Origin) -> Attempt:
        handler = self._registry.find(claimed.func)
        hint = "" if handler else self._registry.suggest(claimed.func)
        attempt = Attempt(claimed, handler, origin, hint=hint, timeout=self._settings.timeout)
        self.unsettled.add(attempt)
        return attempt

    # An attempt, step by step

    async def _run(self, attempt: Attempt) -> None:
        """Begin it, misfire or refuse or call it, and end it."""
        try:
            self._begin(attempt)
            conclusion = self._misfire(attempt) or self._refuse(attempt) or await self.call(attempt)
        except NotBegun as reason:
            self._give_back(attempt, reason)
        else:
            attempt.origin.settler.add(Finished(attempt, conclusion, attempt.took))
        finally:
            self._end(attempt)

    def _begin(self, attempt: Attempt) -> None:
        """See that it still has its lease. Raises NotBegun."""
        self._unbegun.check(attempt)
        now = attempt.origin.footing.now.server_clock.now()
        attempt.lateness = now - attempt.claimed.due / 1000

    def _misfire(self, attempt: Attempt) -> Conclusion | None:
        """The conclusion if it is too late to run now."""
        conclusion = attempt.misfire(attempt.lateness)
        if conclusion is not None:
            self._unbegun.begin(attempt)
            done = "skipped" if conclusion.end is End.FAILED else "spread"
            self._hooks.emit(Misfired(task=attempt.task, lateness=attempt.lateness, done=done))
        return conclusion

    def _refuse(self, attempt: Attempt) -> Conclusion | None:
        """The conclusion if there is nothing that could be called."""
        if attempt.handler is not None:
            self._hooks.emit(Started(task=attempt.task, lateness=attempt.lateness))
        conclusion = attempt.refusal()
        if conclusion is not None:
            self._unbegun.begin(attempt)
        return conclusion

    async def call(self, attempt: Attempt) -> Conclusion:
        """Call the handler and conclude how it ended.

        Raises NotBegun, and nothing that a handler could raise.
        """
        try:
            return attempt.conclusions.succeeded(await self._caller.call(attempt))
        except NotBegun:
            raise
        except BaseException as error:
            return attempt.after(error)

    def _give_back(self, attempt: Attempt, reason: NotBegun) -> None:
        finished = Finished(attempt, attempt.conclusions.given_back(str(reason)), 0.0)
        if isinstance(reason, Withdrawn):
            # The heartbeat's thread records that.
            attempt.origin.settler.close(finished)
        else:
            # Another listener may run it by now. If none does, this one claims it again.
            attempt.origin.settler.add(finished)

    def _end(self, attempt: Attempt) -> None:
        attempt.is_over = True
        del self._running[attempt]
        self.room.leave()

    # Stopping

    async def drain(self, grace: float) -> None:
        """Wait up to `grace` seconds for what runs; then cancel what can be cancelled.

        Plain functions that still run are left to their leases.
        """
        unsettled = self.unsettled
        await unsettled.wait_until(lambda: not unsettled, grace)
        # An attempt that was made a moment ago must begin first: cancelled before, it would end
        # without an outcome.
        await asyncio.sleep(0)
        self.cancel_running()
        await unsettled.wait_until(lambda: not any(a.is_async for a in unsettled), CANCEL_LIMIT)
        for attempt in unsettled:
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

    def close(self) -> None:
        """Let go of the threads; those that still run a handler end with the process."""
        self._threads.close()

    def _cancel(self, attempts: Iterable[Attempt], reason: str) -> None:
        for attempt in attempts:
            if attempt.is_async and not attempt.stopped:
                attempt.stopped = reason
                self._running[attempt].cancel()

    # For the heartbeat's thread, while the event loop is blocked

    def attempt_in(self, task: asyncio.Task[object] | None) -> Attempt | None:
        """The attempt that this asyncio task is, if it is one."""
        return next((a for a, running in list(self._running.items()) if running is task), None)

    def withdraw(self) -> list[Attempt]:
        """Give up what has not begun; the leases are let go, and nothing is recorded yet."""
        return self._unbegun.withdraw()
