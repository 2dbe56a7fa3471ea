"""Threads: where plain functions are called, so that they do not hold up the event loop.

Python's own pool wakes a thread for each call. Of a hundred calls that are over at once the first
thread could have made them all, and waking the others costs far more than the calls (see
docs/internals/performance.md).
"""

import asyncio
import contextlib
import contextvars
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

from expirebridge.listener.execution.exceptions import StartRefused
from expirebridge.listener.execution.fork_guard import ForkGuard
from expirebridge.listener.execution.outcome import CallResult

# Switching: for how long a thread that computes keeps Python's lock while others wait for it.
#
# A short time lets the event loop start tasks on time beside a function that computes. But
# whoever waits for the lock wakes at the end of each such time, and with 100 threads that compute
# this took four times as long as the computing (see docs/internals/performance.md). So the time
# grows with their number.

SHORTEST = 0.0002
LONGEST = 0.005
"""In seconds; the longest is Python's own."""
PER_THREAD = 0.00005
"""How much each thread that computes adds: so waking up costs a tenth of what is computed."""

_LOOK_EVERY = 0.1
_COMPUTES = 0.002
"""The part of a core from which on a thread counts as one that computes."""
_CONTENDED = 0.5
"""The part of a core that all of them use at least if they wait for each other."""


class SwitchInterval:
    """Sets the interval of the whole process by what its threads use of the processor.

    It does nothing until it takes charge, and looks only while a call is under way.
    """

    def __init__(self) -> None:
        self._charged = False
        self._used: dict[int, float] = {}
        """What each thread had used when that was last read, in seconds, by its clock."""
        self._looked: float | None = None
        """When that was; None: nobody looks, since no call is under way."""

    def take_charge(self) -> None:
        """Set the interval of this process from now on."""
        sys.setswitchinterval(SHORTEST)
        self._charged = hasattr(time, "pthread_getcpuclockid")  # macOS has none

    def include(self, thread: int) -> None:
        """Include a thread, which says so itself before its first call."""
        if self._charged:
            clock = time.pthread_getcpuclockid(thread)
            self._used[clock] = time.clock_gettime(clock)

    def look(self, loop: asyncio.AbstractEventLoop, is_busy: Callable[[], bool]) -> None:
        """Look from now on, until no call is under way."""
        if self._charged and self._looked is None:
            self._looked = time.monotonic()
            loop.call_later(_LOOK_EVERY, self._look, loop, is_busy)

    def _look(self, loop: asyncio.AbstractEventLoop, is_busy: Callable[[], bool]) -> None:
        now = time.monotonic()
        seconds, self._looked = now - (self._looked or now), now
        sys.setswitchinterval(interval_for([used / seconds for used in self._read()]))
        if is_busy():
            loop.call_later(_LOOK_EVERY, self._look, loop, is_busy)
        else:
            self._looked = None
            sys.setswitchinterval(SHORTEST)

    def _read(self) -> list[float]:
        """What each thread has used since the last time."""
        spans = []
        for clock, before in list(self._used.items()):
            try:
                used = time.clock_gettime(clock)
            except OSError:  # the thread has ended
                continue
            self._used[clock] = used
            spans.append(used - before)
        return spans


def interval_for(parts: Sequence[float]) -> float:
    """The interval in seconds, when the threads use these parts of a core."""
    if sum(parts) < _CONTENDED:
        return SHORTEST
    computing = sum(part >= _COMPUTES for part in parts)
    return min(max(SHORTEST, PER_THREAD * computing), LONGEST)


Call = tuple[Callable[[], Any], asyncio.Future[Any]]


class ThreadPool:
    """Makes calls side by side, in at most `most` threads, which are started when they are needed.

    A thread that takes a call rouses one more if others wait, before it makes its own: so a call
    that blocks holds up none. One that ends soon is followed by the next in the same thread.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.switching = SwitchInterval()
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


# The call of a plain function in one of these threads.


class Startable(Protocol):
    """An attempt as the call of its handler uses it."""

    answer: CallResult | None

    def begin(self) -> None:
        """Begin right before the call. Raises StartRefused."""
        ...


class ThreadCall:
    """Calls a handler, if its attempt may still begin when a thread comes for it.

    The attempt begins in that thread, right before the call: it may have waited for a thread, or
    for the lock that threads which compute share, and its process may have stood still meanwhile.
    So its time counts from then, too.
    """

    __slots__ = ("_attempt", "_context", "_handler")

    def __init__(self, handler: Callable[[], Any], attempt: Startable) -> None:
        self._handler = handler
        self._attempt = attempt
        self._context = contextvars.copy_context()

    def __call__(self) -> CallResult:
        """Make the call; the attempt has the answer, too."""
        try:
            self._attempt.begin()
        except StartRefused as reason:
            return CallResult(None, reason, 0.0)
        began = time.perf_counter()
        value, error = self._call()
        self._attempt.answer = answer = CallResult(value, error, time.perf_counter() - began)
        return answer

    def _call(self) -> tuple[Any, BaseException | None]:
        """What the handler returned or raised."""
        try:
            with ForkGuard():
                return self._context.run(self._handler), None
        except StopIteration as error:
            # Raised further, it would end the coroutine above instead of reaching it as a value.
            wrapped = RuntimeError(f"the handler raised {type(error).__name__}")
            wrapped.__cause__ = error
            return None, wrapped
        except BaseException as error:
            return None, error
