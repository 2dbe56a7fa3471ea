"""An attempt: a claimed task, the handler that is to run it, and how far it has come."""

import asyncio
import logging
from typing import Any

from expirebridge.durations import human
from expirebridge.errors import InvalidTask
from expirebridge.handlers import Handler, check_binding
from expirebridge.listener.runner.async_call import TimedOut
from expirebridge.listener.runner.conclusion import Conclusion, Conclusions
from expirebridge.listener.runner.origin import Origin
from expirebridge.misfire import decode_misfire
from expirebridge.retry import DEFAULT_POLICY, Discard, Retry, RetryPolicy, decode_policy
from expirebridge.store.views import ClaimedTask
from expirebridge.task import State, Task, from_ms
from expirebridge.wire import decode_args

logger = logging.getLogger("expirebridge")


class Attempt:
    """A claimed task on its way through its handler.

    Without a `handler` it ends at once; `hint` then says what may have been meant. `timeout` is the
    limit where neither the task nor the handler has one.
    """

    def __init__(
        self,
        claimed: ClaimedTask,
        handler: Handler | None,
        origin: Origin,
        *,
        hint: str,
        timeout: float,
    ) -> None:
        self.claimed = claimed
        self.handler = handler
        self.origin = origin
        self.conclusions = Conclusions(claimed)
        self._hint = hint
        self._retry_policy: RetryPolicy = DEFAULT_POLICY
        self._unreadable = claimed.unreadable
        """What cannot be read, and why, if something cannot."""
        self.task = self._read()
        self.limit = claimed.timeout or (handler.timeout if handler else None) or timeout
        """Seconds that its handler may take."""
        self.lateness = 0.0
        """Seconds from its due time to its beginning, by the estimate of the server's clock."""
        self.took = 0.0
        """Seconds that its handler took."""
        self.stopped = ""
        """Why the listener cancelled it, if it did."""
        self.is_over = False
        """Whether its handler has ended, or was never called."""

    @property
    def is_async(self) -> bool:
        """Whether the attempt can be cancelled."""
        return self.handler is not None and self.handler.is_async

    def has_lease(self) -> bool:
        """Whether its lease cannot have lapsed yet; see Leases.is_fresh."""
        return self.origin.leases.is_fresh(self.claimed.id, self.claimed.token)

    def misfire(self, lateness: float) -> Conclusion | None:
        """The conclusion if it is too late, by so many seconds, to call the handler now."""
        policy = self.handler.misfire if self.handler is not None else None
        if self.claimed.misfire is not None:
            try:
                policy = decode_misfire(self.claimed.misfire)
            except ValueError as error:
                return self.conclusions.failed(f"its misfire policy cannot be read: {error}")
        if policy is None or policy.late_after is None or lateness <= policy.late_after:
            return None
        found = f"found {human(lateness)} late, more than {human(policy.late_after)}"
        delay = policy.delay()
        if delay is None:
            return self.conclusions.failed(f"skipped: {found}")
        return self.conclusions.spread(delay, f"spread: {found}")

    def refusal(self) -> Conclusion | None:
        """The conclusion if no handler can be called with what the record holds."""
        if self.handler is None:
            return self.conclusions.unknown(self._hint)
        if self._unreadable:
            return self.conclusions.failed(f"{self._unreadable} cannot be read")
        try:
            self._retry_policy = self._read_retry_policy(self.handler)
        except ValueError as error:
            return self.conclusions.failed(f"its retry policy cannot be read: {error}")
        return None

    def after(self, error: BaseException) -> Conclusion:
        """The conclusion after its call raised this. Raises nothing, whatever the error is like."""
        try:
            return self._after(error)
        except BaseException as another:  # to format its error may raise, too
            # Without the traceback, which may be what cannot be formatted.
            logger.error("%s %s raised an unprintable error", self.task.func, self.task.id)  # noqa: TRY400
            return self.conclusions.failed(
                f"its error cannot be printed: to format it raised {type(another).__name__}"
            )

    def _after(self, error: BaseException) -> Conclusion:
        """One branch for each way in which a call can fail."""
        conclude, policy = self.conclusions, self._retry_policy
        match error:
            case asyncio.CancelledError() if self.stopped:
                return conclude.given_back(self.stopped)
            case asyncio.CancelledError():
                return conclude.retry_or_fail(policy, "the handler was cancelled from within")
            case Retry():
                return conclude.obeys(error)
            case Discard():
                return conclude.failed(str(error))
            case TimedOut():
                return conclude.retry_or_fail(policy, f"timed out after {self.limit:g} s")
            case TypeError():
                return self._wrong_arguments() or conclude.raised(policy, error)
            case _:  # a handler's sys.exit() ends its task, not the listener
                return conclude.raised(policy, error)

    def _wrong_arguments(self) -> Conclusion | None:
        """The conclusion if a TypeError came of arguments that do not fit; None if it was the
        handler's own.
        """
        if self.handler is None:
            return None
        try:
            check_binding(self.handler.function, self.task.args, self.task.kwargs)
        except InvalidTask as error:
            return self.conclusions.failed(f"its arguments do not fit: {error}")
        return None

    def _read_retry_policy(self, handler: Handler) -> RetryPolicy:
        if self.claimed.retry is not None:
            return decode_policy(self.claimed.retry)
        return handler.retry or DEFAULT_POLICY

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
            lapses=claimed.lapses,
            **claimed.shown,
        )
