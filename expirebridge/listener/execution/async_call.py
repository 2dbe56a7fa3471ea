"""The call of an async handler, on the event loop, cancelled at its limit."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from expirebridge.listener.execution.deadlines import Deadlines
from expirebridge.listener.execution.fork_guard import GuardedAwaitable
from expirebridge.listener.execution.overtime import Overtime

if TYPE_CHECKING:
    from expirebridge.listener.execution.attempt import Attempt

CANCEL_PATIENCE = 1.0
"""Seconds after its timeout at which a handler that still runs is reported."""


class TimedOut(Exception):
    """The handler's time is over."""


class AsyncCall:
    """Awaits what a handler gave back."""

    __slots__ = ("_attempt", "_awaiting", "_is_late", "_overtime")

    def __init__(self, attempt: "Attempt", overtime: Overtime) -> None:
        self._attempt = attempt
        self._overtime = overtime
        self._awaiting: asyncio.Task[object] | None = None
        """The task of asyncio in which the handler is awaited, as long as it is."""
        self._is_late = False
        """Whether the handler is over its limit, or was when it ended."""

    async def run(self, result: Awaitable[Any], limit: float, deadlines: Deadlines) -> Any:
        """Await it for `limit` seconds at most. Raises TimedOut, and what the handler raises."""
        began = time.perf_counter()
        self._awaiting = asyncio.current_task()
        try:
            with deadlines.set(limit, self._cancel):
                value = await GuardedAwaitable(result)
        except (asyncio.CancelledError, TimeoutError):
            # Another may have cancelled it besides: its listener stops, or nobody wants it.
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
        """Cancel the handler at its limit, which it may ignore."""
        self._is_late = True
        if self._awaiting is not None:
            self._awaiting.cancel()
        asyncio.get_running_loop().call_later(CANCEL_PATIENCE, self._notice_ignored)

    def _notice_ignored(self) -> None:
        if self._awaiting is not None:
            self._overtime.notice(self._attempt)
