"""The set-up of a listener's process: event loop, signals, logging.

A listener sleeps until a task is due. asyncio's loop on Linux rounds each sleep up to a whole
millisecond, because `epoll` takes no less; for most tasks that was the greater part of their
lateness (see docs/internals/performance.md).
"""

import asyncio
import contextlib
import gc
import logging
import select
import selectors
import signal
import sys
import traceback
from collections.abc import Callable, Iterator

from expirebridge.listener.execution import fork_guard


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop as a listener wants it; where there is no epoll, asyncio's own is exact."""
    if not hasattr(select, "epoll"):
        return asyncio.new_event_loop()
    return asyncio.SelectorEventLoop(PunctualSelector())


class PunctualSelector(selectors.EpollSelector):
    """Sleeps in microseconds: `select` waits until epoll has something to report, or time is over.

    An epoll instance is itself a file that becomes readable.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as any selector does, for `timeout` seconds at most."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        # It is the first file that the loop opens, so its number is one that `select` can take.
        select.select([self.fileno()], [], [], timeout)
        return super().select(0)


# The garbage collector of a process that does nothing else.


def keep_what_is_loaded() -> None:
    """Let the garbage collector pass over what there is now: modules, above all.

    A full collection looks at all objects with the interpreter's lock held, so no task starts
    meanwhile: for 60 to 85 ms with SQLAlchemy. What is made later is little, and is collected.
    """
    gc.freeze()


# Signals that stop, suspend and resume a listener with a process of its own.

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGTSTP, signal.SIGCONT)


@contextlib.contextmanager
def taking_signals(take: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Call `take` with each of them on the event loop; afterwards they do what they did before.

    Where the event loop cannot have signals (not in the main thread), they are left alone.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, take, number)
    except (RuntimeError, ValueError):
        yield
        return
    try:
        with fork_guard.signals_stay(*SIGNALS):
            yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # None: it was not set in Python
                signal.signal(number, handler)


# The log guard: errors in the logging of the process do not reach the listener's code.
#
# Handlers' modules, and the program around a listener, may add filters and handlers of their own
# to the log. One that raises does so wherever a line is logged: in a role, it would end the
# listener.

logger = logging.getLogger("expirebridge")


class _Guarded:
    """Passes a record on, as a logger does, and raises nothing."""

    def __init__(self, handle: Callable[[logging.LogRecord], None]) -> None:
        self._handle = handle

    def __call__(self, record: logging.LogRecord) -> None:
        try:
            self._handle(record)
        except Exception:
            # As logging itself does when a record cannot be written.
            if logging.raiseExceptions and sys.stderr:
                traceback.print_exc()


def guard_log() -> None:
    """From here on, logging as `expirebridge` raises nothing in this process."""
    if not isinstance(logger.handle, _Guarded):
        logger.handle = _Guarded(logger.handle)  # type: ignore[method-assign]
