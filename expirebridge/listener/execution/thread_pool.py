"""The thread pool: calls plain functions, so that they do not block the event loop.

Python's own pool wakes a thread for each call. One thread could make a hundred short calls, and
waking a hundred threads costs far more than the calls (see docs/internals/performance.md).
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

# The switch interval: how long a computing thread keeps the interpreter's lock while others wait.
#
# A short interval lets the event loop start tasks on time beside a function that computes. But
# every waiting thread wakes at the end of each interval, and with 100 computing threads this took
# four times as long as the computing (see docs/internals/performance.md). So it grows with their
# number.

SHORTEST = 0.0002
LONGEST = 0.005
"""In seconds; the longest is Python's own."""
PER_THREAD = 0.00005
"""Seconds that each computing thread adds: waking up then costs a tenth of the computing."""

_LOOK_EVERY = 0.1
_COMPUTES = 0.002
"""Share of a core from which a thread counts as computing."""
_CONTENDED = 0.5
"""Share of a core that all threads use together, at least, if they wait for each other."""


class SwitchInterval:
    """Adapts the switch interval of the process to the processor time of its threads.

    It does nothing before `take_charge`, and measures only while a call is under way.
    """

    def __init__(self) -> None:
        self._charged = False
        self._used: dict[int, float] = {}
        """Processor seconds of each thread at the last measurement, by its clock."""
        self._looked: float | None = None
        """Time of the last measurement (monotonic); None while no call is under way."""

    def take_charge(self) -> None:
        """Set the interval of this process from now on."""
        sys.setswitchinterval(SHORTEST)
        self._charged = hasattr(time, "pthread_getcpuclockid")  # macOS has none

    def include(self, thread: int) -> None:
        """Measure this thread, too; it calls this itself before its first call."""
        if self._charged:
            clock = time.pthread_getcpuclockid(thread)
            self._used[clock] = time.clock_gettime(clock)

    def look(self, loop: asyncio.AbstractEventLoop, is_busy: Callable[[], bool]) -> None:
        """Measure from now on, until no call is under way."""
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
        """Processor seconds of each thread since the last measurement."""
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
    """The interval in seconds for threads that use these shares of a core."""
    if sum(parts) < _CONTENDED:
        return SHORTEST
    computing = sum(part >= _COMPUTES for part in parts)
    return min(max(SHORTEST, PER_THREAD * computing), LONGEST)


Call = tuple[Callable[[], Any], asyncio.Future[Any]]


class ThreadPool:
    """A pool of at most `most` threads, which are started on demand.

    A thread that takes a call wakes one more if others wait, before it makes its own, so a call
    that blocks delays none. After a short call the same thread makes the next.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.switching = SwitchInterval()
        self._count = 0
        self._idle = 0
        self._roused = False
        """True if a thread was woken for the waiting calls, and has not taken one yet."""
        self._waiting: deque[Call] = deque()
        self._returned: list[tuple[asyncio.Future[Any], Any]] = []
        """Results that the event loop has not delivered yet."""
        self._closed = False
        self._lock = threading.Lock()
        self._alarm: SimpleQueue[None] = SimpleQueue()

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a function that raises nothing; the future has its result."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._lock:
            self._waiting.append((function, future))
            self._rouse()
        self.switching.look(loop, self.is_busy)
        return future

    def is_busy(self) -> bool:
        """True if a call is under way."""
        return self._idle < self._count

    def close(self) -> None:
        """Make no more calls. Threads in a call end after it, or with the process."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            for _ in range(self._idle):
                self._alarm.put(None)

    def _rouse(self) -> None:
        """Wake or start a thread for the waiting calls, unless one was woken, or all are busy."""
        if self._roused:
            return
        if self._idle:
            self._idle -= 1
            self._alarm.put(None)
        elif self._count == self._most or not self._start():
            return
        self._roused = True

    def _start(self) -> bool:
        """Start one more thread; False if the system has none left, and others make the calls."""
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
                del taken, function, future  # keep no reference while the thread waits
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
    """The call of a plain function, made if its attempt may still begin.

    The attempt begins in the thread, right before the call: before that it may have waited for a
    thread or for the interpreter's lock, and its process may have stood still. Its timeout starts
    then, too.
    """

    __slots__ = ("_attempt", "_context", "_handler")

    def __init__(self, handler: Callable[[], Any], attempt: Startable) -> None:
        self._handler = handler
        self._attempt = attempt
        self._context = contextvars.copy_context()

    def __call__(self) -> CallResult:
        """Make the call; the attempt gets the result, too."""
        try:
            self._attempt.begin()
        except StartRefused as reason:
            return CallResult(None, reason, 0.0)
        began = time.perf_counter()
        value, error = self._call()
        self._attempt.answer = answer = CallResult(value, error, time.perf_counter() - began)
        return answer

    def _call(self) -> tuple[Any, BaseException | None]:
        """The handler's result, and its error."""
        try:
            with ForkGuard():
                return self._context.run(self._handler), None
        except StopIteration as error:
            # Raised into the awaiting coroutine, StopIteration would end it.
            wrapped = RuntimeError(f"the handler raised {type(error).__name__}")
            wrapped.__cause__ = error
            return None, wrapped
        except BaseException as error:
            return None, error
