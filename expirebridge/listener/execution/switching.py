"""Switching: for how long a thread that computes keeps Python's lock while others wait for it.

A short time lets the event loop start tasks on time beside a function that computes. But whoever
waits for the lock wakes at the end of each such time, and with 100 threads that compute this took
four times as long as the computing (see docs/adr/0016). So the time grows with their number.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence

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


class Switching:
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
