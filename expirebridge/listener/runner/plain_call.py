"""The call of a plain function, in a thread: when it began, and how long it took."""

import contextvars
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from expirebridge.listener.runner.fork_guard import ForkGuard
from expirebridge.listener.runner.unbegun import NotBegun, Unbegun

if TYPE_CHECKING:
    from expirebridge.listener.runner.attempt import Attempt


class PlainCall:
    """Calls a handler, if its attempt may still begin when a thread comes for it.

    The attempt begins in that thread, right before the call: it may have waited for a thread, or
    for the lock that threads which compute share, and its process may have stood still meanwhile.
    So its time counts from then, too.
    """

    __slots__ = ("_attempt", "_began", "_context", "_handler", "_unbegun", "took")

    def __init__(self, handler: Callable[[], Any], attempt: "Attempt", unbegun: Unbegun) -> None:
        self._handler = handler
        self._attempt = attempt
        self._unbegun = unbegun
        self._context = contextvars.copy_context()
        self._began: float | None = None
        self.took: float | None = None
        """Seconds that the handler took; None until it has ended."""

    def __call__(self) -> tuple[Any, BaseException | None]:
        """What the handler returned or raised, as values: futures do not carry every exception."""
        try:
            self._unbegun.begin(self._attempt)
        except NotBegun as reason:
            return None, reason
        self._began = began = time.perf_counter()
        try:
            with ForkGuard():
                return self._context.run(self._handler), None
        except StopIteration as error:
            # Raised further, it would end the coroutine above instead of reaching it as a value.
            wrapped = RuntimeError(f"the handler raised {type(error).__name__}")
            wrapped.__cause__ = error
            return None, wrapped
        except BaseException as error:
            return None, error
        finally:
            self.took = time.perf_counter() - began

    def left(self, limit: float) -> float:
        """Seconds that are left of the limit: all of it until the handler is called."""
        if self._began is None:
            return limit
        return self._began + limit - time.perf_counter()
