"""When a failed task is attempted again, and how a handler decides that itself."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, NamedTuple, Protocol

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.model.durations import Duration, seconds_of

MAX_ATTEMPTS = 1000
UNKNOWN_DELAY = 15.0
"""Seconds that a task with an unknown function waits before a listener looks at it again."""


class RetryPolicy(Protocol):
    """The rule for the delay before the next attempt."""

    def delay(self, attempt: int) -> float | None:
        """Seconds to wait after attempt number `attempt` (from 1) failed; None: give up."""
        ...

    def encode(self) -> bytes:
        """The policy as JSON, for the task's record."""
        ...


class Delays(NamedTuple):
    """Wait these seconds after the first, second, ... failed attempt, then give up."""

    seconds: tuple[float, ...]

    def delay(self, attempt: int) -> float | None:
        """See `RetryPolicy.delay`."""
        return self.seconds[attempt - 1] if attempt <= len(self.seconds) else None

    def encode(self) -> bytes:
        """See `RetryPolicy.encode`."""
        return orjson.dumps(self.seconds)


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """Wait `first` seconds, then `factor` times longer after each failure, at most `longest`.

    It allows up to `attempts` attempts in all. Each delay is a random value between half of its
    length and all of it, so tasks that failed together are not retried together.
    """

    first: float = 1.0
    factor: float = 2.0
    longest: float = 3600.0
    attempts: int = 10

    def __post_init__(self) -> None:
        for name in ("first", "longest"):
            seconds_of(getattr(self, name), name=name)
        numbers = (self.first, self.factor, self.longest)
        if not all(isinstance(number, int | float) and isfinite(number) for number in numbers):
            raise InvalidTask(f"{self!r}: first, factor and longest must be finite numbers")
        if not (self.first > 0 and self.factor >= 1 and self.longest >= self.first):
            raise InvalidTask(
                f"{self!r}: first must be above 0, factor at least 1, longest at least first"
            )
        if not isinstance(self.attempts, int) or not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidTask(f"{self!r}: attempts must be a whole number, 1 to {MAX_ATTEMPTS}")

    def delay(self, attempt: int) -> float | None:
        """See `RetryPolicy.delay`."""
        if attempt >= self.attempts:
            return None
        try:
            whole = min(self.longest, self.first * self.factor ** (attempt - 1))
        except OverflowError:
            whole = self.longest
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 - jitter needs no secrecy

    def encode(self) -> bytes:
        """See `RetryPolicy.encode`."""
        return orjson.dumps(
            {
                "first": self.first,
                "factor": self.factor,
                "longest": self.longest,
                "attempts": self.attempts,
            }
        )


# WeChat Pay's published schedule for repeating a payment notification that was not acknowledged:
# 15 attempts after the first, over about a day.
_MINUTE, _HOUR = 60, 3600
DEFAULT_POLICY = Delays(
    (
        *(15, 15, 30),
        *(minutes * _MINUTE for minutes in (3, 10, 20, 30, 30, 30)),
        *(hours * _HOUR for hours in (1, 3, 3, 3, 6, 6)),
    )
)

RetrySpec = RetryPolicy | Sequence[Duration]


def policy_of(spec: RetrySpec | None) -> RetryPolicy | None:
    """Turn the argument `retry=`, a list of delays or a policy, into a policy.

    An empty list means one attempt only; None means that it was not given. Raises InvalidTask.
    """
    if spec is None or isinstance(spec, Delays | Exponential):
        return spec
    if isinstance(spec, str | bytes) or not isinstance(spec, Sequence):
        raise InvalidTask(
            f"retry={spec!r}: give a list of delays such as [15, '1m', '1h'], [] for one attempt "
            "only, or Exponential(...)"
        )
    if len(spec) >= MAX_ATTEMPTS:
        raise InvalidTask(f"retry: {len(spec)} delays are too many; at most {MAX_ATTEMPTS - 1}")
    return Delays(tuple(seconds_of(item, name=f"retry[{i}]") for i, item in enumerate(spec)))


def decode_policy(stored: bytes) -> RetryPolicy:
    """Read a policy back from a task's record. Raises ValueError if it is not one."""
    value: Any = orjson.loads(stored)
    try:
        if isinstance(value, list):
            return Delays(tuple(seconds_of(float(item), name="retry") for item in value))
        return Exponential(**value)
    except TypeError as error:
        raise ValueError(f"not a retry policy: {stored!r}") from error


class Retry(Exception):
    """Raised by a handler to run its task again after a delay that it chooses.

    `after` is seconds, a timedelta, or text such as "15m". This uses up one attempt, like a
    failure, but the retry policy is ignored. Raises InvalidTask if `after` is not a duration.
    """

    def __init__(self, after: float | timedelta | str, reason: str = "") -> None:
        self.after = seconds_of(after, name="after")
        self.reason = reason
        super().__init__(reason or f"the handler asked to be run again after {self.after:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        # By itself, an exception is made again with its text as the only argument.
        return type(self), (self.after, self.reason)


class Snooze(Exception):
    """Raised by a handler to run its task again later, without using up an attempt.

    For what is not a failure: a rate limit, a lock that somebody holds, a report that is not ready.
    `after` is seconds, a timedelta, or text such as "15m". With `times`, this is granted at most so
    often, counted in `current_task().snoozes`. With `until`, an aware datetime, the task waits no
    longer than until then, and from then on it is not granted. Then the attempt counts as a
    failure, and the retry policy decides. With neither it can go on for ever.

    Raises InvalidTask if one of them is not what it should be.
    """

    def __init__(
        self,
        after: float | timedelta | str,
        reason: str = "",
        *,
        times: int | None = None,
        until: datetime | None = None,
    ) -> None:
        self.after = seconds_of(after, name="after")
        if times is not None and (type(times) is not int or times < 1):
            raise InvalidTask(f"times={times!r}: it must be a whole number, at least 1")
        if until is not None and (not isinstance(until, datetime) or until.tzinfo is None):
            raise InvalidTask(f"until={until!r}: it must be a datetime with a timezone")
        self.times = times
        self.until = until
        self.reason = reason
        super().__init__(reason or f"snoozed for {self.after:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return _snooze, (type(self), self.after, self.reason, self.times, self.until)

    def refusal(self, snoozes: int, now: float) -> str | None:
        """Why it is not granted after so many snoozes, at this time (seconds since 1970)."""
        if self.times is not None and snoozes >= self.times:
            return f"snoozed {snoozes} times, {self.times} allowed: {self}"
        if self.until is not None and now >= self.until.timestamp():
            return f"snoozed {snoozes} times, until {self.until.isoformat()}: {self}"
        return None

    def delay(self, now: float) -> float:
        """Seconds to wait from this time (seconds since 1970)."""
        if self.until is None:
            return self.after
        return min(self.after, self.until.timestamp() - now)


def _snooze(
    kind: type[Snooze], after: float, reason: str, times: int | None, until: datetime | None
) -> Snooze:
    """Make one again that was pickled."""
    return kind(after, reason, times=times, until=until)


class Discard(Exception):
    """Raised by a handler to fail its task at once, without further attempts."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
