"""The fork guard: keeps children that a handler forks out of the listener.

A handler may fork. The child is a copy of the whole listener, with its claims and its connections.
As long as it stays within the handler's own code it does no harm; if it left it, a second listener
would go on, on connections that both write to and read from.
"""

import logging
import os
import signal
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, TypeVar

logger = logging.getLogger("expirebridge")

T = TypeVar("T")

_signals: set[signal.Signals] = set()
"""Those that ask the listener in this process to stop."""


@contextmanager
def signals_stay(*numbers: signal.Signals) -> Iterator[None]:
    """While the block runs, these signals mean this process, and not the children it forks.

    The event loop hears of signals by a pipe, which a child inherits: one that was sent to the
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
    """Around a handler's code: a child that leaves it, by whatever way, ends there.

    It takes its exit code from `sys.exit`; any other way is a mistake, which is logged.
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
            _end_child(error)


def _end_child(error: BaseException | None) -> NoReturn:
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        os._exit(error.code or 0)
    logger.error(
        "a child process that a handler forked returned to the listener's code: it is stopped"
    )
    os._exit(1)


class GuardedAwaitable(Generator[Any, None, T]):
    """An awaitable whose every step ends in the process in which it began."""

    def __init__(self, awaitable: Awaitable[T]) -> None:
        self._steps = awaitable.__await__()
        self._process = os.getpid()

    def __await__(self) -> Generator[Any, None, T]:
        return self

    def send(self, _: None) -> Any:
        """Go on to where it waits next; the event loop never sends a value."""
        # As a ForkGuard does, without the calls that `with` would make for each task.
        try:
            step = next(self._steps)
        except BaseException as error:
            if os.getpid() != self._process:
                _end_child(error)
            raise
        if os.getpid() != self._process:
            _end_child(None)
        return step

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits, such as its cancellation."""
        with ForkGuard(self._process):
            return self._steps.throw(*error)
