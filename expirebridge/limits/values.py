"""Limits of handlers: how many of their tasks run at once, and how many start in a time."""

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from hashlib import sha1
from typing import Literal

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.limits.lanes import Lane, SetNumber
from expirebridge.task.durations import LONGEST, Duration, seconds_of
from expirebridge.task.keywords import advising
from expirebridge.task.listings import LeftOut
from expirebridge.task.queue_place import DeclaredLimit
from expirebridge.task.texts import short_repr

MOST = 1_000_000
"""The largest number of slots of a lane, of starts in a time, and of a burst."""
MOST_OF_BUDGET = 1_000_000_000
"""The largest amount of a budget, and its largest burst."""
MOST_RATES = 3
"""Rates and budgets of one handler."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_SECOND = 1_000_000  # in microseconds


@advising
@dataclass(frozen=True)
class Limit:
    """At most `most` tasks run at once: in all, or for each value of the argument `per`.

    `per` is the name of a parameter of the handler. Handlers that give one `name` share a limit;
    without it, a limit belongs to its handler alone. A task that waits for a slot longer than
    `wait` (seconds, a timedelta, or text such as "5m") fails; without it, it waits however long.

    A handler has at most two limits, one with `per` and one without.

    Raises InvalidTask unless `most` is a whole number from 1 to 1,000,000, `per` could be the name
    of a parameter, `name` has 1 to 100 characters from `A-Z a-z 0-9 _ -`, and `wait` is a duration
    of at least 1 ms.

    `fair` is the name of a parameter, too: the values of this argument take turns at the slots, so
    that no customer waits for all tasks of another. `Bridge.weight` gives one more turns.

    With `ordered`, which needs `most=1`, the tasks of a lane run one after the other by their due
    time, then id: the next one begins when one has ended for good, after its retries. If it fails,
    the next one begins, or with `on_failed="hold"` none, until the failed one is run again with
    success, or `expirebridge let-pass` lets the others go on.
    """

    most: int
    _: KW_ONLY
    per: str | None = None
    name: str | None = None
    wait: Duration | None = None
    fair: str | None = None
    ordered: bool = False
    on_failed: Literal["next", "hold"] = "next"

    def __post_init__(self) -> None:
        _check_number(self.most, name="most")
        _check_names(self.per, self.name)
        if self.fair is not None:
            _check_names(self.fair, None, name="fair")
        if self.on_failed not in {"next", "hold"}:
            raise InvalidTask(f"on_failed={self.on_failed!r}: write 'next' or 'hold'")
        if self.ordered and self.most != 1:
            raise InvalidTask(
                f"most={self.most}: tasks that run in order run one at a time: most=1, or leave "
                "out ordered="
            )
        if self.ordered and self.fair is not None:
            raise InvalidTask(f"fair={self.fair!r}: tasks in order take no turns: leave one out")
        if self.on_failed == "hold" and not self.ordered:
            raise InvalidTask("on_failed='hold': it needs ordered=True")
        if self.wait is not None and _in_ms(self.wait) < 1:
            raise InvalidTask(f"wait={self.wait!r}: it must be at least 1ms")

    def encode(self) -> bytes:
        """The numbers as JSON, for the database: `wait` in ms."""
        numbers: dict[str, int] = {"most": self.most}
        if self.wait is not None:
            numbers["wait"] = _in_ms(self.wait)
        words = {
            "fair": self.fair is not None,
            "ordered": self.ordered,
            "blocks": self.on_failed == "hold",
        }
        return orjson.dumps(numbers | {word: True for word, said in words.items() if said})


@advising
@dataclass(frozen=True)
class Rate:
    """At most `starts` attempts start in `every`: in all, or for each value of the argument `per`.

    `every` is seconds, a timedelta, or text such as "1m". Starts are evenly spaced, but after a
    pause up to `burst` may start at once: in any time there are at most `burst` more than the rate
    gives. `per` and `name` are those of `Limit`.

    A handler has at most three rates and budgets together.

    Raises InvalidTask unless `starts` and `burst` are whole numbers from 1 to 1,000,000, with at
    most a million starts a second, and a burst that takes at most 100 years to be used again; and
    as `Limit` for `per` and `name`.
    """

    starts: int
    every: Duration
    _: KW_ONLY
    per: str | None = None
    name: str | None = None
    burst: int = 1

    def __post_init__(self) -> None:
        _check_number(self.starts, name="starts")
        _check_number(self.burst, name="burst")
        _check_names(self.per, self.name)
        every = _in_us(self.every)
        if every < self.starts:
            raise InvalidTask(
                f"every={self.every!r}: {self.starts} starts in that time are more than one a "
                "microsecond: give a longer time, or fewer starts"
            )
        if self.refill > LONGEST:
            raise InvalidTask(
                f"burst={self.burst!r}: at this rate, so many starts take over 100 years: give "
                "a smaller burst"
            )

    @property
    def kind(self) -> str:
        """The end of its name, if it has none of its own."""
        return "rate"

    @property
    def refill(self) -> float:
        """Seconds until a burst that was used up is there again."""
        return _in_us(self.every) * self.burst / self.starts / _SECOND

    def encode(self) -> bytes:
        """The numbers as JSON, for the database: `every` in microseconds."""
        numbers = {"starts": self.starts, "every": _in_us(self.every), "burst": self.burst}
        return orjson.dumps(numbers)


@advising
@dataclass(frozen=True)
class Budget:
    """At most `amount` is spent in `every`: in all, or for each value of the argument `per`.

    `of` is the parameter that says what a task costs, a whole number such as the tokens of a
    request. A task begins when the budget has room for that. It grows again evenly; after a pause
    up to `burst` may be spent at once, which is the whole amount unless it is given. A task that
    costs more takes the whole burst, and so does one whose cost nobody can read; one that does not
    give the argument costs the parameter's default. What an attempt spends beyond it is charged by
    `current_task().spend(n)`. `every`, `per` and `name` are those of `Rate`.

    Raises InvalidTask unless `amount` and `burst` are whole numbers from 1 to 1,000,000,000, and as
    `Rate`.
    """

    amount: int
    every: Duration
    _: KW_ONLY
    of: str
    per: str | None = None
    name: str | None = None
    burst: int | None = None

    def __post_init__(self) -> None:
        _check_number(self.amount, name="amount", most=MOST_OF_BUDGET)
        if self.burst is not None:
            _check_number(self.burst, name="burst", most=MOST_OF_BUDGET)
        if not (isinstance(self.of, str) and self.of.isidentifier()):
            raise InvalidTask(f"of={self.of!r}: give the name of a parameter, such as 'tokens'")
        _check_names(self.per, self.name)
        if _in_us(self.every) < 1:
            raise InvalidTask(f"every={self.every!r}: it must be at least a microsecond")
        if self.refill > LONGEST:
            raise InvalidTask(
                f"burst={self.burst!r}: at this rate, so much takes over 100 years: give a "
                "smaller burst"
            )

    @property
    def kind(self) -> str:
        """The end of its name, if it has none of its own."""
        return self.of

    @property
    def refill(self) -> float:
        """Seconds until a burst that was used up is there again."""
        return _in_us(self.every) * (self.burst or self.amount) / self.amount / _SECOND

    def encode(self) -> bytes:
        """The numbers as JSON, for the database: `every` in microseconds."""
        numbers = {"starts": self.amount, "every": _in_us(self.every), "of": self.of}
        return orjson.dumps(numbers | ({} if self.burst is None else {"burst": self.burst}))


RATES = (Rate, Budget)
Pace = Rate | Budget
"""What says when tasks may start, instead of how many run at once."""


def _check_number(value: object, *, name: str, most: int = MOST) -> None:
    if type(value) is not int or not 1 <= value <= most:
        raise InvalidTask(f"{name}={value!r}: it must be a whole number, 1 to {most}")


def _check_names(per: object, own: object, name: str = "per") -> None:
    if per is not None and not (isinstance(per, str) and per.isidentifier()):
        raise InvalidTask(f"{name}={per!r}: give the name of a parameter, such as 'customer'")
    if own is not None and not (isinstance(own, str) and _NAME.fullmatch(own)):
        raise InvalidTask(f"name={own!r}: a limit's name has 1 to 100 characters from A-Za-z0-9_-")


def _in_us(every: Duration) -> int:
    return round(seconds_of(every, name="every") * _SECOND)


def _in_ms(wait: Duration) -> int:
    return round(seconds_of(wait, name="wait") * 1000)


# The arguments `limit=` and `rate=` of `@handler`.


def limits_of(
    limit: Limit | Sequence[Limit] | None, rate: Pace | Sequence[Pace] | None
) -> tuple[Limit | Pace, ...]:
    """Return the limits and rates of a handler.

    Raises InvalidTask for more than two limits, or three rates, and for two limits that both have
    `per`, or both lack it.
    """
    limits = _listed(limit)
    if len(limits) > 2:
        raise InvalidTask(f"limit=: {len(limits)} on one handler; at most two")
    if len(limits) == 2 and (limits[0].per is None) == (limits[1].per is None):
        which = "without" if limits[0].per is None else "with"
        raise InvalidTask(
            f"limit={limit!r}: two limits {which} `per`: give one with it and one without"
        )
    return (*_rates(rate), *limits)


def turn(limit: Limit | Pace, name: str) -> tuple[object, ...]:
    """Sort the limits of a handler by it: a task takes its slots in this order, for all handlers.

    Ordered limits first, then rates with `per` and without, then limits with `per` and without;
    among rates those that take longer to be there again, since what waits for a fast one meanwhile
    holds up no slow one; then by name. So tasks that have something in one lane, and wait for the
    next, are never in a circle.
    """
    if isinstance(limit, Limit):
        return (0, "") if limit.ordered else (2, limit.per is None, 0, name)
    return (1, limit.per is None, -limit.refill, name)


def _rates(rate: object) -> tuple[Pace, ...]:
    listed = rate if isinstance(rate, list | tuple) else () if rate is None else (rate,)
    if not all(isinstance(one, RATES) for one in listed):
        raise InvalidTask(
            f"rate={rate!r}: give a Rate, such as Rate(100, '1m'), a Budget, such as "
            "Budget(200_000, '1m', of='tokens'), or a list of them"
        )
    if len(listed) > MOST_RATES:
        raise InvalidTask(f"rate=: {len(listed)} on one handler; at most {MOST_RATES}")
    return tuple(listed)


def _listed(limit: object) -> tuple[Limit, ...]:
    listed = limit if isinstance(limit, list | tuple) else () if limit is None else (limit,)
    if not all(isinstance(one, Limit) for one in listed):
        raise InvalidTask(
            f"limit={limit!r}: give a Limit, such as Limit(5, per='customer'), or a list of two"
        )
    return tuple(listed)


# The value that chooses a lane.

_EXACT = 2**53
"""Floats up to this size hold every integer."""
_LONGEST_VALUE = 100
"""In bytes."""
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def lane_value(value: object) -> str:
    """Return the text that stands for an argument, as JSON holds it, in the name of its lane.

    Text stands for itself, and a whole number for its digits: `17`, `17.0` and `"17"` share a lane.
    What is over 100 bytes, or has control characters, is hashed, and so are arrays and objects.
    The script that claims tasks does the same with the JSON text.
    """
    match value:
        case bool() | None:
            return orjson.dumps(value).decode()
        case int():
            return _bounded(str(value))
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return str(int(value))
        case float():
            return f"{value:.17g}"
        case str():
            return _bounded(value)
        case _:
            return _hashed(orjson.dumps(value))


def _bounded(text: str) -> str:
    encoded = text.encode()
    if len(encoded) > _LONGEST_VALUE or _CONTROLS.search(text):
        return _hashed(encoded)
    return text


def _hashed(encoded: bytes) -> str:
    return "#" + sha1(encoded, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitListing:
    """The limits that listeners declared, and the lanes in which most tasks are."""

    limits: list[DeclaredLimit]
    """All limits, by name, each with the number that was set for all of its lanes."""
    lanes: list[Lane]
    """The lanes in which most tasks have a slot or wait, the fullest first; also those of holds."""
    numbers: list[SetNumber]
    """The numbers that were set instead of declared ones, by limit and value."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their lanes are not among these."""

    def __repr__(self) -> str:
        return short_repr(self)
