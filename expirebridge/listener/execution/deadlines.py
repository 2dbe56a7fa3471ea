"""Deadlines: calls back what takes longer than it may.

A timer of the event loop for each attempt, with asyncio's scope around it, cost more than calling a
handler that does little, and nearly all were cancelled unused (see docs/internals/performance.md).
What has the same limit reaches it in the order in which it began: one timer for each limit is
enough.
"""

import asyncio
from collections.abc import Callable
from typing import Self

Callback = Callable[[], float | None]
"""What is called at a limit. If it returns seconds, it is called again after them."""


class Deadline:
    """One callback on its way, until it comes or is dropped."""

    __slots__ = ("_queue", "callback", "when")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    def join(self, queue: "dict[Deadline, None]", when: float) -> None:
        """Wait in this queue, until then."""
        self.when = when
        self._queue = queue
        queue[self] = None

    def drop(self) -> None:
        """Do not call back; nothing happens if that was done already."""
        self._queue.pop(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.drop()


class Deadlines:
    """Calls back on the event loop in which it is used, once a limit is reached."""

    def __init__(self) -> None:
        self._queues: dict[float, dict[Deadline, None]] = {}
        """For each limit what waits for it, the earliest first; a timer is set for that one."""

    def set(self, limit: float, callback: Callback) -> Deadline:
        """Call back in `limit` seconds, unless it is dropped before."""
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
        """Call back what has reached the limit, and come again for the next, if there is one."""
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
