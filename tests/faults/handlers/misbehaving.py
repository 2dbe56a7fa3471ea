"""Handlers that no listener should have to bear."""

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

from tests.kit.processes import report

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


def never_return() -> None:
    """Hold the thread for ever, in the first attempt."""
    with recorded() as task:
        if task.attempt == 1:
            report("dying")
            threading.Event().wait()


def never_return_at_all() -> None:
    """Hold the thread for ever, in every attempt."""
    with recorded():
        report("dying")
        threading.Event().wait()


async def never_give_way() -> None:
    """Hold the event loop for ever, in the first attempt."""
    with recorded() as task:
        if task.attempt == 1:
            report("dying")
            threading.Event().wait()


async def ignore_cancellation() -> None:
    """Go on whatever is asked of it, in the first attempt."""
    with recorded() as task:
        if task.attempt == 1:
            report("dying")
        while task.attempt == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


async def wait_forever() -> None:
    """Wait for what never comes."""
    with recorded():
        await asyncio.Event().wait()


def fork_and_return() -> None:
    """Let a child return as its parent does."""
    child = os.fork()
    if child:
        _await_end_of(child)


async def fork_and_give_way() -> None:
    """Let a child go on to where the event loop would go on, too."""
    child = os.fork()
    if not child:
        await asyncio.sleep(0)
        return
    await asyncio.to_thread(_await_end_of, child)


async def fork_and_exit() -> None:
    """Let a child end as Python programs do."""
    child = os.fork()
    if not child:
        sys.exit(7)
    await asyncio.to_thread(_await_end_of, child, 7)


async def fork_and_terminate() -> None:
    """End a child by the signal that asks a listener to stop, as `Process.terminate` does."""
    child = os.fork()
    while not child:
        signal.pause()
    os.kill(child, signal.SIGTERM)
    await asyncio.to_thread(_await_end_of, child, -signal.SIGTERM)


def _await_end_of(child: int, code: int = 1) -> None:
    with recorded():
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == code


async def devour() -> None:
    """Take memory until there is no more of it."""
    taken = []
    with recorded():
        while True:
            taken.append(bytearray(16 * 2**20))


def _end(way: str) -> None:
    match way:
        case "exit":
            os._exit(0)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
