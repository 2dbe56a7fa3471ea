"""The listener's side of a process that calls handlers, one at a time."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextvars import Context
from pathlib import Path
from typing import Any

from expirebridge.hooks import ProcessEnd
from expirebridge.listener.execution.exceptions import ProcessDied, ProcessNotStarted
from expirebridge.listener.execution.process_pool.protocol import (
    Begun,
    CallFrame,
    Frames,
    Logged,
    NotReady,
    Ready,
    Reply,
    Setup,
    encode,
)
from expirebridge.task.task import running_task

_START = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from expirebridge.listener.execution.process_pool.child_main import main; main()"
)
"""A new interpreter finds modules where this one does, whatever added to its path."""
_READ = 2**16
_LINGER = 1.0
"""Seconds that a process may run on after it closed its channel."""
_GROUP_ENDS_WITHIN, _LOOK_EVERY = 1.0, 0.002
"""Seconds in which the rest of its process group must have ended, and between two checks."""


class Process:
    """A new interpreter in its own process group, which ends with it.

    A thread starts it and waits for its end; the rest is done on the event loop. A socket pair
    carries the frames. It ends when the listener's end of a pipe, which carries no data, is closed:
    the system does that when the listener ends, for whatever reason.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = Context()
        """The context in which its log is written; not that of the attempt that started it."""
        self._channel, self._theirs = socket.socketpair()
        self._lifeline_end, self._lifeline = os.pipe()
        self._channel.setblocking(False)
        self._frames = Frames()
        self._unsent = bytearray()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._answer: asyncio.Future[Reply] | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done once it and its process group have ended."""
        self.end: ProcessEnd | None = None
        """The reason of its end, if that was requested, or is known."""
        self.has_begun = False
        """True if the handler of the last call was called."""
        self._reason = ""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        """Set as long as it can be killed."""
        self._is_killed = False
        self._thread = threading.Thread(target=self._live, name="expirebridge-process", daemon=True)

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        process = self._process
        return process.pid if process is not None else None

    @property
    def is_usable(self) -> bool:
        """True if it can take a call."""
        return self.end is None and not self.ended.done()

    async def start(self, setup: Setup) -> None:
        """Start it, and wait until it has loaded the handlers. Raises ProcessNotStarted."""
        self._context.run(self._loop.add_reader, self._channel, self._read)
        self._send(encode(setup))
        try:
            self._thread.start()
        except RuntimeError as error:  # there are too many threads
            self._theirs.close()
            os.close(self._lifeline_end)
            self._notice_end(OSError(str(error)))
        await self._started

    async def call(self, call: CallFrame) -> Reply:
        """Call a handler in it. Raises ProcessDied if it ends before its reply."""
        self._context.run(running_task.set, call.task)
        self.has_begun = False
        self._answer = self._loop.create_future()
        self._send(encode(call))
        return await self._answer

    def dismiss(self, end: ProcessEnd) -> None:
        """Let it end its lifespans and exit, for this reason; it must not be in a call."""
        if self.is_usable:
            self.end = end
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_WR)

    def kill(self, end: ProcessEnd, reason: str = "") -> None:
        """Kill it with its process group, for this reason."""
        if not self.ended.done():
            self.end = self.end or end
            self._reason = self._reason or reason
            with self._lock:
                self._is_killed = True
                self._kill_group()

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, at most so many seconds; not on the event loop."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    # In its thread

    def _live(self) -> None:
        """Start it, wait for its end, and report it to the event loop."""
        code: int | OSError
        try:
            code = self._run()
        except OSError as error:
            code = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._notice_end, code)

    def _run(self) -> int:
        with self._theirs:
            try:
                process = self._spawn()
            finally:
                os.close(self._lifeline_end)
        with self._lock:
            self._process = process
            if self._is_killed:
                self._kill_group()
        code = process.wait()
        with self._lock:
            self._process = None
        _end_group(process.pid)
        return code

    def _spawn(self) -> "subprocess.Popen[bytes]":
        descriptors = [self._theirs.fileno(), self._lifeline_end]
        return subprocess.Popen(  # noqa: S603 - this interpreter
            [
                sys.executable, *_interpreter_flags(), "-P", "-c", _START,
                *map(str, descriptors), *(each or str(Path.cwd()) for each in sys.path),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            process_group=0,
        )  # fmt: skip

    def _kill_group(self) -> None:
        """Kill it with its process group; the caller holds the lock."""
        if self._process is not None:
            _kill_group(self._process.pid)

    # Messages

    def _send(self, data: bytes) -> None:
        self._unsent += data
        self._flush()

    def _flush(self) -> None:
        """Send as much as the channel takes, and the rest when it is writable."""
        try:
            sent = self._channel.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError:  # it has ended, which its thread reports
            sent = len(self._unsent)
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(self._channel, self._flush)
        else:
            self._loop.remove_writer(self._channel)

    def _read(self) -> bool:
        """Read what has arrived; True if there may be more."""
        try:
            data = self._channel.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._channel)
            # It ends now, unless a handler closed the channel.
            self._loop.call_later(_LINGER, self.kill, ProcessEnd.DIED)
            return False
        try:
            for frame in self._frames.feed(data):
                self._take(frame)
        except Exception:  # a handler wrote into the channel
            self.kill(ProcessEnd.DIED, "its process sent what cannot be read")
            return False
        return True

    def _take(self, frame: Any) -> None:
        match frame:
            case Ready():
                if not self._started.done():
                    self._started.set_result(None)
            case NotReady(reason=reason):
                self._reason = reason
            case Begun():
                self.has_begun = True
            case Reply():
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(frame)
            case Logged(record=record, is_of_task=is_of_task):
                log = self._context.copy().run if is_of_task else Context().run
                log(_write, record)

    def _notice_end(self, code: int | OSError) -> None:
        """Read its last frames, close its channel, and fail what waits for it."""
        while self._read():
            pass
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()
        os.close(self._lifeline)
        self.end = self.end or ProcessEnd.DIED
        reason = self._reason or _reason(code)
        if not self._started.done():
            self._started.set_exception(ProcessNotStarted(reason))
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ProcessDied(reason))
        self.ended.set_result(None)


def _interpreter_flags() -> list[str]:
    """The options with which this interpreter was started, such as -O or -X dev."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def _kill_group(leader: int) -> bool:
    """Kill the rest of a process group; False if nothing was left."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_group(leader: int) -> None:
    """Kill the rest of a group whose leader has ended, and wait until it is gone.

    A killed process ends when the system next gives it a core. A zombie that no parent reaps, as
    where the listener is the first process of a container, stays in the group for ever.
    """
    until = time.monotonic() + _GROUP_ENDS_WITHIN
    while _kill_group(leader) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY)


def _write(record: Any) -> None:
    """Write a log record of the process into the log of this one."""
    made = logging.makeLogRecord(record)
    logger = logging.getLogger(made.name)
    # A fault of this process's logging must not end its event loop.
    with contextlib.suppress(Exception):
        if logger.isEnabledFor(made.levelno):
            logger.handle(made)


def _reason(code: int | OSError) -> str:
    """The reason of a process's end, in words."""
    if isinstance(code, OSError):
        return f"its process cannot be started: {code}"
    if code >= 0:
        return f"its process exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ": by somebody, or by the system for want of memory" if -code == signal.SIGKILL else ""
    return f"its process was killed by {name}{hint}"
