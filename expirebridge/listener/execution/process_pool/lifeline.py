"""The lifeline: ends a process for handlers when its listener is gone, however that ended."""

import fcntl
import os
import signal
import sys
import threading


def hold_on_to(lifeline: int) -> None:
    """From now on, kill this process, and its group, when the other end of the pipe is closed.

    On Linux the system does that at once, whatever code runs here: it signals a pipe's end as it
    signals input, and sends a signal of the reader's choice. Elsewhere a thread does it, which
    needs the interpreter's lock.
    """
    os.set_inheritable(lifeline, False)
    if sys.platform == "linux":
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
        try:
            os.read(lifeline, 1)
        except BlockingIOError:
            return
        _end()  # it was closed before the system could signal that
    else:
        threading.Thread(target=_wait, args=(lifeline,), daemon=True).start()


def _wait(lifeline: int) -> None:
    os.read(lifeline, 1)
    _end()


def _end() -> None:
    os.killpg(0, signal.SIGKILL)
