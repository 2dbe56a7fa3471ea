"""A process for handlers: loads them, and calls them for its listener, one at a time."""

import asyncio
import contextlib
import fcntl
import inspect
import logging
import os
import pickle
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import orjson

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Handler, Registry, Then, check_binding
from expirebridge.handlers.django_project import set_up_django
from expirebridge.hooks import Lifespan
from expirebridge.listener.execution import fork_guard
from expirebridge.listener.execution.exceptions import HELD_UP, StartRefused
from expirebridge.listener.execution.outcome import CallResult, shown_result
from expirebridge.listener.execution.process_pool.protocol import (
    LENGTH_SIZE,
    Begun,
    CallFrame,
    FromProcess,
    Logged,
    NotReady,
    Ready,
    Reply,
    Setup,
    encode,
    length_of,
    pack,
)
from expirebridge.listener.execution.thread_pool import ThreadCall
from expirebridge.listener.lifespans import entered
from expirebridge.settings import Settings
from expirebridge.task.task import Task, running_task
from expirebridge.task.texts import message_of

# The channel of a process for handlers to its listener.


class FrameChannel:
    """The connection to the listener, on which any thread may send frames.

    A process that a handler forks does not send: its frames would mix with those of this one.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.set_inheritable(False)
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def is_ours(self) -> bool:
        """True in the process that was started with it, False in one that a handler forked."""
        return os.getpid() == self._process

    def receive(self) -> Any:
        """Wait for the next frame; None if the listener closed the channel, or ended."""
        head = self._stream.read(LENGTH_SIZE)
        if len(head) < LENGTH_SIZE:
            return None
        return pickle.loads(self._stream.read(length_of(head)))  # noqa: S301 - from our listener

    def send(self, frame: FromProcess) -> None:
        """Send a frame; block while the channel is full."""
        if self.is_ours:
            encoded = encode(frame)
            with self._lock:
                self._connection.sendall(encoded)


# The parent watch: ends a process for handlers when its listener ends, for whatever reason.


def end_with_listener(lifeline: int) -> None:
    """From now on, kill this process group when the other end of the pipe is closed.

    On Linux the kernel does that at once, whatever code runs here: the end of a pipe counts as
    input, for which a process may request a signal of its choice. Elsewhere a thread does it, which
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


# Logging: the listener writes the records of its processes into its own log.

_LEFT_OUT = {"msg", "args", "exc_info"}
"""Attributes that are sent in another form: as the message, and the text of the traceback."""


def send_log(channel: FrameChannel, levels: Mapping[str, int]) -> None:
    """Send the log of this process to its listener, warnings included, with these levels."""
    root = logging.getLogger()
    # In the listener, what a framework has set up writes it.
    others = [one for one in root.handlers if not isinstance(one, logging.StreamHandler)]
    root.handlers[:] = [*others, SendLog(channel)]
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.captureWarnings(capture=True)


class SendLog(logging.Handler):
    """A log handler that sends records to the listener; forked processes use stderr."""

    def __init__(self, channel: FrameChannel) -> None:
        super().__init__()
        self._channel = channel
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        if not self._channel.is_ours:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            frame = Logged(
                record=self._plain(record), is_of_task=running_task.get(None) is not None
            )
            self._channel.send(frame)
        except Exception:
            self.handleError(record)

    def _plain(self, record: logging.LogRecord) -> dict[str, Any]:
        """The record's attributes, as values that unpickle without other code."""
        plain = {
            name: _plain(value) for name, value in vars(record).items() if name not in _LEFT_OUT
        }
        plain["msg"] = message_of(record)
        if record.exc_info and not record.exc_text:
            plain["exc_text"] = self._formatter.formatException(record.exc_info)
        return plain


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    try:
        return orjson.loads(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
    except Exception:
        return f"a {type(value).__name__} that JSON cannot hold"


logger = logging.getLogger("expirebridge")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)
"""Signals that a terminal or a supervisor may send to all processes of a service. The listener
handles them, and lets its handlers end."""


def main() -> None:
    """Serve the listener that started this process, until it closes the channel or ends."""
    channel_number, lifeline = map(int, sys.argv[1:3])
    del sys.argv[1:]
    end_with_listener(lifeline)
    channel = FrameChannel(socket.socket(fileno=channel_number))
    setup = channel.receive()
    if not isinstance(setup, Setup):
        return
    for number in SIGNALS:
        # Not SIG_IGN, which programs that handlers start would inherit.
        signal.signal(number, lambda *_: None)
    with fork_guard.signals_stay(*SIGNALS):
        try:
            _serve(channel, setup)
        except HandlersError as error:  # of a lifespan's end
            logger.error("%s", error, exc_info=error)  # noqa: TRY400


def _serve(channel: FrameChannel, setup: Setup) -> None:
    """Load the handlers, and call them until there are no more calls."""
    settings = setup.settings
    with ExitStack() as stack:
        try:
            set_up_django()
            send_log(channel, setup.levels)
            with _limited_memory(settings):
                registry = _load(settings)
                if registry.lifespans:
                    stack.enter_context(entered_apart(registry.lifespans))
        except Exception as error:
            reason = _limit_words(settings) if isinstance(error, MemoryError) else str(error)
            channel.send(NotReady(f"its process cannot start: {reason}"))
            sys.exit(1)
        channel.send(Ready())
        while isinstance(call := channel.receive(), CallFrame):
            channel.send(_answer(call, registry, channel, settings))


@contextmanager
def _limited_memory(settings: Settings) -> Iterator[None]:
    """Limit the private memory of handlers; files and libraries, which are shared, do not count.

    Results and errors are encoded without the limit: to run out of memory then would fail an
    attempt that has succeeded. (orjson ends the process where it gets none.)
    """
    if settings.process_memory is None:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = settings.process_memory
    resource.setrlimit(
        resource.RLIMIT_DATA, (limit if most == resource.RLIM_INFINITY else min(limit, most), most)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (before, most))


def _load(settings: Settings) -> Registry:
    """Load the handlers without warnings, which the listener has logged already."""
    logger.disabled = True
    try:
        return Registry.of(settings)
    finally:
        logger.disabled = False


class _RemoteAttempt:
    """The attempt in its process: checks the lease right before its handler is called."""

    def __init__(self, call: CallFrame, channel: FrameChannel) -> None:
        self.answer: CallResult | None = None
        self._call = call
        self._channel = channel

    def begin(self) -> None:
        """Report that the call begins. Raises StartRefused if the lease may have lapsed."""
        if time.monotonic() >= self._call.lease_end:
            raise StartRefused(HELD_UP)
        self._channel.send(Begun())


def _answer(
    call: CallFrame, registry: Registry, channel: FrameChannel, settings: Settings
) -> Reply:
    """Call the handler, and encode its result or error, and what it spent."""
    reply = _called(call, registry, channel, settings)
    spending = call.task.spending
    return reply if spending is None else replace(reply, spent=spending.spent)


def _called(
    call: CallFrame, registry: Registry, channel: FrameChannel, settings: Settings
) -> Reply:
    """Call the handler, and encode its result or error. Raises no error of a handler."""
    handler = registry.find(call.name)
    if handler is None:
        return Reply(is_missing=True)
    running_task.set(call.task)
    plain = ThreadCall(partial(_call, handler, call.task), _RemoteAttempt(call, channel))
    with _limited_memory(settings):
        result, error, took = plain()
    if isinstance(error, StartRefused):
        return Reply(not_begun=str(error))
    if isinstance(error, TypeError) and (misfit := _misfit(handler, call.task)):
        return Reply(misfit=misfit)
    if isinstance(result, Then):
        from expirebridge.listener.execution.follow_up import checked  # noqa: PLC0415 - as it is rare

        try:
            return Reply(then=checked(result, settings), took=took)
        except InvalidTask as invalid:
            error = invalid
    if error is None:
        try:
            return Reply(result=shown_result(result), took=took)
        except RuntimeError as undone:
            error = undone
    lacked_memory = isinstance(error, MemoryError)
    if lacked_memory and settings.process_memory is not None:
        error.add_note(_limit_words(settings))
    return Reply(raised=pack(error), took=took, lacked_memory=lacked_memory)


def _call(handler: Handler, task: Task) -> Any:
    result = handler.call(*task.args, **task.kwargs)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise RuntimeError(
            "it returned what must be awaited: with process=True, let asyncio.run await it"
        )
    return result


def _misfit(handler: Handler, task: Task) -> str:
    """The reason why the arguments do not fit the handler; empty if they do."""
    try:
        check_binding(handler.function, task.args, task.kwargs)
    except InvalidTask as error:
        return str(error)
    return ""


def _limit_words(settings: Settings) -> str:
    memory = (settings.process_memory or 0) / 2**20
    return f"its process reached its memory limit, {memory:,.0f} MiB"


# Lifespans of a process for handlers, on an event loop in a thread.


@contextlib.contextmanager
def entered_apart(lifespans: Sequence[Lifespan]) -> Iterator[None]:
    """Begin the lifespans, and end them after the block, on an event loop in a thread of its own.

    Their background tasks run on beside a handler, as in a listener. Raises HandlersError if one of
    them raises.
    """
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def live() -> None:
        async with entered(lifespans):
            over = asyncio.Event()
            begun.set_result((asyncio.get_running_loop(), over))
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(live())
            ended.set_result(None)
        except BaseException as error:
            (ended if begun.done() else begun).set_exception(error)

    threading.Thread(target=run, name="expirebridge-lifespans", daemon=True).start()
    loop, over = begun.result()
    yield
    loop.call_soon_threadsafe(over.set)
    ended.result()
