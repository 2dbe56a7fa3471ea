"""The process pool of a listener: starts processes on demand, and replaces those that end."""

import asyncio
import logging
from collections import deque
from contextvars import Context
from dataclasses import replace
from pathlib import Path

from expirebridge.hooks import Hooks, ProcessEnd, ProcessEnded, ProcessStarted
from expirebridge.listener.cores import usable_cores
from expirebridge.listener.execution.exceptions import ProcessNotStarted, StartRefused
from expirebridge.listener.execution.process_pool.process import Process
from expirebridge.listener.execution.process_pool.protocol import Setup
from expirebridge.settings import Settings
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before the next start after one that failed: twice as long each time, up to a limit."""
READY_WITHIN = 120.0
"""Seconds in which a process must have loaded the handlers."""
ENDS_WITHIN = 5.0
"""Seconds in which a process that was dismissed must have ended its lifespans."""
STOPS = "its listener stopped"


class ProcessPool:
    """A pool of processes for handlers; each makes one call at a time.

    The first is started with the listener, so that the first task does not wait for it; the others,
    up to `settings.processes`, when all are in use. Callers wait in order. If none can be started,
    each failed start fails one caller.
    """

    def __init__(self, settings: Settings, hooks: Hooks) -> None:
        # Handlers may change the working directory.
        tasks, app_dir = settings.tasks, settings.app_dir
        self._settings = replace(
            settings,
            tasks=tasks.absolute() if isinstance(tasks, Path) else tasks,
            app_dir=app_dir and app_dir.absolute(),
        )
        self._hooks = hooks
        self.most = settings.processes or usable_cores()
        """The largest number of processes."""
        self._lives: dict[Process, asyncio.Task[None]] = {}
        """The processes that were started and have not ended, with the task that watches each."""
        self._starting = self._ready = 0
        self._idle: list[Process] = []
        self._waiting: deque[asyncio.Future[Process]] = deque()
        self._failures = 0
        """Consecutive failed starts."""
        self._pause: asyncio.TimerHandle | None = None
        self._is_stopping = False

    def open(self) -> None:
        """Start the first process."""
        self._start()

    async def take(self) -> Process:
        """Wait for a free process; return it with `give_back`.

        Raises ProcessNotStarted if none can be started, and StartRefused if the listener stops.
        """
        waits: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        self._waiting.append(waits)
        self._serve()
        try:
            return await waits
        except asyncio.CancelledError:
            if waits.done() and not waits.cancelled() and waits.exception() is None:
                self.give_back(waits.result())
            raise

    def give_back(self, process: Process) -> None:
        """Return a process to the pool, if it can still be used."""
        if process.is_usable:
            self._idle.append(process)
            self._serve()

    def stop(self) -> None:
        """Refuse all callers that wait: their tasks can run in other listeners."""
        self._is_stopping = True
        self._serve()

    async def close(self) -> None:
        """End all processes, and wait until they have ended."""
        self.stop()
        if self._pause is not None:
            self._pause.cancel()
        for process in list(self._lives):
            if process in self._idle:
                process.dismiss(ProcessEnd.STOPPED)
            else:
                process.kill(ProcessEnd.STOPPED)
        if self._lives:
            await asyncio.wait(self._lives.values(), timeout=ENDS_WITHIN)
        for process in list(self._lives):
            process.kill(ProcessEnd.STOPPED)
        if self._lives:
            await asyncio.wait(self._lives.values(), timeout=ENDS_WITHIN)

    def kill(self) -> None:
        """Kill all processes, and wait until they have ended, while the event loop is blocked."""
        processes = list(self._lives)
        for process in processes:
            process.kill(ProcessEnd.STOPPED)
        for process in processes:
            process.wait(ENDS_WITHIN)

    def _serve(self) -> None:
        """Hand free processes to the waiting callers, and start more for the others."""
        while self._waiting and (self._idle or self._is_stopping):
            waits = self._waiting.popleft()
            if waits.done():
                continue
            if self._is_stopping:
                waits.set_exception(StartRefused(STOPS))
            else:
                waits.set_result(self._idle.pop())
        if self._pause is None:
            # After a failure, one at a time: the next may fail, too.
            useful = min(len(self._waiting), 1) if self._failures else len(self._waiting)
            for _ in range(min(useful - self._starting, self.most - len(self._lives))):
                self._start()

    def _start(self) -> None:
        try:
            process = Process()
        except OSError as error:  # there are too many open files
            self._notice_failure(f"its process cannot be started: {error}")
            return
        self._starting += 1
        # In a context of its own: this may be called in an attempt's.
        life = asyncio.get_running_loop().create_task(self._live(process), context=Context())
        self._lives[process] = life

    # The life of a process

    async def _live(self, process: Process) -> None:
        """Start a process, add it to the pool, and report its end."""
        try:
            if await self._has_started(process):
                pid = process.pid
                self._ready += 1
                self.give_back(process)
                await process.ended
                self._ready -= 1
                self._notice_end(process, pid)
        finally:
            del self._lives[process]
            if process in self._idle:
                self._idle.remove(process)
            if not self._is_stopping:
                self._serve()

    async def _has_started(self, process: Process) -> bool:
        """Start a process; False if that failed."""
        setup = Setup(settings=self._settings, levels=_levels())
        limit = asyncio.get_running_loop().call_later(
            READY_WITHIN, process.kill, ProcessEnd.DIED,
            f"its process did not load the handlers within {READY_WITHIN:g} s",
        )  # fmt: skip
        try:
            await process.start(setup)
        except ProcessNotStarted as error:
            if not self._is_stopping:
                self._notice_failure(str(error))
            return False
        finally:
            limit.cancel()
            self._starting -= 1
        self._failures = 0
        pid = process.pid
        logger.info(
            "process %s is ready for handlers", pid, extra=event("process started", pid=pid)
        )
        self._hooks.emit(ProcessStarted())
        return True

    def _notice_end(self, process: Process, pid: int | None) -> None:
        end = process.end or ProcessEnd.DIED
        level = logging.INFO if end is ProcessEnd.STOPPED else logging.WARNING
        logger.log(
            level, "process %s for handlers has ended: %s", pid, end,
            extra=event("process ended", pid=pid, reason=end.value),
        )  # fmt: skip
        self._hooks.emit(ProcessEnded(end=end))

    def _notice_failure(self, reason: str) -> None:
        """Pause before the next start. If no process is left, fail the first caller that waits."""
        pause = min(FIRST_PAUSE * 2**self._failures, LONGEST_PAUSE)
        # Counted up to the longest pause: a larger power would overflow a float.
        self._failures += pause < LONGEST_PAUSE
        first_line, _, _ = reason.partition("\n")
        logger.error(
            "no process for handlers could be started; the next try is in %.1f s: %s",
            pause, reason,
            extra=event("process not started", reason=first_line, seconds=pause),
        )  # fmt: skip
        if self._pause is not None:
            self._pause.cancel()
        self._pause = asyncio.get_running_loop().call_later(pause, self._go_on)
        while self._waiting and not self._ready:
            waits = self._waiting.popleft()
            if not waits.done():
                waits.set_exception(ProcessNotStarted(reason))
                return

    def _go_on(self) -> None:
        self._pause = None
        self._serve()


def _levels() -> dict[str, int]:
    """The levels of all loggers of this process that have their own; the root's name is empty."""
    loggers = logging.root.manager.loggerDict.items()
    own = {name: one.level for name, one in loggers if isinstance(one, logging.Logger)}
    return {"": logging.root.level} | {name: level for name, level in own.items() if level}
