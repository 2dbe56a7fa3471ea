"""Our listener, with a look at its event loop every 5 ms: how late does it come?

    python -m benchmarks.kit.watched_listener URL TASKS

Twice a second a line goes into the file `lags` in the current folder: when, in seconds since 1970,
and the worst of that half second, in ms.
"""

import asyncio
import os
import sys
import time

from expirebridge.hooks import Event
from expirebridge.listener.listener import run
from expirebridge.settings import Settings

EVERY, A_LINE = 0.005, 0.5
LAGS = os.open("lags", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
watching: list[asyncio.Task[None]] = []


def begin(_: Event) -> None:
    """Watch the loop from the first event on."""
    if not watching:
        watching.append(asyncio.get_running_loop().create_task(watch()))


async def watch() -> None:
    """Write how late the loop is, for ever."""
    while True:
        worst, end = 0.0, time.monotonic() + A_LINE
        while (began := time.monotonic()) < end:
            await asyncio.sleep(EVERY)
            worst = max(worst, time.monotonic() - began - EVERY)
        os.write(LAGS, f"{time.time()} {worst * 1000}\n".encode())


if __name__ == "__main__":
    run(Settings.read(url=sys.argv[1], tasks=sys.argv[2]), hooks=[begin])
