"""Calls handlers under their timeouts: on the event loop, in a thread or in a process."""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from expirebridge.errors import InvalidTask
from expirebridge.handlers import Then
from expirebridge.hooks import End, Hooks, Making, Misfired, Started
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.deadlines import Deadlines
from expirebridge.listener.execution.exceptions import DecodingFailed, StartRefused, TimedOut
from expirebridge.listener.execution.fork_guard import GuardedAwaitable
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.execution.thread_pool import ThreadCall
from expirebridge.listener.wakeups import StopRequest
from expirebridge.settings import Settings
from expirebridge.store.record_values import split_call
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.codec import load_codec
from expirebridge.task.policies import Busy, Discard, Retry, Snooze
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


class ThreadRunner(Protocol):
    """Calls plain functions: the thread pool, or a thread of the testing kit."""

    def call(self, function: Callable[[], Any], /) -> asyncio.Future[Any]:
        """Call a function that raises nothing; the future has what it returns."""
        ...


class Invoker:
    """Calls the handlers of attempts, each where it is to run."""

    def __init__(
        self,
        settings: Settings,
        threads: ThreadRunner,
        overrun_policy: OverrunPolicy,
        processes: "ProcessPool | None" = None,
    ) -> None:
        self._settings = settings
        self._threads = threads
        self._overrun_policy = overrun_policy
        self._processes = processes
        """Calls handlers with `process=True`; without it, a thread does."""
        self._codec = None if settings.codec is None else load_codec(settings.codec)
        """Decodes large arguments, in a thread."""
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

    async def follow_up(self, attempt: Attempt, given: Then | NewTask, hooks: Hooks) -> NewTask:
        """The task that a handler returned, as it is made; a process has checked it already.

        Raises InvalidTask, what a codec raises, and ServerError: they fail the attempt.
        """
        from expirebridge.listener.execution import follow_up  # noqa: PLC0415 - if one is returned

        if attempt.claimed.ledger is not None:
            raise InvalidTask(
                "the Then that its handler returned: its task is of a ledger; make the follow-up "
                "with ledger.make_task in the handler's transaction, before complete_in"
            )
        if isinstance(given, Then):
            given = follow_up.checked(given, self._settings)
        new = await self._write(given, attempt)
        making = Making(id=new.id, func=split_call(new.call)[0])
        hooks.emit(making)
        trace = making.trace or attempt.task.trace
        if trace is not None:
            new.fields["trace"] = trace
        return new

    async def _write(self, new: NewTask, attempt: Attempt) -> NewTask:
        from expirebridge.listener.execution.follow_up import written  # noqa: PLC0415 - as above

        store = attempt.consumer.session.store
        return await store.run(written(new, attempt.claimed, self._settings, store.database.layout))

    async def decode(self, attempt: Attempt, encoded: bytes) -> AttemptOutcome | None:
        """Have the codec decode an attempt's arguments; the outcome if it cannot.

        It has the attempt's timeout, before that of the handler. Raises StartRefused.
        """
        if self._codec is None:
            outcome: AttemptOutcome | None = attempt.outcomes.not_decoded()
        else:
            outcome = await self._decoded(attempt, partial(self._codec.decode, encoded))
        if outcome is not None:
            attempt.begin()
        return outcome

    async def _decoded(
        self, attempt: Attempt, decode: Callable[[str], bytes]
    ) -> AttemptOutcome | None:
        call = self._threads.call(partial(_result_of, partial(decode, attempt.claimed.id)))
        try:
            decoded, error = await asyncio.wait_for(call, attempt.limit)
        except TimeoutError:
            reason = f"its codec did not decode its arguments in {attempt.limit:g} s"
            return attempt.after(DecodingFailed(reason))
        if attempt.stopped:
            raise asyncio.CancelledError  # Python 3.11 forgets it if both come at once
        if error is None:
            return attempt.take_arguments(decoded)
        if isinstance(error, Retry | Snooze | Busy | Discard):
            return attempt.after(error)
        failed = DecodingFailed("its codec did not decode its arguments")
        failed.__cause__ = error
        return attempt.after(failed)

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
            answer = await self._threads.call(call)
        attempt.answer = None  # an error's traceback leads back to the attempt
        attempt.took = answer.took
        result = answer.result(attempt.limit)
        if not inspect.isawaitable(result):
            return result
        # A plain wrapper around an async function returns its coroutine.
        left = attempt.limit - attempt.took
        return await AsyncCall(attempt, self._overrun_policy).run(result, left, self._deadlines)


def _result_of(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The result of a function, or its error: threads carry them as values."""
    try:
        return function(), None
    except BaseException as error:
        return None, error


# The steps of an attempt from its first to its outcome.


async def run_attempt(attempt: Attempt, invoker: Invoker, hooks: Hooks) -> AttemptOutcome:
    """Misfire an attempt, whose lateness is known, or refuse it, or call its handler.

    Raises StartRefused, and no error of a handler or a codec.
    """
    outcome = _misfire(attempt, hooks) or _refuse(attempt, hooks)
    if outcome is None and attempt.encoded is not None:
        outcome = await invoker.decode(attempt, attempt.encoded)
    return outcome or await call_handler(attempt, invoker, hooks)


def _misfire(attempt: Attempt, hooks: Hooks) -> AttemptOutcome | None:
    """The outcome if it is too late to run now."""
    outcome = attempt.misfire(attempt.lateness)
    if outcome is not None:
        attempt.begin()
        done = "skipped" if outcome.end is End.FAILED else "spread"
        late, cause = attempt.lateness, attempt.late.cause if attempt.late else None
        hooks.emit(Misfired(task=attempt.task, lateness=late, done=done, cause=cause))
    return outcome


def _refuse(attempt: Attempt, hooks: Hooks) -> AttemptOutcome | None:
    """The outcome if no handler can be called."""
    if attempt.handler is not None:
        cause = attempt.late.cause if attempt.late else None
        hooks.emit(Started(task=attempt.task, lateness=attempt.lateness, cause=cause))
    outcome = attempt.refusal()
    if outcome is not None:
        attempt.begin()
    return outcome


async def call_handler(attempt: Attempt, invoker: Invoker, hooks: Hooks) -> AttemptOutcome:
    """Call the handler, and turn its result or error into an outcome.

    Raises StartRefused, and no error of a handler.
    """
    try:
        result = await invoker.call(attempt)
        if isinstance(result, Then | NewTask):
            return attempt.outcomes.succeeded_then(await invoker.follow_up(attempt, result, hooks))
        return attempt.outcomes.succeeded(result)
    except StartRefused:
        raise
    except BaseException as error:
        return attempt.after(error)
