"""What every contender's handler does: note that it began, work for a while, note that it ended.

A note is one line in the journal, `began` or `ended`, the task's number, the time in seconds since
1970 and the process. One write of one short line to a file opened for appending is never torn, so
any number of processes and threads share the file. Server, lab and contenders are on one machine
and have one clock.
"""

import asyncio
import os
import time

from benchmarks.kit.computing import compute

JOURNAL = os.open(os.environ["LAB_JOURNAL"], os.O_WRONLY | os.O_APPEND)
WORK = float(os.environ.get("LAB_WORK", "0"))
"""Seconds that each task takes; 0 for a task that does nothing."""
LOOPS = int(os.environ.get("LAB_LOOPS", "0"))
"""How often a plain handler goes round a loop instead; 0: it sleeps."""


async def handle(number: int) -> None:
    """The body of an async handler."""
    _note("began", number)
    if WORK:
        await asyncio.sleep(WORK)
    _note("ended", number)


def handle_plain(number: int) -> None:
    """The body of a plain handler."""
    _note("began", number)
    if LOOPS:
        compute(LOOPS)
    elif WORK:
        time.sleep(WORK)
    _note("ended", number)


def _note(what: str, number: int) -> None:
    now = time.time()
    os.write(JOURNAL, f"{what} {number} {now!r} {os.getpid()}\n".encode())
