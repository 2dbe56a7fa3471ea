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

    def __init__(
        self, when: float, callback: Callable[[], None], queue: "dict[Deadline, None]"
    ) -> None:
        self.when = when
        self.callback = callback
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

    def set(self, limit: float, callback: Callable[[], None]) -> Deadline:
        """Call back in `limit` seconds, unless it is dropped before."""
        loop = asyncio.get_running_loop()
        when = loop.time() + limit
        queue = self._queues.get(limit)
        if queue is None:
            queue = self._queues[limit] = {}
            loop.call_at(when, self._look, limit)
        return Deadline(when, callback, queue)

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
