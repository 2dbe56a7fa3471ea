"""Handlers that no listener should have to bear."""

import ctypes
import os
import signal

from tests.processes import report

from ._recording import recorded


async def kill_listener(way: str) -> None:
    """End the whole process."""
    with recorded():
        report("dying")
        match way:
            case "exit":
                os._exit(3)
            case "segfault":
                ctypes.string_at(0)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
