"""Deadlines: calls back what takes longer than it may.

A timer of the event loop for each attempt, with asyncio's scope around it, cost more than calling a
handler that does little, and nearly all were cancelled unused (see docs/adr/0015). What has the
same limit reaches it in the order in which it began: one timer for each limit is enough.
"""

import asyncio
from collections.abc import Callable
from typing import Self


class Deadline:
    """One callback on its way, until it comes or is dropped."""

    __slots__ = ("_queue", "callback", "when")

    def __init__(self, when: float, queue: "Queue", callback: Callable[[], None]) -> None:
        self.callback = callback
        self.move(when, queue)

    def move(self, when: float, queue: "Queue") -> None:
        """Wait for that time, in that queue."""
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


Queue = dict[Deadline, None]
"""What has the same limit, the earliest first."""


class Deadlines:
    """Calls back on the event loop in which it is used, once a limit is reached."""

    def __init__(self) -> None:
        self._queues: dict[float, Queue] = {}
        """For each limit what waits for it; a timer is set for that one."""

    def set(self, limit: float, callback: Callable[[], None]) -> Deadline:
        """Call back in `limit` seconds, unless it is dropped before."""
        return Deadline(*self._place(limit), callback)

    def put_off(self, deadline: Deadline, seconds: float) -> None:
        """Call back in so many seconds from now instead, though it was called back or dropped."""
        deadline.drop()
        deadline.move(*self._place(seconds))

    def _place(self, limit: float) -> tuple[float, Queue]:
        """When the limit is reached from now, and where to wait for it."""
        loop = asyncio.get_running_loop()
        when = loop.time() + limit
        queue = self._queues.get(limit)
        if queue is None:
            queue = self._queues[limit] = {}
            loop.call_at(when, self._look, limit)
        return when, queue

    def _look(self, limit: float) -> None:
        """Call back what has reached the limit, and come again for the next, if there is one."""
        loop = asyncio.get_running_loop()
        queue = self._queues[limit]
        while queue and (first := next(iter(queue))).when <= loop.time():
            first.drop()
            first.callback()
        if queue:
            loop.call_at(next(iter(queue)).when, self._look, limit)
        else:
            del self._queues[limit]
