"""The caller: calls a handler under its timeout, on the event loop or in a thread."""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from expirebridge.current import running_task
from expirebridge.listener.runner.async_call import AsyncCall, TimedOut
from expirebridge.listener.runner.deadlines import Deadline, Deadlines
from expirebridge.listener.runner.overtime import Overtime
from expirebridge.listener.runner.plain_call import PlainCall
from expirebridge.listener.runner.threads import Threads
from expirebridge.listener.runner.unbegun import Unbegun

if TYPE_CHECKING:
    from expirebridge.listener.runner.attempt import Attempt


class Caller:
    """Calls handlers: the last step before them is that their attempts begin."""

    def __init__(self, threads: Threads, unbegun: Unbegun, overtime: Overtime) -> None:
        self._threads = threads
        self._unbegun = unbegun
        self._overtime = overtime
        self._deadlines = Deadlines()

    def call(self, attempt: "Attempt") -> Awaitable[Any]:
        """Call its handler; what is returned is awaited for what the handler returned.

        Both raise what the handler raises, TimedOut if it takes longer than its limit, and NotBegun
        if it must not be called here any more.
        """
        handler = attempt.handler
        if handler is None:
            raise LookupError(f"no handler for {attempt.task.func}")
        running_task.set(attempt.task)
        call = partial(handler.function, *attempt.task.args, **attempt.task.kwargs)
        if not handler.is_async:
            return self._call_in_thread(call, attempt)
        self._unbegun.begin(attempt)
        return AsyncCall(attempt, self._overtime).run(call(), attempt.limit, self._deadlines)

    async def _call_in_thread(self, handler: Callable[[], Any], attempt: "Attempt") -> Any:
        call = PlainCall(handler, attempt, self._unbegun)

        deadline: Deadline

        def look() -> None:
            nonlocal deadline
            left = call.left(attempt.limit)
            if left > 0:
                deadline = self._deadlines.set(left, look)
            elif call.took is None:
                self._overtime.notice(attempt)

        deadline = self._deadlines.set(attempt.limit, look)
        try:
            result, error = await self._threads.call(call)
        finally:
            deadline.drop()
        attempt.took = call.took or 0.0
        left = attempt.limit - attempt.took
        if left < 0:
            raise TimedOut
        if error is not None:
            raise error
        if not inspect.isawaitable(result):
            return result
        # A plain wrapper around an async function gives back its coroutine.
        return await AsyncCall(attempt, self._overtime).run(result, left, self._deadlines)
