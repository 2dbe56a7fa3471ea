"""Signals: what stops, suspends and resumes a listener that has its process to itself."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from expirebridge.listener.execution import fork_guard

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
