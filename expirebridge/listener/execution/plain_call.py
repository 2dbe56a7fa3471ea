"""The call of a plain function, in a thread: what it answered, and how long it took."""

import contextvars
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from expirebridge.listener.execution.async_call import TimedOut
from expirebridge.listener.execution.fork_guard import ForkGuard
from expirebridge.listener.execution.not_started import NotBegun


class Answer(NamedTuple):
    """How a call ended, as a value: futures do not carry every exception."""

    value: Any
    """What the handler returned, if it did."""
    error: BaseException | None
    took: float
    """Seconds that the handler took."""

    def result(self, limit: float) -> Any:
        """What the handler returned. Raises what it raised, and TimedOut if it took too long."""
        if self.took > limit:
            raise TimedOut
        if self.error is not None:
            raise self.error
        return self.value


class Begins(Protocol):
    """What is about to call its handler, and is given the answer."""

    answer: Answer | None

    def begin(self) -> None:
        """Take note of that. Raises NotBegun if it must not."""
        ...


class PlainCall:
    """Calls a handler, if its attempt may still begin when a thread comes for it.

    The attempt begins in that thread, right before the call: it may have waited for a thread, or
    for the lock that threads which compute share, and its process may have stood still meanwhile.
    So its time counts from then, too.
    """

    __slots__ = ("_attempt", "_context", "_handler")

    def __init__(self, handler: Callable[[], Any], attempt: Begins) -> None:
        self._handler = handler
        self._attempt = attempt
        self._context = contextvars.copy_context()

    def __call__(self) -> Answer:
        """Make the call; the attempt has the answer, too."""
        try:
            self._attempt.begin()
        except NotBegun as reason:
            return Answer(None, reason, 0.0)
        began = time.perf_counter()
        value, error = self._call()
        self._attempt.answer = answer = Answer(value, error, time.perf_counter() - began)
        return answer

    def _call(self) -> tuple[Any, BaseException | None]:
        """What the handler returned or raised."""
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
