"""What every contender's handler does: note that it began, work for a while, note that it ended.

A note is one line in the journal, `began` or `ended`, the task's number, the time in seconds since
1970 and the process. One write of one short line to a file opened for appending is never torn, so
any number of processes and threads share the file. Server, lab and contenders are on one machine
and have one clock.
"""

import asyncio
import os
import time

JOURNAL = os.open(os.environ["LAB_JOURNAL"], os.O_WRONLY | os.O_APPEND)
WORK = float(os.environ.get("LAB_WORK", "0"))
"""Seconds that each task takes; 0 for a task that does nothing."""
COMPUTES = os.environ.get("LAB_COMPUTES") == "1"
"""Whether a plain handler computes for that long; otherwise it sleeps."""


async def handle(number: int) -> None:
    """The body of an async handler."""
    _note("began", number)
    if WORK:
        await asyncio.sleep(WORK)
    _note("ended", number)


def handle_plain(number: int) -> None:
    """The body of a plain handler."""
    _note("began", number)
    if COMPUTES:
        _compute(WORK)
    elif WORK:
        time.sleep(WORK)
    _note("ended", number)


def _compute(seconds: float) -> None:
    """Use so much of the processor's time, however long that takes beside others."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        for _ in range(1000):
            pass


def _note(what: str, number: int) -> None:
    now = time.time()
    os.write(JOURNAL, f"{what} {number} {now!r} {os.getpid()}\n".encode())
