"""The fork guard: keeps children that a handler forks out of the listener's code.

A handler may fork. The child is a copy of the whole listener, with its claims and its connections.
It does no harm within the handler's own code. If it returned from there, a second listener would
run, and both would use the same connections.
"""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NoReturn

logger = logging.getLogger("expirebridge")

_signals: set[signal.Signals] = set()
"""Signals that ask the listener in this process to stop."""


@contextmanager
def signals_stay(*numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals in this process only, not in children that it forks in the block.

    The event loop receives signals through a pipe, which a child inherits: a signal sent to the
    child would otherwise stop the listener, and not end the child.
    """
    _signals.update(numbers)
    try:
        yield
    finally:
        _signals.difference_update(numbers)


def _hold_signals() -> None:
    # From here to the last step in the child: no moment is left in which it has the pipe.
    signal.pthread_sigmask(signal.SIG_BLOCK, _signals)


def _let_signals_pass() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _signals)


def _give_signals_up() -> None:
    if _signals:
        signal.set_wakeup_fd(-1)
    for number in _signals:
        signal.signal(number, signal.SIG_DFL)
    _let_signals_pass()


os.register_at_fork(
    before=_hold_signals, after_in_parent=_let_signals_pass, after_in_child=_give_signals_up
)


class ForkGuard:
    """Context manager around a handler's code; a forked child that leaves it ends there.

    The child's exit code is that of `sys.exit`; any other way out is a mistake, and is logged.
    """

    def __init__(self, process: int | None = None) -> None:
        self._process = process or os.getpid()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if os.getpid() != self._process:
            end_child(error)


def end_child(error: BaseException | None) -> NoReturn:
    """End a child that a handler forked, as it would end by itself; `error` is its way out."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        os._exit(error.code or 0)
    logger.error(
        "a child process that a handler forked returned to the listener's code: it is stopped"
    )
    os._exit(1)
