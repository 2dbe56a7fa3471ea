"""Debian's cron as a model: minute by minute, after its manual and what its main loop does.

It shares nothing with the package, neither how fields are read nor how times are found.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple, Self
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1)
_WARM_UP = 240
"""Minutes for which the model runs before those that count: longer than any repeated hour."""
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
FIRST_YEAR, LAST_YEAR = 2020, 2040


@dataclass(frozen=True)
class Fields:
    """An expression, as sets of numbers."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    both_days: bool
    """Whether the day of the month and of the week must both match."""
    is_fixed: bool
    """Whether a change of the clock neither repeats it nor leaves it out."""

    @classmethod
    def read(cls, expression: str) -> Self:
        minute, hour, day, month, weekday = expression.split()
        return cls(
            minutes=_numbers(minute, 0, 59),
            hours=_numbers(hour, 0, 23),
            days=_numbers(day, 1, 31),
            months=_numbers(month, 1, 12, ["", *_MONTHS]),
            weekdays=frozenset(n % 7 for n in _numbers(weekday, 0, 7, _DAYS)),
            both_days=day[0] == "*" or weekday[0] == "*",
            is_fixed=minute[0] != "*" and hour[0] != "*",
        )

    def match(self, wall: int) -> bool:
        """Whether they name this minute of the clock on the wall."""
        hour, minute = divmod(wall, 60)
        if minute not in self.minutes or hour % 24 not in self.hours:
            return False
        day = _EPOCH + timedelta(minutes=wall)
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        right = of_month and of_week if self.both_days else of_month or of_week
        return right and day.month in self.months


def cron_runs(expression: str, zone: ZoneInfo, first: int, last: int) -> list[int]:
    """In which minutes since 1970 cron runs a job, from one to another; each minute once.

    Where cron runs one twice in a minute, for two local times in a gap, it is there once.
    """
    fields = Fields.read(expression)
    runs = dict.fromkeys(_runs(fields, zone, first - _WARM_UP, last))
    return [minute for minute in runs if minute >= first]


def _runs(fields: Fields, zone: ZoneInfo, first: int, last: int) -> Iterator[int]:
    virtual = wall(first - 1, zone)
    for minute in range(first, last + 1):
        now = wall(minute, zone)
        passed = now - virtual
        if passed == 1:
            virtual = now
            if fields.match(now):
                yield minute
            continue
        # cron itself takes a gap over three hours for a clock that somebody set. No repeated time
        # is longer; the one gap that is counts here like any other.
        assert passed > 5 or -180 < passed <= 0, f"{zone}: the clock moved by {passed} minutes"
        if not fields.is_fixed and fields.match(now):
            yield minute
        while virtual < now:
            virtual += 1
            if fields.is_fixed and fields.match(virtual):
                yield minute


def wall(minute: int, zone: ZoneInfo) -> int:
    """What the clock on the wall shows, as minutes since a 1970 of its own."""
    offset = datetime.fromtimestamp(minute * 60, zone).utcoffset()
    assert offset is not None
    return minute + offset // timedelta(minutes=1)


def _numbers(field: str, low: int, high: int, names: list[str] | None = None) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            ends = span.split("-")
            first, last = (_number(end, names or []) for end in (ends[0], ends[-1]))
        found |= set(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, names: list[str]) -> int:
    return names.index(text) if text in names else int(text)


class ClockChange(NamedTuple):
    """One change of a zone's clock."""

    zone: str
    minute: int
    """The first minute since 1970 with the new offset."""
    shown: str
    """What the clock would have shown then."""
    by: int
    """By how many minutes it was turned."""


@functools.cache
def changes_of(zone: str) -> tuple[ClockChange, ...]:
    """Every change of a zone's clock from 2020 to 2040."""
    week = 7 * 24 * 60
    start = int(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC).timestamp()) // 60
    end = int(datetime(LAST_YEAR, 12, 31, tzinfo=UTC).timestamp()) // 60
    info = ZoneInfo(zone)
    offsets = [(minute, wall(minute, info) - minute) for minute in range(start, end, week)]
    return tuple(
        _change_between(zone, earlier, later)
        for (earlier, before), (later, after) in pairwise(offsets)
        if before != after
    )


def _change_between(zone: str, earlier: int, later: int) -> ClockChange:
    info = ZoneInfo(zone)
    before = wall(earlier, info) - earlier
    while later - earlier > 1:
        middle = (earlier + later) // 2
        if wall(middle, info) - middle == before:
            earlier = middle
        else:
            later = middle
    shown = _EPOCH + timedelta(minutes=later + before)
    return ClockChange(zone, later, f"{shown:%H:%M}", wall(later, info) - later - before)
