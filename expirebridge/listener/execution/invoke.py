"""The caller: calls a handler under its timeout: on the event loop, in a thread or a process."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from expirebridge.listener.execution.async_call import AsyncCall
from expirebridge.listener.execution.deadlines import Deadlines
from expirebridge.listener.execution.overtime import Overtime
from expirebridge.listener.execution.plain_call import PlainCall
from expirebridge.model.current import running_task

if TYPE_CHECKING:
    from expirebridge.listener.execution.attempt import Attempt
    from expirebridge.listener.execution.process_pool.pool import Processes


class Threads(Protocol):
    """Where plain functions are called."""

    def call(self, function: Callable[[], Any], /) -> asyncio.Future[Any]:
        """Call a function that raises nothing; the future has what it returns."""
        ...


class Caller:
    """Calls handlers: the last step before them is that their attempts begin."""

    def __init__(
        self, threads: Threads, overtime: Overtime, processes: "Processes | None" = None
    ) -> None:
        self._threads = threads
        self._overtime = overtime
        self._processes = processes
        """Where handlers with `process=True` are called; without it, in a thread."""
        self._deadlines = Deadlines()

    def call(self, attempt: "Attempt") -> Awaitable[Any]:
        """Call its handler; what is returned is awaited for what the handler returned.

        Both raise what the handler raises, TimedOut if it takes longer than its limit, and NotBegun
        if it must not be called here any more.
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
        return AsyncCall(attempt, self._overtime).run(call(), attempt.limit, self._deadlines)

    def _call_in_process(self, attempt: "Attempt", processes: "Processes") -> Awaitable[Any]:
        # Here, so that it is imported only where there are processes.
        from expirebridge.listener.execution.process_pool.call import ProcessCall  # noqa: PLC0415

        return ProcessCall(attempt, processes, self._deadlines).run()

    async def _call_in_thread(self, handler: Callable[[], Any], attempt: "Attempt") -> Any:
        call = PlainCall(handler, attempt)

        def look() -> float | None:
            """Put the deadline off while the call waits for a thread."""
            left = attempt.left()
            if left > 0:
                return left
            if attempt.answer is None:
                self._overtime.notice(attempt)
            return None

        with self._deadlines.set(attempt.limit, look):
            answer = await self._threads.call(call)
        attempt.answer = None  # an error's traceback leads back to the attempt
        attempt.took = answer.took
        result = answer.result(attempt.limit)
        if not inspect.isawaitable(result):
            return result
        # A plain wrapper around an async function gives back its coroutine.
        left = attempt.limit - attempt.took
        return await AsyncCall(attempt, self._overtime).run(result, left, self._deadlines)
