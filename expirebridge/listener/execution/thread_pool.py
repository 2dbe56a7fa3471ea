"""Threads: where plain functions are called, so that they do not hold up the event loop.

Python's own pool wakes a thread for each call. Of a hundred calls that are over at once the first
thread could have made them all, and waking the others costs far more than the calls (see
docs/adr/0008).
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from expirebridge.listener.execution.switching import Switching

Call = tuple[Callable[[], Any], asyncio.Future[Any]]


class Threads:
    """Makes calls side by side, in at most `most` threads, which are started when they are needed.

    A thread that takes a call rouses one more if others wait, before it makes its own: so a call
    that blocks holds up none. One that ends soon is followed by the next in the same thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.switching = Switching()
        self._count = 0
        self._idle = 0
        self._roused = False
        """Whether a thread is on its way to the calls that wait."""
        self._waiting: deque[Call] = deque()
        self._returned: list[tuple[asyncio.Future[Any], Any]] = []
        """Results that the event loop has not taken yet."""
        self._closed = False
        self._lock = threading.Lock()
        self._alarm: SimpleQueue[None] = SimpleQueue()

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a function that raises nothing; the future has what it returns."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._waiting.append((function, future))
            self._rouse()
        self.switching.look(loop, self.is_busy)
        return future

    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._idle < self._count

    def close(self) -> None:
        """Make no more calls. Threads that are in one end after it, or with the process."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for _ in range(self._idle):
                self._alarm.put(None)

    def _rouse(self) -> None:
        """See that a thread comes for what waits, unless one is on its way, or all are in calls."""
        if self._roused:
            return
        if self._idle:
            self._idle -= 1
            self._alarm.put(None)
        elif self._count == self._most or not self._start():
            return
        self._roused = True

    def _start(self) -> bool:
        """Start one more thread. Where there is no room for it, those that are there go on."""
        try:
            threading.Thread(target=self._run, name="expirebridge-handler", daemon=True).start()
        except RuntimeError:
            if not self._count:
                raise
            return False
        self._count += 1
        return True

    def _run(self) -> None:
        self.switching.include(threading.get_ident())
        while True:
            with self._lock:
                self._roused = False
            while taken := self._take():
                function, future = taken
                self._return(future, function())
                del taken, function, future  # nothing is held on to while the thread waits
            if self._closed:
                return
            self._alarm.get()

    def _take(self) -> Call | None:
        with self._lock:
            if not self._waiting:
                self._idle += 1
                return None
            taken = self._waiting.popleft()
            if self._waiting:
                self._rouse()
            return taken

    def _return(self, future: asyncio.Future[Any], value: Any) -> None:
        with self._lock:
            self._returned.append((future, value))
            if len(self._returned) > 1:
                return  # the loop will take them together
        with contextlib.suppress(RuntimeError):  # the loop has ended
            future.get_loop().call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            returned, self._returned = self._returned, []
        for future, value in returned:
            if not future.done():
                future.set_result(value)
