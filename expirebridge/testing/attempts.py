"""The attempts of a test: as a listener makes them, but in the test's own thread and event loop."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from expirebridge.handlers import Registry
from expirebridge.hooks import Hooks
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.in_flight import Unsettled
from expirebridge.listener.execution.invoke import Caller
from expirebridge.listener.execution.outcome import Conclusion
from expirebridge.listener.execution.overtime import Overtime
from expirebridge.listener.execution.pipe import Pipe
from expirebridge.listener.shutdown import Shutdown
from expirebridge.settings import Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.testing.loop import unseen_loop


class Row(Protocol):
    """What a listener knows of a task by its row in the ledger."""

    async def look_up(self, attempt: Attempt) -> Conclusion | None:
        """The conclusion if the task is not to run now."""
        ...

    def completer_for(self, attempt: Attempt) -> Callable[[Any], None]:
        """What `complete_in` calls."""
        ...

    async def look_after(self, attempt: Attempt, failed: Conclusion) -> Conclusion:
        """What is to be recorded of an attempt that failed."""
        ...


class OwnThread:
    """Calls plain functions in the thread of the event loop, one at a time.

    A listener has threads for them, in which no event loop runs. Nor do they see one here: they may
    call `asyncio.run`, and what refuses to wait inside of an event loop.
    """

    def call(self, function: Callable[[], Any], /) -> asyncio.Future[Any]:
        """Call a function that raises nothing, soon; the future has what it returns."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        # Not inside of the asyncio task that waits for it, which would be seen, too.
        loop.call_soon(self._call, function, future)
        return future

    def _call(self, function: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        with unseen_loop():
            value = function()
        if not future.done():
            future.set_result(value)


class Attempts:
    """Takes claimed tasks through a listener's own pipe."""

    def __init__(self, registry: Registry, settings: Settings) -> None:
        self._registry = registry
        self._settings = settings
        self.hooks = Hooks(registry.hooks)
        overtime = Overtime(settings.grace, Shutdown(), Unsettled())
        self._pipe = Pipe(Caller(OwnThread(), overtime), self.hooks)

    async def run(
        self,
        claimed: ClaimedTask,
        *,
        lateness: float = 0.0,
        row: Row | None = None,
    ) -> tuple[Attempt, Conclusion]:
        """Run a task that was claimed so many seconds late.

        Of a task of a ledger, `row` says whether it is to run.

        Raises what is not for its handler: KeyboardInterrupt, and how pytest ends a test.
        """
        handler = self._registry.find(claimed.func)
        hint = "" if handler else self._registry.suggest(claimed.func)
        attempt = Attempt(claimed, handler, hint=hint, timeout=self._settings.timeout)
        attempt.lateness = lateness
        if row is not None:
            conclusion = await row.look_up(attempt)
            if conclusion is not None:
                return attempt, conclusion
            attempt.task = replace(attempt.task, completer=row.completer_for(attempt))
        # A task of asyncio for each, as in a listener: it has a context of its own.
        conclusion = await asyncio.create_task(self._pipe.conclude(attempt))
        attempt.is_over = True
        error = conclusion.error
        if error is not None and not isinstance(error, Exception | SystemExit):
            raise error
        if row is not None and conclusion.is_failure:
            conclusion = await row.look_after(attempt, conclusion)
        return attempt, conclusion
