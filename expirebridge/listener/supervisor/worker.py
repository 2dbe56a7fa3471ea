"""A worker: one of several listeners with the same parent, as the parent sees it."""

import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

from expirebridge.listener.parent import ENDS_WITHIN, VARIABLE
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a worker that died young is restarted: twice as long each time, up to a limit."""
LIVED = 5.0
"""Seconds for which a worker must have been ready not to have died young."""


class Worker:
    """One of the listeners: its process, or when the next one is to start."""

    def __init__(self, number: int, selector: selectors.BaseSelector) -> None:
        self.number = number
        self._selector = selector
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._ready_at: float | None = None
        self._died_young = 0
        """The number of processes in a row that did."""
        self.was_ready = False
        """True if any process of it was ready."""
        self.started_at = 0.0
        self.starts_at: float | None = None
        """The start time of its next process, if that is known."""
        self.killed_at: float | None = None
        """The time at which its process is killed, if it was asked to stop."""
        self._is_suspended = False
        """True if its process, and each that follows, is to claim nothing."""
        self.code = 0
        """The end of its last process: the exit code, or 128 plus the number of a signal."""

    @property
    def is_alive(self) -> bool:
        """True if it has a process."""
        return self._process is not None

    @property
    def is_ready(self) -> bool:
        """True if its process receives doorbells, and was not asked to stop."""
        return self._ready_at is not None and self.killed_at is None

    def start(self) -> None:
        """Start a process; if the system refuses, try again after a pause."""
        self.starts_at, self.started_at = None, time.monotonic()
        channel, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = self._start(theirs.fileno())
            except OSError as error:
                channel.close()
                self._wait_longer()
                logger.warning(
                    "worker %d cannot be started: %s", self.number, error,
                    extra=event("worker not started", worker=self.number, error=str(error)),
                )  # fmt: skip
                return
        self._channel = channel
        self._selector.register(channel, selectors.EVENT_READ, self)
        logger.info(
            "worker %d starts as process %d", self.number, self._process.pid,
            extra=event("worker started", worker=self.number, pid=self._process.pid),
        )  # fmt: skip

    def _start(self, descriptor: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - as this process was started
            [sys.executable, *sys.orig_argv[1:]],
            stdin=subprocess.DEVNULL,
            pass_fds=[descriptor],
            # A group of its own: a terminal sends Ctrl-C to the parent only, which passes it on.
            process_group=0,
            env=os.environ | {VARIABLE: f"{self.number}:{descriptor}"},
        )

    def hear(self) -> None:
        """Take what its process reports: that it is ready. A closed socket reports nothing more."""
        if self._channel is None or not self._channel.recv(1):
            self._close_channel()
        elif self._ready_at is None:
            self._ready_at, self.was_ready = time.monotonic(), True
            logger.info(
                "worker %d is ready", self.number,
                extra=event("worker ready", worker=self.number),
            )  # fmt: skip
            if self._is_suspended:
                self.signal(signal.SIGTSTP)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if it has one."""
        if self._process is not None:
            self._process.send_signal(number)

    def suspend(self, suspended: bool) -> None:
        """Have its process claim nothing, now and when the next ones are ready; or claim again.

        A process that does not take signals yet would be stopped by the system.
        """
        self._is_suspended = suspended
        if self._ready_at is not None:
            self.signal(signal.SIGTSTP if suspended else signal.SIGCONT)

    def stop(self, *, within: float) -> None:
        """Ask its process to stop; it is killed if it takes longer than so many seconds."""
        self.killed_at = time.monotonic() + within
        self.signal(signal.SIGTERM)

    def kill_if_late(self) -> None:
        """Kill its process if it was asked to stop and should have ended by now."""
        if self.killed_at is not None and self.killed_at <= time.monotonic():
            self.killed_at = time.monotonic() + ENDS_WITHIN
            self.signal(signal.SIGKILL)
            logger.warning(
                "worker %d did not stop in time: killed", self.number,
                extra=event("worker killed", worker=self.number),
            )  # fmt: skip

    def has_ended(self) -> bool:
        """True if its process has ended since this was last asked. When the next one starts is
        decided then.
        """
        ended = self._process.poll() if self._process is not None else None
        if ended is None:
            return False
        was_asked, ready_at = self.killed_at is not None, self._ready_at
        # Before a listener takes over the signal, SIGTERM ends its process.
        self.code = 0 if was_asked and ended == -signal.SIGTERM else _exit_code(ended)
        self._process = self._ready_at = self.killed_at = None
        self._close_channel()
        if was_asked or (ready_at is not None and time.monotonic() - ready_at >= LIVED):
            self._died_young, self.starts_at = 0, time.monotonic()
        else:
            self._wait_longer()
        return True

    def retry_now(self) -> None:
        """Start its next process without a pause, if it waits for that."""
        self._died_young = 0
        if self.starts_at is not None:
            self.starts_at = time.monotonic()

    def _wait_longer(self) -> None:
        pause = min(FIRST_PAUSE * 2**self._died_young, LONGEST_PAUSE)
        # No further than the longest pause: the power of a large number is no float.
        self._died_young += pause < LONGEST_PAUSE
        self.starts_at = time.monotonic() + pause

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._selector.unregister(self._channel)
            self._channel.close()
            self._channel = None


def _exit_code(ended: int) -> int:
    return 128 - ended if ended < 0 else ended
