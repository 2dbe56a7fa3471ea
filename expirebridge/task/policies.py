"""Retry policies of failed tasks, and the exceptions with which a handler overrides them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.task.durations import Duration, seconds_of
from expirebridge.task.keys import check_tags
from expirebridge.task.keywords import advising
from expirebridge.task.texts import plural

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


@advising
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
            "only, or Exponential(...), such as Exponential(attempts=4) for three retries"
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


@advising
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


@advising
class Snooze(Exception):
    """Raised by a handler to run its task again later, without using up an attempt.

    For what is not a failure: a rate limit, a lock that somebody holds, a report that is not ready.
    `after` is seconds, a timedelta, or text such as "15m". With `times`, this is granted at most so
    often, counted in `current_task().snoozes`. With `until`, an aware datetime, the task waits no
    longer than until then, and from then on it is not granted. Then the attempt counts as a
    failure, and the retry policy decides. With neither it can go on for ever.

    A start of its handler's rate is used up, and so is what it costs of a budget. With
    `charge=False`, for an attempt that has done no work yet, that is taken back, unless another
    task of the lane began meanwhile: nobody could tell any longer what that was held up by.

    Raises InvalidTask if one of them is not what it should be.
    """

    def __init__(
        self,
        after: float | timedelta | str,
        reason: str = "",
        *,
        times: int | None = None,
        until: datetime | None = None,
        charge: bool = True,
    ) -> None:
        self.after = seconds_of(after, name="after")
        if times is not None and (type(times) is not int or times < 1):
            raise InvalidTask(f"times={times!r}: it must be a whole number, at least 1")
        if until is not None and (not isinstance(until, datetime) or until.tzinfo is None):
            raise InvalidTask(f"until={until!r}: it must be a datetime with a timezone")
        self.times = times
        self.until = until
        self.charge = charge
        self.reason = reason
        super().__init__(reason or f"snoozed for {self.after:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        given = (self.after, self.reason, self.times, self.until, self.charge)
        return _snooze, (type(self), *given)

    def refusal(self, snoozes: int, now: float) -> str | None:
        """Why it is not granted after so many snoozes, at this time (seconds since 1970)."""
        if self.times is not None and snoozes >= self.times:
            return f"snoozed {plural(snoozes, 'time', 'times')}, {self.times} allowed: {self}"
        if self.until is not None and now >= self.until.timestamp():
            so_often = plural(snoozes, "time", "times")
            return f"snoozed {so_often}, until {self.until.isoformat()}: {self}"
        return None

    def delay(self, now: float) -> float:
        """Seconds to wait from this time (seconds since 1970)."""
        if self.until is None:
            return self.after
        return min(self.after, self.until.timestamp() - now)


def _snooze(
    kind: type[Snooze],
    after: float,
    reason: str,
    times: int | None,
    until: datetime | None,
    charge: bool,
) -> Snooze:
    """Make one again that was pickled."""
    return kind(after, reason, times=times, until=until, charge=charge)


@advising
class Busy(Exception):
    """Raised by a handler to let lanes of its rates rest, for all listeners; no attempt is used.

    For a provider that says "too many requests". `after` is seconds, a timedelta, or text such as
    "30s": until then no task of the lane starts, and afterwards they start at the rate, without a
    burst. It means all rates and budgets of the handler that have this `per`, or that of one
    `name`; their lanes are those of this task. The task itself is due again then, before all others
    of these lanes.

    Raises InvalidTask if `after` is not a duration, `per` could not be the name of a parameter, or
    both `per` and `name` are given. If the handler has no such rate, the attempt counts as a
    failure.
    """

    def __init__(
        self,
        after: float | timedelta | str,
        reason: str = "",
        *,
        per: str | None = None,
        name: str | None = None,
    ) -> None:
        self.after = seconds_of(after, name="after")
        if per is not None and name is not None:
            raise InvalidTask(f"per={per!r}, name={name!r}: give one of them")
        if name is not None and not (isinstance(name, str) and name):
            raise InvalidTask(f"name={name!r}: give the name of a rate, such as 'sms'")
        if per is not None and not (isinstance(per, str) and per.isidentifier()):
            raise InvalidTask(f"per={per!r}: give the name of a parameter, such as 'account'")
        self.per = per
        self.name = name
        self.reason = reason
        super().__init__(reason or f"busy for {self.after:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return _busy, (type(self), self.after, self.reason, self.per, self.name)


def _busy(kind: type[Busy], after: float, reason: str, per: str | None, name: str | None) -> Busy:
    """Make one again that was pickled."""
    return kind(after, reason, per=per, name=name)


@advising
class Discard(Exception):
    """Raised by a handler to fail its task at once, without further attempts."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


# The policy for a task that is claimed late, because no listener was there when it was due.


@advising
@dataclass(frozen=True)
class Spread:
    """Run a late task at a random time within `over`, so late tasks do not all start at once.

    `over` is seconds, a timedelta, or text such as "10m". Raises InvalidTask unless it is above 0.
    """

    over: Duration

    def __post_init__(self) -> None:
        if seconds_of(self.over, name="over") <= 0:
            raise InvalidTask(f"over={self.over!r}: it must be above 0")


MisfireSpec = Literal["run", "skip"] | Spread


class MisfirePolicy(NamedTuple):
    """The rule for a late task."""

    late_after: float | None
    """How many seconds after its due time a task is late. None: it runs however late it is."""
    window: float | None = None
    """Seconds over which late tasks are spread. None: they are skipped."""

    def delay(self) -> float | None:
        """Seconds until a late task runs; None: it is skipped."""
        if self.window is None:
            return None
        # A delay of 0 would mean the old due time.
        return max(random.uniform(0, self.window), 0.001)  # noqa: S311 - needs no secrecy

    def encode(self) -> bytes:
        """The policy as JSON, for the task's record."""
        if self.late_after is None:
            return b'["run"]'
        if self.window is None:
            return orjson.dumps(["skip", self.late_after])
        return orjson.dumps(["spread", self.late_after, self.window])


def misfire_policy_of(
    late_after: Duration | None, misfire: MisfireSpec | None
) -> MisfirePolicy | None:
    """Turn the arguments `late_after=` and `misfire=` into a policy.

    Returns None if neither was given. Raises InvalidTask.
    """
    late = None if late_after is None else seconds_of(late_after, name="late_after")
    if misfire not in {None, "run", "skip"} and not isinstance(misfire, Spread):
        raise InvalidTask(f"misfire={misfire!r}: give 'run', 'skip' or Spread(over=...)")
    if misfire is None and late is not None:
        raise InvalidTask(
            f"late_after={late_after!r}: add what to do then: misfire='skip' or Spread(over=...)"
        )
    if misfire is None:
        return None
    if misfire == "run":
        if late is not None:
            raise InvalidTask("misfire='run' runs a task however late it is: leave out late_after")
        return MisfirePolicy(None)
    if late is None:
        raise InvalidTask(f"misfire={misfire!r}: add when a task is late, such as late_after='5m'")
    if late <= 0:
        raise InvalidTask(f"late_after={late_after!r}: it must be above 0")
    window = seconds_of(misfire.over, name="over") if isinstance(misfire, Spread) else None
    return MisfirePolicy(late, window)


def decode_misfire(stored: bytes) -> MisfirePolicy:
    """Read a policy back from a task's record. Raises ValueError if it is not one."""
    value: Any = orjson.loads(stored)
    match value:
        case ["run"]:
            return MisfirePolicy(None)
        case ["skip", int() | float() as late]:
            return MisfirePolicy(late)
        case ["spread", int() | float() as late, int() | float() as window] if window > 0:
            return MisfirePolicy(late, window)
    raise ValueError(f"not a misfire policy: {stored!r}")


# How long a handler may run, and how late it may begin.


def check_timeout(timeout: Duration | None) -> float | None:
    """Return a timeout in seconds; raise InvalidTask unless it is above 0."""
    return _above_zero(timeout, "timeout")


def check_late(late: Duration | None) -> float | None:
    """Return an objective of lateness in seconds; raise InvalidTask unless it is above 0."""
    return _above_zero(late, "late")


def _above_zero(value: Duration | None, name: str) -> float | None:
    if value is None:
        return None
    seconds = seconds_of(value, name=name)
    if seconds <= 0:
        raise InvalidTask(f"{name}={value!r}: it must be above 0")
    return seconds


# Tags and policies, which `make_task` and `@every` both accept, as a record holds them.


def policy_fields(
    *,
    tags: Sequence[str] = (),
    retry: RetrySpec | None = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: MisfireSpec | None = None,
) -> dict[str, str | float]:
    """Return the fields of a record for these arguments of `make_task`: only those that were given.

    Raises InvalidTask for values that cannot be.
    """
    fields: dict[str, str | float] = {}
    if legal_tags := check_tags(tags):
        fields["tags"] = " ".join(legal_tags)
    if (policy := policy_of(retry)) is not None:
        fields["retry"] = policy.encode().decode()
    if (seconds := check_timeout(timeout)) is not None:
        fields["timeout"] = seconds
    if (late := misfire_policy_of(late_after, misfire)) is not None:
        fields["misfire"] = late.encode().decode()
    return fields
