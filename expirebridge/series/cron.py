"""Cron expressions: five fields in a time zone, by the rules of Debian's cron.

`cronsim` reads the fields and finds the local times that match, as if the clock on the wall never
changed. What happens when it does is decided here, from the data of the zone alone:

- An expression with a fixed time, whose minute and hour do not begin with `*`, has each of its
  local times once. One that the clock leaves out becomes the first moment after the gap; of one
  that comes twice, the first counts.
- Any other, such as `*/15 * * * *`, follows elapsed time: it has what the clock on the wall shows,
  both times in a repeated hour, and nothing in a gap.
"""

import functools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from expirebridge.errors import InvalidTask
from expirebridge.series.time_zones import zone_of
from expirebridge.task.durations import seconds_of
from expirebridge.task.task import from_ms, to_ms

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")

_LONGEST = 256
"""Characters of an expression. The longest that anybody needs lists a few dozen minutes."""
_EXAMPLE = "write 'minute hour day month weekday', such as '30 2 * * *'"
_LOOKED_AT = datetime(2024, 1, 1, tzinfo=UTC)
"""From here on an expression is tried. Any other moment would do."""
_GAPS = 100
_LONGEST_GAP = 3 * 3_600_000
"""Milliseconds in which a tick is looked for that the clock leaves out."""
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone."""

    expression: str
    """Five fields, as `parse` writes them: with single spaces, names in capitals."""
    tz: str
    """The IANA name of the zone."""

    @classmethod
    def parse(cls, expression: str, tz: str = "UTC") -> Self:
        """Read an expression: five fields, or a name such as `@daily`.

        Raises InvalidTask for any other text, for an unknown zone, and for an expression that never
        fires, such as 30 February.
        """
        cron = cls(_canonical(expression), tz)
        zone_of(tz)
        if cron.next_after(to_ms(_LOOKED_AT)) is None:
            raise InvalidTask(f"cron={expression!r}: it never fires")
        return cron

    def next_after(self, moment: int) -> int | None:
        """Return its first tick after a moment; both in ms since 1970. None: there is none.

        It is computed once for all that have this expression, zone and moment.
        """
        return _next(self.expression, self.tz, moment)

    def moved(self, tick: int, offset: int) -> int:
        """Return the tick of the same local time as one from other data of the zone.

        `offset` is what that zone was ahead of UTC then, in seconds. If these data have no such
        tick, since the clock leaves that time out, or no longer does, it is the nearest.
        """
        return _moved(self.expression, self.tz, tick, offset)

    @property
    def shortest(self) -> int:
        """The shortest time between two ticks, in ms, in its first hundred of a year without
        changes of the clock."""
        return _shortest(self.expression)


@functools.lru_cache(maxsize=4096)
def _next(expression: str, tz: str, moment: int) -> int | None:
    after, zone = from_ms(moment), zone_of(tz)
    follow = _by_the_wall if _is_fixed(expression) else _by_elapsed_time
    try:
        found = follow(expression, zone, after)
    except OverflowError:  # beyond the last year that a datetime can hold
        return None
    return None if found is None else to_ms(found)


@functools.lru_cache(maxsize=4096)
def _moved(expression: str, tz: str, tick: int, offset: int) -> int:
    local = from_ms(tick + offset * 1000).replace(tzinfo=zone_of(tz))
    passes = (to_ms(local.replace(fold=fold)) for fold in (0, 1))
    moment = min(passes, key=lambda one: abs(one - tick))
    near = [found := _next(expression, tz, moment - 1)]
    if found != moment:
        found = _next(expression, tz, moment - _LONGEST_GAP)
        while found is not None and found < moment:
            near.append(found)
            found = _next(expression, tz, found)
    return min((one for one in near if one is not None), key=lambda one: abs(one - moment))


@functools.lru_cache(maxsize=4096)
def _shortest(expression: str) -> int:
    times = _matches(expression, _LOOKED_AT.replace(tzinfo=None))
    first = [time for time, _ in zip(times, range(_GAPS), strict=False)]
    return min(later - earlier for earlier, later in pairwise(first)) // timedelta(milliseconds=1)


def _is_fixed(expression: str) -> bool:
    minute, hour, *_ = expression.split()
    return not (minute.startswith("*") or hour.startswith("*"))


def _by_the_wall(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first tick after a moment, if each local time counts once."""
    for local in _matches(expression, _local(after, zone)):
        moment = _moment(local, zone) or _end_of_gap(local, zone)
        # In the second pass of a repeated hour, the first pass of what matches is over.
        if moment > after:
            return moment
    return None


def _by_elapsed_time(expression: str, zone: ZoneInfo, after: datetime) -> datetime | None:
    """The first tick after a moment, if a local time counts as often as the clock shows it."""
    second_pass: datetime | None = None
    for local in _matches(expression, _local(after, zone) - _turned_back_after(after, zone)):
        first, second = _moment(local, zone), _moment(local, zone, fold=1)
        if first is not None and first > after:
            return first if second_pass is None else min(first, second_pass)
        if second_pass is None and second is not None and second > after:
            second_pass = second
    return second_pass


def _matches(expression: str, local: datetime) -> Iterator[datetime]:
    """The local times after one that match, without a zone."""
    return CronSim(expression, local)


def _local(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def _moment(local: datetime, zone: ZoneInfo, *, fold: int = 0) -> datetime | None:
    """The time at which the clock shows a local time, first or second; None if it never does.

    For one that it shows once, both are the same.
    """
    moment = local.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    return moment if _local(moment, zone) == local else None


def _end_of_gap(local: datetime, zone: ZoneInfo) -> datetime:
    """The first moment after the gap in which a local time is."""
    # Read by the offset after the gap it is too early, and by the one before it too late.
    earliest = local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    latest = local.replace(tzinfo=zone, fold=0).astimezone(UTC)
    seconds = range((latest - earliest) // timedelta(seconds=1) + 1)
    changed = bisect_left(
        seconds,
        x=True,
        key=lambda passed: _local(earliest + timedelta(seconds=passed), zone) > local,
    )
    return earliest + timedelta(seconds=changed)


def _turned_back_after(moment: datetime, zone: ZoneInfo) -> timedelta:
    """By how much the clock is turned back within a day after a moment."""
    now, later = (one.astimezone(zone).utcoffset() for one in (moment, moment + _DAY))
    assert now is not None  # noqa: S101 - for the type checker: a zone has an offset
    assert later is not None  # noqa: S101 - the same
    return max(now - later, timedelta(0))


@functools.lru_cache(maxsize=4096)
def _canonical(expression: str) -> str:
    """The five fields of an expression. Raises InvalidTask."""
    if len(expression) > _LONGEST or not expression.isascii():
        raise InvalidTask(
            f"cron={expression[:60]!r}...: an expression has at most {_LONGEST} characters, all "
            f"ASCII; {_EXAMPLE}"
        )
    text = expression.strip()
    if text.startswith("@"):
        return _nickname(text)
    fields = text.upper().split()
    if len(fields) != len(FIELDS):
        raise InvalidTask(f"cron={expression!r}: {_miscount(text, len(fields))}; {_EXAMPLE}")
    for position, (name, field) in enumerate(zip(FIELDS, fields, strict=True)):
        alone = ["*"] * len(FIELDS)
        alone[position] = field
        if not _is_read(" ".join(alone)):
            raise InvalidTask(f"cron={expression!r}: {field!r} is not a valid {name}")
    joined = " ".join(fields)
    if not _is_read(joined):  # each field is right, but not the day in these months
        raise InvalidTask(f"cron={expression!r}: it never fires: no month in it has such a day")
    return joined


def _is_read(expression: str) -> bool:
    try:
        CronSim(expression, _LOOKED_AT)
    except (CronSimError, ValueError, AssertionError):
        return False
    return True


def _nickname(text: str) -> str:
    if text.lower() in NICKNAMES:
        return NICKNAMES[text.lower()]
    if text.lower() == "@reboot":
        raise InvalidTask(
            "cron='@reboot': it names no time; what a listener does when it starts is a lifespan"
        )
    raise InvalidTask(f"cron={text!r}: no such name; there are {', '.join(NICKNAMES)}")


def _miscount(text: str, fields: int) -> str:
    if fields == len(FIELDS) + 1:
        return "six fields: seconds and years are not supported; give an interval such as '10s'"
    if fields == len(FIELDS) + 2:
        return "seven fields: seconds and years are not supported"
    try:
        seconds_of("".join(text.split()), name="every")
    except InvalidTask:
        return f"{fields} fields, not five"
    return f"an interval is written without spaces, such as {''.join(text.split())!r}"
