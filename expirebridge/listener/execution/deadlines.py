"""Deadlines: one event loop timer for all calls with the same timeout.

`asyncio.timeout` for each attempt cost more than calling a small handler, and nearly all of its
timers were cancelled unused (see docs/internals/performance.md). Calls with the same timeout reach
it in the order in which they began, so one timer for each timeout is enough.
"""

import asyncio
from collections.abc import Callable
from typing import Self

Callback = Callable[[], float | None]
"""Called at a timeout. If it returns seconds, it is called again after them."""


class Deadline:
    """A callback that is scheduled, until it is called or dropped."""

    __slots__ = ("_queue", "callback", "when")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    def join(self, queue: "dict[Deadline, None]", when: float) -> None:
        """Join this queue, due at `when` (the event loop's clock)."""
        self.when = when
        self._queue = queue
        queue[self] = None

    def drop(self) -> None:
        """Cancel the callback; without effect if it was called."""
        self._queue.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()


class Deadlines:
    """Queues of callbacks, one for each timeout, on the event loop that uses them."""

    def __init__(self) -> None:
        self._queues: dict[float, dict[Deadline, None]] = {}
        """Callbacks by timeout, the earliest first, for which a timer is set."""

    def set(self, limit: float, callback: Callback) -> Deadline:
        """Call back in `limit` seconds, unless the deadline is dropped before."""
        deadline = Deadline(callback)
        self._put(deadline, limit)
        return deadline

    def _put(self, deadline: Deadline, limit: float) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + limit
        queue = self._queues.get(limit)
        if queue is None:
            queue = self._queues[limit] = {}
            loop.call_at(when, self._look, limit)
        deadline.join(queue, when)

    def _look(self, limit: float) -> None:
        """Call back what is due, and set the timer for the next, if there is one."""
        loop = asyncio.get_running_loop()
        queue = self._queues[limit]
        while queue and (first := next(iter(queue))).when <= loop.time():
            first.drop()
            left = first.callback()
            if left is not None:
                self._put(first, left)
        if queue:
            loop.call_at(next(iter(queue)).when, self._look, limit)
        else:
            del self._queues[limit]
