"""The parent of this process, if it is to end with it.

The parent of a worker is the process that started this listener, with others beside it. A socket
connects the two. A worker reports on it that it is ready, and sees on it that its parent is gone,
however that ended: the system closes the other end. (Linux could send a signal instead,
PR_SET_PDEATHSIG, but it does so when the thread ends that started the child, and can be too late.)

`listen --reload` starts its process through a library, which passes no socket on. Such a process
looks whether its parent is still there.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from typing import Self

VARIABLE = "EXPIREBRIDGE_WORKER"
"""The environment variable that makes a new process a worker: its number, a colon, and the file
descriptor of its socket."""
RELOADER = "EXPIREBRIDGE_RELOADER"
"""The environment variable of a process that `listen --reload` has started: the number of that
process."""
LOOKS_EVERY = 0.5
"""Seconds between looks whether that process is still there: it shares no socket with this one."""
READY = b"r"
ENDS_WITHIN = 15.0
"""Seconds after the grace time in which a worker that was asked to stop must have ended: what was
cancelled ends, outcomes are recorded, lifespans are closed. After that it is killed."""


class SupervisorLink:
    """The process that started this worker, number `number` of several, counted from 1."""

    def __init__(self, number: int, channel: socket.socket) -> None:
        self.number = number
        self._channel = channel

    @classmethod
    def of_this_process(cls) -> Self | None:
        """The parent, if this process is a worker; None if it is a listener by itself.

        Call it once. Processes that this one starts are no workers, and do not get the socket.
        """
        told = os.environ.pop(VARIABLE, None)
        if told is None:
            return None
        number, _, descriptor = told.partition(":")
        channel = socket.socket(fileno=int(descriptor))
        channel.set_inheritable(False)
        return cls(int(number), channel)

    def report_ready(self) -> None:
        """Report that this listener hears doorbells."""
        with contextlib.suppress(OSError):  # the parent is gone: the thread below ends this process
            self._channel.send(READY)

    def watch(self, *, grace: float) -> None:
        """From now on, stop this process when the parent is gone.

        It stops as it does at SIGTERM. If it has not ended `ENDS_WITHIN` after the grace time, it
        is killed. A thread does this, so that it works while modules are imported, and while a
        handler blocks the event loop.
        """
        threading.Thread(
            target=self._watch, args=(grace,), name="expirebridge-parent", daemon=True
        ).start()

    def _watch(self, grace: float) -> None:
        with contextlib.suppress(OSError):
            while self._channel.recv(1):
                pass
        _end_this_process(grace)


def watch_reloader(*, grace: float) -> None:
    """If `listen --reload` started this process, stop it, as a worker, when that is gone.

    Call it once, before anything else is started.
    """
    told = os.environ.pop(RELOADER, None)
    if told is not None:
        threading.Thread(
            target=_watch_reloader, args=(int(told), grace), name="expirebridge-reloader",
            daemon=True,
        ).start()  # fmt: skip


def _watch_reloader(number: int, grace: float) -> None:
    while os.getppid() == number:
        time.sleep(LOOKS_EVERY)
    _end_this_process(grace)


def _end_this_process(grace: float) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace + ENDS_WITHIN)
    os.kill(os.getpid(), signal.SIGKILL)
