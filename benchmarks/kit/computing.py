"""A task that computes: so many rounds of a loop, which are the same work for every contender.

A time would not be: threads that wait for the interpreter's lock use the processor meanwhile.
"""

import functools
import time

_PROBE = 200_000


def compute(loops: int) -> None:
    """Go round a loop, in pure Python."""
    for _ in range(loops):
        pass


@functools.cache
def loops_of(seconds: float) -> int:
    """How many rounds take so much of a processor's time: the fastest of 20 trials counts."""
    return round(_PROBE * seconds / min(_trial() for _ in range(20)))


def _trial() -> float:
    began = time.thread_time()
    compute(_PROBE)
    return time.thread_time() - began
