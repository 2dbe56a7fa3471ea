"""The conclusion of an attempt: how it ended, and what is to be recorded of it."""

import os
import traceback
from typing import Any, NamedTuple

import orjson

from expirebridge.durations import seconds_of
from expirebridge.errors import InvalidTask
from expirebridge.hooks import End
from expirebridge.retry import UNKNOWN_DELAY, Retry, RetryPolicy
from expirebridge.store.calls import Settlement
from expirebridge.store.views import ClaimedTask

MAX_RESULT = 4096
MAX_ERROR = 8192
_OURS = (os.path.dirname(__file__) + os.sep, "<frozen _collections_abc>")  # noqa: PTH120
"""Where the frames between the event loop and a handler are: they help nobody who reads."""


class Conclusion(NamedTuple):
    """How an attempt ended, and what is to be recorded of it."""

    end: End
    settlement: Settlement
    reason: str = ""
    brief: str = ""
    """The reason, without the words of what was raised."""
    error: BaseException | None = None
    """What the handler raised, if that is the reason."""


class Conclusions:
    """Draws the conclusion of one attempt, of this claimed task."""

    __slots__ = ("_claimed",)

    def __init__(self, claimed: ClaimedTask) -> None:
        self._claimed = claimed

    def succeeded(self, result: Any) -> Conclusion:
        """The handler returned this."""
        return self._conclude(End.SUCCEEDED, "succeeded", text=_result(result))

    def failed(self, reason: str) -> Conclusion:
        """It failed for good."""
        return self._conclude(End.FAILED, "failed", text=reason, reason=reason)

    def retry_or_fail(self, policy: RetryPolicy, reason: str) -> Conclusion:
        """It failed, and the policy says whether for good."""
        delay = policy.delay(self._claimed.attempt)
        return self.failed(reason) if delay is None else self._retry(delay, reason)

    def obeys(self, retry: Retry) -> Conclusion:
        """The handler said itself when it is to run again."""
        try:
            delay = seconds_of(retry.after, name="after")
        except InvalidTask as error:  # a subclass need not have called Retry's own __init__
            return self.failed(f"its Retry says no delay: {error}")
        return self._retry(delay, str(retry))

    def raised(self, policy: RetryPolicy, error: BaseException) -> Conclusion:
        """The handler raised this."""
        if isinstance(error, MemoryError):
            # The error goes to hooks, too, and its frames hold what recording it needs.
            traceback.clear_frames(error.__traceback__)
        conclusion = self.retry_or_fail(policy, _shown(error))
        return conclusion._replace(brief=type(error).__name__, error=error)

    def given_back(self, reason: str) -> Conclusion:
        """It does not count: a listener is to run the task now."""
        return self._conclude(End.RELEASED, "released", text=reason, reason=reason)

    def spread(self, delay: float, reason: str) -> Conclusion:
        """It does not count: a listener is to run the task after this delay."""
        return self._conclude(End.RELEASED, "released", delay, reason, reason)

    def unknown(self, hint: str) -> Conclusion:
        """There is no such function here; another listener may know it."""
        reason = (
            f"no handler {self._claimed.func!r} in the listener that claimed it{hint}; tried "
            f"again every {UNKNOWN_DELAY:g} s, for a day"
        )
        return self._conclude(End.RELEASED, "unknown", UNKNOWN_DELAY, reason, reason)

    def _retry(self, delay: float, reason: str) -> Conclusion:
        return self._conclude(End.RETRY, "retry", delay, reason, reason)

    def _conclude(
        self, end: End, word: str, delay: float = 0.0, text: str | bytes = "", reason: str = ""
    ) -> Conclusion:
        if isinstance(text, str):
            # Errors may hold what UTF-8 cannot, such as names of files; their end matters most.
            text = text.encode(errors="backslashreplace")[-MAX_ERROR:]
        settlement = Settlement(self._claimed.id, self._claimed.token, word, delay, text)
        return Conclusion(end, settlement, reason, brief=reason)


def _shown(error: BaseException) -> str:
    """The error as a person wants to read it: the traceback from the handler on."""
    shown = traceback.TracebackException.from_exception(error)
    inner = [frame for frame in shown.stack if not frame.filename.startswith(_OURS)]
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
