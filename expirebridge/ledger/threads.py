"""Daemon threads for blocking database calls, and a timeout for one call.

They are daemons, so a call that never returns does not keep the process from its end, as a thread
of `concurrent.futures` would.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from expirebridge.errors import LedgerUnreachable

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds to wait for an answer of the database before the caller gets an error."""
CLOSING: Final = 0.2
"""Seconds to wait at the end for calls under way. A batch cut off then is repeated."""


class DaemonPool:
    """Makes calls in up to `most` threads, which are started when they are needed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = 0
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._then: Callable[[], None]
        self._over = threading.Event()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Make a call; one whose future is cancelled before its turn is left out."""
        future: Future[T] = Future()
        with self._lock:
            self._calls.put((call, future))
            if self._idle:
                self._idle -= 1
            elif self._count < self._most:
                self._count += 1
                threading.Thread(target=self._run, name="expirebridge-ledger", daemon=True).start()
        return future

    def close(self, then: Callable[[], None]) -> None:
        """Let the threads end, and call `then` after the last one: what they use can go.

        That is waited for a moment only; a call that never returns ends with the process.
        """
        with self._lock:
            self._then = then
            count = self._count
            for _ in range(count):
                self._calls.put(None)
        if not count:
            then()
            return
        self._over.wait(CLOSING)

    def _run(self) -> None:
        self._make_calls()
        with self._lock:
            self._count -= 1
            is_last = not self._count
        if is_last:
            self._then()
            self._over.set()

    def _make_calls(self) -> None:
        while (taken := self._calls.get()) is not None:
            call, future = taken
            if future.set_running_or_notify_cancel():
                _make(call, future)
            del taken, call, future
            with self._lock:
                self._idle += self._calls.empty()


def _make(call: Callable[[], T], future: Future[T]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def with_timeout(call: Callable[[], T]) -> T:
    """Make a call in a thread of its own. Raises LedgerUnreachable if it takes longer than 5 s."""
    seconds = PATIENCE
    future: Future[T] = Future()
    threading.Thread(target=_make, args=(call, future), daemon=True).start()
    with suppress(TimeoutError):
        return future.result(seconds)
    raise too_slow(seconds)


def too_slow(seconds: float) -> LedgerUnreachable:
    """The database has not answered for so long."""
    return LedgerUnreachable(f"the ledger's database has not answered for {seconds:g} s")
