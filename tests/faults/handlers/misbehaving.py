"""Handlers that no listener should have to bear."""

import asyncio
import ctypes
import os
import signal
import time

from tests.processes import report

from ._recording import recorded


async def kill_listener(way: str) -> None:
    """End the whole process."""
    with recorded():
        report("dying")
        _end(way)


async def kill_first_listener(way: str) -> None:
    """End the whole process that runs it first; after that, do the work."""
    with recorded() as task:
        if not task.lapses:
            report("dying")
            _end(way)


async def return_and_fall() -> None:
    """Do the work; the process that runs it first ends before it can record that."""
    with recorded() as task:
        pass
    if not task.lapses:
        report("dying")
        asyncio.get_running_loop().call_soon(_end, "kill")


async def block_loop(seconds: float) -> None:
    """Keep the event loop from doing anything else for so long."""
    with recorded():
        report("running")
        time.sleep(seconds)  # noqa: ASYNC251 - the very mistake that the test is about


def _end(way: str) -> None:
    match way:
        case "exit":
            os._exit(0)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
