"""Calls handlers under their timeouts: on the event loop, in a thread or in a process."""

import asyncio
import inspect
import logging
import os
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.deadlines import Deadlines
from expirebridge.listener.execution.exceptions import TimedOut
from expirebridge.listener.execution.fork_guard import ForkGuard, end_child
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.execution.thread_pool import ThreadCall
from expirebridge.listener.wakeups import StopRequest
from expirebridge.task.task import running_task
from expirebridge.task.texts import event

if TYPE_CHECKING:
    from expirebridge.listener.execution.process_pool.pool import ProcessPool


# Handlers that cannot be stopped at their timeout.

logger = logging.getLogger("expirebridge")


class OverrunPolicy:
    """Gives a handler that overran its timeout the grace time; then its listener ends."""

    def __init__(self, grace: float, shutdown: StopRequest, in_flight: InFlight) -> None:
        self._grace = grace
        self._shutdown = shutdown
        self._in_flight = in_flight

    def notice(self, attempt: Attempt) -> None:
        """Log that its handler runs on after its timeout, and look again after the grace time."""
        func = attempt.task.func
        logger.warning(
            "%s %s overran its timeout: it cannot be stopped", func, attempt.task.id,
            extra=event("overtime", func=func, task=attempt.task.id),
        )  # fmt: skip
        asyncio.get_running_loop().call_later(self._grace, self._look_again, attempt)

    def _look_again(self, attempt: Attempt) -> None:
        if attempt.is_over:
            return
        attempt.is_stuck = True
        report_stuck(attempt, self._grace)
        self._shutdown.give_up(attempt.task.func)
        self._in_flight.look_again()


def report_stuck(attempt: Attempt, grace: float) -> None:
    """Log that its handler is stuck, and that its listener will end. Safe for threads."""
    func = attempt.task.func
    logger.error(
        "%s %s did not end %g s after its timeout: this listener claims no more, and ends when its "
        "other tasks have ended",
        func, attempt.task.id, grace,
        extra=event("stuck", func=func, task=attempt.task.id),
    )  # fmt: skip


# The call of an async handler, on the event loop, cancelled at its timeout.

T = TypeVar("T")

CANCEL_PATIENCE = 1.0
"""Seconds after its cancellation at which a handler that still runs is reported."""


class AsyncCall:
    """Awaits a handler's coroutine, and cancels it at its timeout."""

    __slots__ = ("_attempt", "_awaiting", "_is_late", "_overrun_policy")

    def __init__(self, attempt: Attempt, overrun_policy: OverrunPolicy) -> None:
        self._attempt = attempt
        self._overrun_policy = overrun_policy
        self._awaiting: asyncio.Task[object] | None = None
        """The asyncio task in which the handler is awaited; None before and afterwards."""
        self._is_late = False
        """True once the handler reached its timeout."""

    async def run(self, result: Awaitable[Any], limit: float, deadlines: Deadlines) -> Any:
        """Await it for at most `limit` seconds. Raises TimedOut, and the handler's errors."""
        began = time.perf_counter()
        self._awaiting = asyncio.current_task()
        try:
            with deadlines.set(limit, self._cancel):
                value = await GuardedAwaitable(result)
        except (asyncio.CancelledError, TimeoutError):
            # It may also have been cancelled because its listener stops, or its task was cancelled.
            if self._is_late and not self._attempt.stopped:
                raise TimedOut from None
            raise
        finally:
            self._awaiting = None
            self._attempt.took += time.perf_counter() - began
        if self._is_late:  # the handler swallowed its cancellation
            raise TimedOut
        return value

    def _cancel(self) -> None:
        """Cancel the handler at its timeout; it may ignore that."""
        self._is_late = True
        if self._awaiting is not None:
            self._awaiting.cancel()
        asyncio.get_running_loop().call_later(CANCEL_PATIENCE, self._notice_ignored)

    def _notice_ignored(self) -> None:
        if self._awaiting is not None:
            self._overrun_policy.notice(self._attempt)


class GuardedAwaitable(Generator[Any, None, T]):
    """An awaitable with the fork guard around each of its steps."""

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._steps = awaitable.__await__()
        self._process = os.getpid()

    def __await__(self) -> Generator[Any, None, T]:
        return self

    def send(self, _: None) -> Any:
        """Run to the next wait; the event loop never sends a value."""
        # As a ForkGuard does, without the calls that `with` would make for each task.
        try:
            step = next(self._steps)
        except BaseException as error:
            if os.getpid() != self._process:
                end_child(error)
            raise
        if os.getpid() != self._process:
            end_child(None)
        return step

    def throw(self, *error: Any) -> Any:
        """Raise an error at the present wait, such as a cancellation."""
        with ForkGuard(self._process):
            return self._steps.throw(*error)


# The call of any handler, where it is to run.


class ThreadRunner(Protocol):
    """Calls plain functions: the thread pool, or a thread of the testing kit."""

    def call(self, function: Callable[[], Any], /) -> asyncio.Future[Any]:
        """Call a function that raises nothing; the future has what it returns."""
        ...


class Invoker:
    """Calls the handlers of attempts, each where it is to run."""

    def __init__(
        self,
        threads: ThreadRunner,
        overrun_policy: OverrunPolicy,
        processes: "ProcessPool | None" = None,
    ) -> None:
        self.threads = threads
        self._overrun_policy = overrun_policy
        self._processes = processes
        """Calls handlers with `process=True`; without it, a thread does."""
        self._deadlines = Deadlines()

    def call(self, attempt: Attempt) -> Awaitable[Any]:
        """Call the handler, right after its attempt begins; await the result for what it returned.

        Both raise the handler's errors, TimedOut if it takes longer than its timeout, and
        StartRefused.
        """
        handler = attempt.handler
        if handler is None:
            raise LookupError(f"no handler for {attempt.task.func}")
        if self._processes is not None and handler.in_process:
            return self._call_in_process(attempt, self._processes)
        running_task.set(attempt.task)
        call = partial(handler.call, *attempt.task.args, **attempt.task.kwargs)
        if not handler.is_async:
            return self._call_in_thread(call, attempt)
        attempt.begin()
        return AsyncCall(attempt, self._overrun_policy).run(call(), attempt.limit, self._deadlines)

    def _call_in_process(self, attempt: Attempt, processes: "ProcessPool") -> Awaitable[Any]:
        # Here, so that it is imported only where there are processes.
        from expirebridge.listener.execution.process_pool.call import ProcessCall  # noqa: PLC0415

        return ProcessCall(attempt, processes, self._deadlines).run()

    async def _call_in_thread(self, handler: Callable[[], Any], attempt: Attempt) -> Any:
        call = ThreadCall(handler, attempt)

        def look() -> float | None:
            """Postpone the deadline while the call waits for a thread."""
            left = attempt.left()
            if left > 0:
                return left
            if attempt.answer is None:
                self._overrun_policy.notice(attempt)
            return None

        with self._deadlines.set(attempt.limit, look):
            answer = await self.threads.call(call)
        attempt.answer = None  # an error's traceback leads back to the attempt
        attempt.took = answer.took
        result = answer.result(attempt.limit)
        if not inspect.isawaitable(result):
            return result
        # A plain wrapper around an async function returns its coroutine.
        left = attempt.limit - attempt.took
        return await AsyncCall(attempt, self._overrun_policy).run(result, left, self._deadlines)
