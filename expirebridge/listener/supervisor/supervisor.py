"""The parent of several listeners: starts the workers, restarts those that die, and ends them all.

Each worker is an ordinary listener, in a new interpreter with the same command line. The parent
imports no handlers, and has neither an event loop nor threads. It waits: for a signal, for what a
worker reports on its socket, and until one is to be restarted or killed.
"""

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterable, Iterator

from expirebridge.errors import InvalidSetting
from expirebridge.listener.cores import usable_cores
from expirebridge.listener.parent import ENDS_WITHIN
from expirebridge.listener.supervisor.worker import Worker
from expirebridge.task.texts import event, plural

logger = logging.getLogger("expirebridge")

_STOP = {signal.SIGTERM, signal.SIGINT}
_PASSED_ON = {signal.SIGUSR1, signal.SIGUSR2}
"""Signals that handlers' modules may use, as faulthandler does."""
_HEARD = (*_STOP, *_PASSED_ON, signal.SIGTSTP, signal.SIGCONT, signal.SIGHUP, signal.SIGCHLD)


class Supervisor:
    """Runs `count` listeners side by side; `grace` is that of each of them, in seconds.

    SIGTERM or SIGINT ends them all, the second one without their grace time. SIGHUP replaces them
    one by one: each starts only when the one before is ready, so that all but one are ready.
    SIGTSTP suspends them all, with those that start later, and SIGCONT resumes them.
    """

    def __init__(self, count: int, *, grace: float) -> None:
        self._selector = selectors.DefaultSelector()
        self._workers = [Worker(number, self._selector) for number in range(1, count + 1)]
        self._stops_within = grace + ENDS_WITHIN
        self._are_started = False
        """True if all have been started, which waits for the first to be ready."""
        self._is_stopping = False
        self._replaces_since: float | None = None
        """The time of SIGHUP, if some workers are older and are to be replaced."""
        self._has_terminal = _find_terminal()
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        """True if it ends when its terminal is closed: not under nohup."""

    def run(self) -> int:
        """Run them until a signal asks for the end; return the worst of their exit codes.

        It is also the end if a worker that was never ready exits with an error. A single listener
        would have ended in the same way, and restarting it fixes nothing.
        """
        with self._wakes_at_signals() as wakes:
            # The others follow when it is ready: so what is wrong with the settings, the handlers
            # or the server is reported once.
            self._workers[0].start()
            while not self._is_stopping or self._alive():
                self._take_signals(self._wait(wakes))
                self._take_ends()
                if not self._is_stopping:
                    self._start_due()
                    self._replace_next()
                for worker in self._workers:
                    worker.kill_if_late()
        return max(worker.code for worker in self._workers)

    def _alive(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.is_alive]

    # Waiting

    @contextlib.contextmanager
    def _wakes_at_signals(self) -> Iterator[socket.socket]:
        """A socket on which the number of each signal arrives, which ends the wait."""
        wakes, sends = socket.socketpair()
        with wakes, sends, self._selector:
            wakes.setblocking(False)
            sends.setblocking(False)
            self._selector.register(wakes, selectors.EVENT_READ)
            signal.set_wakeup_fd(sends.fileno(), warn_on_full_buffer=False)
            before = {number: signal.signal(number, lambda *_: None) for number in _HEARD}
            try:
                yield wakes
            finally:
                signal.set_wakeup_fd(-1)
                for number, handler in before.items():
                    signal.signal(number, handler)

    def _wait(self, wakes: socket.socket) -> bytes:
        """Wait until there is something to do, and read the workers' messages; return signals."""
        moments = [each.killed_at for each in self._workers]
        if not self._is_stopping:
            moments += [each.starts_at for each in self._workers]
        known = [moment for moment in moments if moment is not None]
        pause = max(min(known) - time.monotonic(), 0) if known else None
        for key, _ in self._selector.select(pause):
            if key.data is not None:
                key.data.hear()
        try:
            return wakes.recv(1024)
        except BlockingIOError:
            return b""

    # Signals

    def _take_signals(self, numbers: Iterable[int]) -> None:
        for number in map(signal.Signals, numbers):
            if number in _STOP:
                self._stop()
            elif number is signal.SIGHUP:
                self._hang_up()
            elif number in {signal.SIGTSTP, signal.SIGCONT}:
                for worker in self._workers:
                    worker.suspend(number is signal.SIGTSTP)
            elif number in _PASSED_ON:
                for worker in self._workers:
                    worker.signal(number)

    def _hang_up(self) -> None:
        """SIGHUP: a request for new workers, or the terminal where this started was closed."""
        if not self._has_terminal or _find_terminal():
            self._replace()
        elif self._ends_with_terminal:
            self._stop()
        else:
            self._has_terminal = False

    def _stop(self) -> None:
        if self._is_stopping:
            for worker in self._workers:
                worker.signal(signal.SIGINT)
            return
        self._is_stopping = True
        for worker in self._alive():
            worker.stop(within=self._stops_within)

    def _replace(self) -> None:
        if self._is_stopping:
            return
        logger.info(
            "replacing %s one by one",
            plural(len(self._workers), "worker", "workers"),
            extra=event("replacing", workers=len(self._workers)),
        )  # fmt: skip
        self._replaces_since = time.monotonic()
        for worker in self._workers:
            worker.retry_now()

    # Consequences of signals and of ended workers

    def _take_ends(self) -> None:
        for worker in self._workers:
            was_asked = worker.killed_at is not None
            if worker.has_ended() and not self._is_stopping and (worker.code or not was_asked):
                self._take_end(worker)

    def _take_end(self, worker: Worker) -> None:
        """A worker ended without a request, or with an error."""
        if not worker.was_ready and 0 < worker.code < 128:
            self._stop()
            return
        pause = max((worker.starts_at or 0) - time.monotonic(), 0)
        logger.warning(
            "worker %d ended with code %d; it is restarted in %.1f s",
            worker.number, worker.code, pause,
            extra=event(
                "worker ended", worker=worker.number, code=worker.code, seconds=round(pause, 1)
            ),
        )  # fmt: skip

    def _start_due(self) -> None:
        if self._workers[0].was_ready and not self._are_started:
            self._are_started = True
            for worker in self._workers[1:]:
                worker.start()
        for worker in self._workers:
            if worker.starts_at is not None and worker.starts_at <= time.monotonic():
                worker.start()

    def _replace_next(self) -> None:
        """Stop the next worker that SIGHUP replaces: one that is not ready, or else one of N."""
        if self._replaces_since is None:
            return
        outdated = [each for each in self._alive() if each.started_at < self._replaces_since]
        if not outdated and all(worker.is_ready for worker in self._workers):
            self._replaces_since = None
            logger.info(
                "all workers are replaced", extra=event("replaced", workers=len(self._workers))
            )
        for worker in outdated:
            others_ready = all(each.is_ready for each in self._workers if each is not worker)
            if worker.killed_at is None and (others_ready or not worker.is_ready):
                worker.stop(within=self._stops_within)


def _find_terminal() -> bool:
    """True if this process has a terminal that can send it signals."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


# How many workers: a number, or one for each core that this process may use.

AUTO = "auto"
MOST = 256


def count_of(text: str) -> int:
    """Read the value of --workers: a number, or `auto` for one per core that this process may use.

    Raises InvalidSetting if it is neither, or not between 1 and 256.
    """
    if text == AUTO:
        return min(usable_cores(), MOST)
    if text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST:
        return int(text)
    raise InvalidSetting(f"--workers {text}: it must be a whole number from 1 to {MOST}, or {AUTO}")
