"""A process for handlers: loads them, and calls them one at a time, for its listener."""

import inspect
import logging
import resource
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Handler, Registry, check_binding
from expirebridge.listener.execution import fork_guard
from expirebridge.listener.execution.not_started import HELD_UP, NotBegun
from expirebridge.listener.execution.plain_call import Answer, PlainCall
from expirebridge.listener.execution.process_pool.channel import Channel
from expirebridge.listener.execution.process_pool.lifeline import hold_on_to
from expirebridge.listener.execution.process_pool.log import send_log
from expirebridge.listener.execution.process_pool.protocol import (
    Begun,
    Call,
    NotReady,
    Ready,
    Reply,
    Setup,
)
from expirebridge.listener.execution.process_pool.raised import pack
from expirebridge.listener.execution.shown import shown_result
from expirebridge.model.current import running_task
from expirebridge.model.task import Task
from expirebridge.settings import Settings

logger = logging.getLogger("expirebridge")

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP)
"""What a terminal or a supervisor may send to all processes of a service: they are for the
listener, which lets its handlers end."""


def main() -> None:
    """Serve the listener that started this process, until it closes the channel or is gone."""
    channel_number, lifeline = map(int, sys.argv[1:3])
    del sys.argv[1:]
    hold_on_to(lifeline)
    channel = Channel(socket.socket(fileno=channel_number))
    setup = channel.receive()
    if not isinstance(setup, Setup):
        return
    for number in SIGNALS:
        # Not SIG_IGN, which programs that handlers start would inherit.
        signal.signal(number, lambda *_: None)
    send_log(channel, setup.levels)
    with fork_guard.signals_stay(*SIGNALS):
        try:
            _serve(channel, setup.settings)
        except HandlersError as error:  # of a lifespan's end
            logger.error("%s", error, exc_info=error)  # noqa: TRY400


def _serve(channel: Channel, settings: Settings) -> None:
    """Load the handlers, and call them until there are no more calls."""
    with ExitStack() as stack:
        try:
            with _limited_memory(settings):
                registry = _load(settings)
                if registry.lifespans:
                    # Here, so that asyncio is imported only where it is needed: that takes a while.
                    from expirebridge.listener.execution.process_pool.lifespans import (  # noqa: PLC0415
                        entered_apart,
                    )

                    stack.enter_context(entered_apart(registry.lifespans))
        except Exception as error:
            reason = _limit_words(settings) if isinstance(error, MemoryError) else str(error)
            channel.send(NotReady(f"its process cannot start: {reason}"))
            sys.exit(1)
        channel.send(Ready())
        while isinstance(call := channel.receive(), Call):
            channel.send(_answer(call, registry, channel, settings))


@contextmanager
def _limited_memory(settings: Settings) -> Iterator[None]:
    """Let handlers have so much memory of their own. What is shared with other processes, such as
    files and libraries, does not count.

    What the handler returned or raised is read without the limit: to want for memory then would
    fail an attempt that has succeeded. (orjson ends the process where it gets none.)
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
    """Load the handlers, as the listener has, which has logged already what is odd about them."""
    logger.disabled = True
    try:
        return Registry.of(settings)
    finally:
        logger.disabled = False


class _Beginning:
    """What is asked right before a handler is called."""

    def __init__(self, call: Call, channel: Channel) -> None:
        self.answer: Answer | None = None
        self._call = call
        self._channel = channel

    def begin(self) -> None:
        """Report that it begins. Raises NotBegun if another listener may have the task by now."""
        if time.monotonic() >= self._call.lease_end:
            raise NotBegun(HELD_UP)
        self._channel.send(Begun())


def _answer(call: Call, registry: Registry, channel: Channel, settings: Settings) -> Reply:
    """Call the handler. Raises nothing that it could raise."""
    handler = registry.find(call.name)
    if handler is None:
        return Reply(is_missing=True)
    running_task.set(call.task)
    plain = PlainCall(partial(_call, handler, call.task), _Beginning(call, channel))
    with _limited_memory(settings):
        result, error, took = plain()
    if isinstance(error, NotBegun):
        return Reply(not_begun=str(error))
    if isinstance(error, TypeError) and (misfit := _misfit(handler, call.task)):
        return Reply(misfit=misfit)
    if error is None:
        return Reply(result=shown_result(result), took=took)
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
    """Why the arguments do not fit the handler; nothing if they do, and the error is its own."""
    try:
        check_binding(handler.function, task.args, task.kwargs)
    except InvalidTask as error:
        return str(error)
    return ""


def _limit_words(settings: Settings) -> str:
    memory = (settings.process_memory or 0) / 2**20
    return f"its process reached its memory limit, {memory:,.0f} MiB"
