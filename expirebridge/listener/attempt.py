"""One attempt: calls a handler under its timeout, and turns what it did into an outcome."""

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import orjson

from expirebridge.current import running_task
from expirebridge.durations import human, seconds_of
from expirebridge.errors import InvalidTask
from expirebridge.handlers import Handler, check_binding
from expirebridge.hooks import End
from expirebridge.listener import home, plain_call
from expirebridge.listener.deadlines import Deadlines
from expirebridge.listener.home import AtHome
from expirebridge.listener.plain_call import PlainCall
from expirebridge.listener.threads import Threads
from expirebridge.listener.unbegun import NotBegun, Unbegun
from expirebridge.misfire import decode_misfire
from expirebridge.retry import (
    DEFAULT_POLICY,
    UNKNOWN_DELAY,
    Discard,
    Retry,
    RetryPolicy,
    decode_policy,
)
from expirebridge.store.calls import Settlement
from expirebridge.store.views import ClaimedTask
from expirebridge.task import State, Task, from_ms
from expirebridge.wire import decode_args

logger = logging.getLogger("expirebridge")

MAX_RESULT = 4096
MAX_ERROR = 8192
CANCEL_PATIENCE = 1.0
"""Seconds after its timeout at which an async handler that still runs is told of."""


class Outcome(NamedTuple):
    """How an attempt ended, and what is to be recorded of it."""

    end: End
    settlement: Settlement
    reason: str = ""
    brief: str = ""
    """The reason, without the words of what was raised."""
    error: BaseException | None = None
    """What the handler raised, if that is the reason."""


class Attempt:
    """A claimed task on its way through its handler.

    Without a `handler` it ends at once; `hint` then says what may have been meant. `on_overtime` is
    called if a handler does not end at its timeout: it cannot be stopped, so the attempt goes on
    until it does.
    """

    def __init__(
        self,
        claimed: ClaimedTask,
        handler: Handler | None,
        *,
        hint: str,
        timeout: float,
        unbegun: Unbegun,
        threads: Threads,
        deadlines: Deadlines,
        on_overtime: Callable[["Attempt"], None],
    ) -> None:
        self.claimed = claimed
        self._unreadable = claimed.unreadable
        """What cannot be read, and why, if something cannot."""
        self.task = self._read()
        self._handler = handler
        self._hint = hint
        self.limit = timeout
        """Seconds that its handler may take; known for sure once it runs."""
        self.took = 0.0
        """Seconds that its handler took."""
        self._unbegun = unbegun
        self._threads = threads
        self._deadlines = deadlines
        self._on_overtime = on_overtime
        self._awaiting: asyncio.Task[object] | None = None
        """The task of asyncio in which an async handler is awaited, as long as it is."""
        self._is_late = False
        """Whether the handler is over its timeout, or was when it ended."""
        self.stopped = ""
        """Why the listener cancelled it, if it did."""

    @property
    def knows_its_handler(self) -> bool:
        """Whether there is a handler to call."""
        return self._handler is not None

    @property
    def is_async(self) -> bool:
        """Whether the attempt can be cancelled."""
        return self._handler is not None and self._handler.is_async

    async def run(self) -> Outcome:
        """Call the handler and say how it ended. Raises nothing that a handler could raise.

        Raises NotBegun if the handler must not be called here any more.
        """
        try:
            return await self._run()
        except NotBegun:
            raise
        except BaseException as error:  # to tell what it raised may raise just as well
            # Not with its traceback, which may be what cannot be printed.
            logger.error("%s %s raised what cannot be told", self.task.func, self.task.id)  # noqa: TRY400
            return self._failed(
                f"what it raised cannot be told: that raised {type(error).__name__}"
            )

    async def _run(self) -> Outcome:
        if self._handler is None:
            return self._without_call(self._unknown())
        if self._unreadable:
            return self._without_call(self._failed(f"{self._unreadable} cannot be read"))
        try:
            policy = self._policy(self._handler)
        except ValueError as error:
            return self._without_call(self._failed(f"its retry policy cannot be read: {error}"))
        self.limit = self.claimed.timeout or self._handler.timeout or self.limit
        running_task.set(self.task)
        try:
            result = await self._call(self._handler, self.limit)
        except NotBegun:
            raise
        except asyncio.CancelledError:
            if self.stopped:
                return self._released(self.stopped)
            return self._retry_or_fail(policy, "the handler was cancelled from within")
        except Retry as retry:
            return self._obey(retry)
        except Discard as discard:
            return self._failed(str(discard))
        except _TimedOut:
            return self._retry_or_fail(policy, f"timed out after {self.limit:g} s")
        except TypeError as error:
            return self._wrong_arguments(self._handler) or self._raised(policy, error)
        except BaseException as error:  # a handler's sys.exit() ends its task, not the listener
            return self._raised(policy, error)
        return self._succeeded(result)

    def misfire(self, lateness: float) -> Outcome | None:
        """The outcome if it is too late, by so many seconds, to call the handler now."""
        policy = self._handler.misfire if self._handler is not None else None
        if self.claimed.misfire is not None:
            try:
                policy = decode_misfire(self.claimed.misfire)
            except ValueError as error:
                return self._failed(f"its misfire policy cannot be read: {error}")
        if policy is None or policy.late_after is None or lateness <= policy.late_after:
            return None
        found = f"found {human(lateness)} late, more than {human(policy.late_after)}"
        delay = policy.delay()
        if delay is None:
            return self._failed(f"skipped: {found}")
        return self._outcome(
            End.RELEASED, "released", delay, f"spread: {found}", f"spread: {found}"
        )

    def given_back(self, reason: str) -> Outcome:
        """The outcome if it has not begun, and another listener is to run it."""
        return self._released(reason)

    # The steps

    def _read(self) -> Task:
        claimed = self.claimed
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        try:
            args, kwargs = decode_args(claimed.args)
        except ValueError as error:
            self._unreadable = f"its arguments ({error})"
        return Task(
            id=claimed.id,
            func=claimed.func,
            args=args,
            kwargs=kwargs,
            key=claimed.key,
            state=State.RUNNING,
            due=from_ms(claimed.due),
            created=from_ms(claimed.made * 1000) if claimed.made is not None else None,
            attempt=claimed.attempt,
            tags=claimed.tags,
            lapses=claimed.lapses,
            trace=claimed.trace,
        )

    def _policy(self, handler: Handler) -> RetryPolicy:
        if self.claimed.retry is not None:
            return decode_policy(self.claimed.retry)
        return handler.retry or DEFAULT_POLICY

    def _without_call(self, outcome: Outcome) -> Outcome:
        self._unbegun.begin(self)
        return outcome

    async def _call(self, handler: Handler, limit: float) -> Any:
        call = partial(handler.function, *self.task.args, **self.task.kwargs)
        if not handler.is_async:
            result = await self._call_in_thread(call, limit)
            # A plain wrapper around an async function gives back its coroutine.
            if not inspect.isawaitable(result):
                return result
            return await self._await(result, limit - self.took)
        self._unbegun.begin(self)
        return await self._await(call(), limit)

    async def _await(self, result: Awaitable[Any], limit: float) -> Any:
        began = time.perf_counter()
        self._awaiting = asyncio.current_task()
        try:
            with self._deadlines.set(limit, self._cancel):
                value = await AtHome(result)
        except (asyncio.CancelledError, TimeoutError):
            # Another may have cancelled it besides: its listener stops, or nobody wants it.
            if self._is_late and not self.stopped:
                raise _TimedOut from None
            raise
        finally:
            self._awaiting = None
            self.took += time.perf_counter() - began
        if self._is_late:  # the handler swallowed its cancellation
            raise _TimedOut
        return value

    async def _call_in_thread(self, handler: Callable[[], Any], limit: float) -> Any:
        call = PlainCall(partial(self._unbegun.begin, self), handler)

        def look() -> None:
            left = call.left(limit)
            if left > 0:
                self._deadlines.put_off(deadline, left)
            elif call.took is None:
                self._on_overtime(self)

        with self._deadlines.set(limit, look) as deadline:
            result, error = await self._threads.call(call)
        self.took = call.took or 0.0
        if self.took > limit:
            raise _TimedOut
        if error is not None:
            raise error
        return result

    def _cancel(self) -> None:
        """Cancel an async handler at its timeout, which it may ignore."""
        self._is_late = True
        if self._awaiting is not None:
            self._awaiting.cancel()
        asyncio.get_running_loop().call_later(CANCEL_PATIENCE, self._notice_ignored)

    def _notice_ignored(self) -> None:
        if self._awaiting is not None:
            self._on_overtime(self)

    # The outcomes

    def _succeeded(self, result: Any) -> Outcome:
        return self._outcome(End.SUCCEEDED, "succeeded", text=_result(result))

    def _failed(self, reason: str) -> Outcome:
        return self._outcome(End.FAILED, "failed", text=reason, reason=reason)

    def _retry(self, delay: float, reason: str) -> Outcome:
        return self._outcome(End.RETRY, "retry", delay, reason, reason)

    def _obey(self, retry: Retry) -> Outcome:
        try:
            delay = seconds_of(retry.after, name="after")
        except InvalidTask as error:  # a subclass need not have called Retry's own __init__
            return self._failed(f"its Retry says no delay: {error}")
        return self._retry(delay, str(retry))

    def _retry_or_fail(self, policy: RetryPolicy, reason: str) -> Outcome:
        delay = policy.delay(self.claimed.attempt)
        return self._failed(reason) if delay is None else self._retry(delay, reason)

    def _raised(self, policy: RetryPolicy, error: BaseException) -> Outcome:
        if isinstance(error, MemoryError):
            # The error goes to hooks, too, and its frames hold what recording the outcome needs.
            traceback.clear_frames(error.__traceback__)
        outcome = self._retry_or_fail(policy, _told(error))
        return outcome._replace(brief=type(error).__name__, error=error)

    def _released(self, reason: str) -> Outcome:
        return self._outcome(End.RELEASED, "released", text=reason, reason=reason)

    def _unknown(self) -> Outcome:
        reason = (
            f"no handler {self.claimed.func!r} in the listener that claimed it{self._hint}; tried "
            f"again every {UNKNOWN_DELAY:g} s, for a day"
        )
        return self._outcome(End.RELEASED, "unknown", UNKNOWN_DELAY, reason, reason)

    def _wrong_arguments(self, handler: Handler) -> Outcome | None:
        """The outcome if the arguments do not fit; None if the TypeError was the handler's own."""
        try:
            check_binding(handler.function, self.task.args, self.task.kwargs)
        except InvalidTask as error:
            return self._failed(f"its arguments do not fit: {error}")
        return None

    def _outcome(
        self, end: End, word: str, delay: float = 0.0, text: str | bytes = "", reason: str = ""
    ) -> Outcome:
        if isinstance(text, str):
            # Errors may hold what UTF-8 cannot, such as names of files; their end matters most.
            text = text.encode(errors="backslashreplace")[-MAX_ERROR:]
        settlement = Settlement(self.claimed.id, self.claimed.token, word, delay, text)
        return Outcome(end, settlement, reason, brief=reason)


class _TimedOut(Exception):
    """The handler's time is over."""


def _told(error: BaseException) -> str:
    """The error as a person wants to read it: the traceback from the handler on."""
    shown = traceback.TracebackException.from_exception(error)
    # What the interpreter has between our frames and the handler's is no help either.
    ours = {__file__, home.__file__, plain_call.__file__, "<frozen _collections_abc>"}
    inner = [frame for frame in shown.stack if frame.filename not in ours]
    shown.stack = traceback.StackSummary.from_list(inner)
    text = "".join(shown.format()).rstrip()
    # The last line is what lists show: a group ends with a rule below its last error.
    return text.rstrip("+- \n") if isinstance(error, BaseExceptionGroup) else text


def _result(value: Any) -> bytes:
    """A handler's result as JSON, or a note if it cannot be kept: never a reason to fail."""
    if value is None:
        return b""
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError):
        return orjson.dumps(f"(a {type(value).__name__}, which JSON cannot hold)")
    if len(encoded) > MAX_RESULT:
        return orjson.dumps(f"({len(encoded):,} bytes of JSON, more than the {MAX_RESULT:,} kept)")
    return encoded
