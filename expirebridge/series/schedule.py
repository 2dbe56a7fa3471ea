"""The schedule of a series: the arguments of `@every`, as a value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, Self, TypeVar, get_args
from zoneinfo import ZoneInfo

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.series.cron import Cron
from expirebridge.series.time_zones import tzdata_version, zone_of
from expirebridge.task import keys
from expirebridge.task.durations import Duration, check_aware, seconds_of, written
from expirebridge.task.task import from_ms, to_ms

Missed = Literal["latest", "skip"]
Overlap = Literal["skip", "allow"]
T = TypeVar("T")

SHORTEST = 1000
"""The shortest interval, in ms."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A tick every so many milliseconds, counted from one moment: it never drifts."""

    ms: int

    @classmethod
    def of(cls, every: Duration) -> Self:
        """Read an interval: seconds, a timedelta, or text such as "15m".

        Raises InvalidTask if it is not one, or shorter than a second.
        """
        ms = round(seconds_of(every, name="every") * 1000)
        if ms < SHORTEST:
            raise InvalidTask(f"every={every!r}: an interval is at least a second")
        return cls(ms)

    def next_after(self, moment: int, *, origin: int) -> int:
        """Return the first of origin, origin + ms, origin + 2 ms, ... after a moment."""
        passed = max(moment - origin, -1)
        return origin + (passed // self.ms + 1) * self.ms

    @property
    def shortest(self) -> int:
        """The time between two ticks, in ms."""
        return self.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The times of the ticks of a series, and the policies for late and overlapping ones.

    Times are in milliseconds since 1970.
    """

    rule: Cron | Interval
    start: int | None = None
    """The first moment at which there may be a tick. Intervals count from it."""
    until: int | None = None
    """The last moment at which there may be a tick."""
    jitter: int = 0
    """The limit of the random delay of each tick after its scheduled time, in ms."""
    missed: Missed = "latest"
    overlap: Overlap = "skip"

    def next_after(self, moment: int, *, created: int) -> int | None:
        """Return the time of the first tick after a moment, without jitter. None: there is none.

        `created` is when the series was first made: an interval without a start counts from then.
        """
        if self.start is not None:
            moment = max(moment, self.start - 1)
        if isinstance(self.rule, Cron):
            tick = self.rule.next_after(moment)
        else:
            origin = created if self.start is None else self.start
            tick = self.rule.next_after(moment, origin=origin)
        if tick is None or (self.until is not None and tick > self.until):
            return None
        return tick

    def ticks(self, moment: int, n: int, *, created: int) -> Iterator[int]:
        """Yield the times of the next `n` ticks after a moment; fewer if the series ends before."""
        for _ in range(n):
            tick = self.next_after(moment, created=created)
            if tick is None:
                return
            yield tick
            moment = tick

    def delay(self, id: str) -> int:
        """Return by how much jitter puts off each tick of the series with this id, in ms.

        It is the same for all its ticks, on every host.
        """
        if not self.jitter:
            return 0
        digest = sha256(id.encode()).digest()
        return int.from_bytes(digest[:8]) * self.jitter // 2**64

    @property
    def tz(self) -> str:
        """The IANA name of the time zone: UTC for intervals."""
        return self.rule.tz if isinstance(self.rule, Cron) else "UTC"

    @property
    def tzdata(self) -> str:
        """The version of this host's data for the zone, as `tzdata_version`.

        It is empty if no such data decides when the ticks are.
        """
        return tzdata_version(self.tz) if self.tz != "UTC" else ""

    def local(self, tick: int) -> datetime:
        """Return the time of a tick as people write it: in the zone of the series."""
        return from_ms(tick).astimezone(zone_of(self.tz))

    def __str__(self) -> str:
        """The text for people: `30 2 * * * Europe/Berlin`, `every 15m`."""
        if isinstance(self.rule, Cron):
            return f"{self.rule.expression} {self.rule.tz}"
        return f"every {written(self.rule.ms)}"

    def to_json(self) -> dict[str, Any]:
        """The JSON for `schedule_from_json`: only values that differ from the default."""
        if isinstance(self.rule, Cron):
            stored: dict[str, Any] = {"cron": self.rule.expression, "tz": self.rule.tz}
        else:
            stored = {"every": self.rule.ms}
        optional = {"start": self.start, "until": self.until, "jitter": self.jitter or None}
        stored |= {name: value for name, value in optional.items() if value is not None}
        if self.missed != "latest":
            stored["missed"] = self.missed
        if self.overlap != "skip":
            stored["overlap"] = self.overlap
        return stored


def schedule_of(
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str | ZoneInfo | None = None,
    jitter: Duration | None = None,
    start: datetime | None = None,
    until: datetime | None = None,
    missed: Missed = "latest",
    overlap: Overlap = "skip",
) -> Schedule:
    """Turn the arguments that say when a series has its ticks into a schedule.

    Exactly one of `cron`, an expression, and `every`, an interval, is needed. Raises InvalidTask
    for values that cannot be, and for a schedule without a single tick.
    """
    schedule = Schedule(
        rule=_rule(cron, every, tz),
        start=None if start is None else to_ms(check_aware(start, name="start")),
        until=None if until is None else to_ms(check_aware(until, name="until")),
        jitter=0 if jitter is None else round(seconds_of(jitter, name="jitter") * 1000),
        missed=_one_of(missed, get_args(Missed), "missed"),
        overlap=_one_of(overlap, get_args(Overlap), "overlap"),
    )
    _check_span(schedule)
    if schedule.jitter >= schedule.rule.shortest:
        shortest = written(schedule.rule.shortest)
        raise InvalidTask(
            f"jitter={jitter!r}: it must be shorter than the time between two ticks, {shortest}"
        )
    return schedule


def rule_arguments(when: Duration) -> dict[str, Any]:
    """Return the argument of `schedule_of` for one value: a cron expression or an interval.

    Text with spaces, or that begins with `@`, is an expression.
    """
    if isinstance(when, str) and (when.startswith("@") or len(when.split()) > 1):
        return {"cron": when}
    return {"every": when}


def schedule_from_json(stored: Mapping[str, Any]) -> Schedule:
    """Read a schedule back. Raises InvalidTask, which is a ValueError, if it is not one."""
    try:
        return schedule_of(
            cron=stored.get("cron"),
            every=_from_ms(stored.get("every")),
            tz=stored.get("tz"),
            jitter=_from_ms(stored.get("jitter")),
            start=None if stored.get("start") is None else from_ms(stored["start"]),
            until=None if stored.get("until") is None else from_ms(stored["until"]),
            missed=stored.get("missed", "latest"),
            overlap=stored.get("overlap", "skip"),
        )
    except (TypeError, AttributeError) as error:
        raise InvalidTask(f"not a schedule: {stored!r}") from error


def _from_ms(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _rule(cron: str | None, every: Duration | None, tz: str | ZoneInfo | None) -> Cron | Interval:
    if (cron is None) == (every is None):
        raise InvalidTask("give either a cron expression or an interval")
    if every is not None:
        if tz is not None:
            raise InvalidTask(f"tz={_key(tz)!r}: an interval has no time zone; leave it out")
        return Interval.of(every)
    if not isinstance(cron, str):
        raise InvalidTask(f"cron={cron!r}: give text, such as '30 2 * * *'")
    return Cron.parse(cron, "UTC" if tz is None else _key(tz))


def _key(tz: str | ZoneInfo) -> str:
    """The name of a zone. Raises InvalidTask."""
    name: object = tz.key if isinstance(tz, ZoneInfo) else tz
    if not isinstance(name, str):
        raise InvalidTask(f"tz={tz!r}: give the name of a time zone, such as 'Europe/Berlin'")
    return name


def _one_of(value: T, legal: tuple[T, ...], name: str) -> T:
    if value not in legal:
        raise InvalidTask(f"{name}={value!r}: one of {', '.join(map(repr, legal))}")
    return value


def _check_span(schedule: Schedule) -> None:
    """Raise InvalidTask if no tick is possible between start and until."""
    start, until = schedule.start, schedule.until
    if start is None or until is None:
        return
    if until < start:
        raise InvalidTask(
            f"until={from_ms(until).isoformat()}: it is before start={from_ms(start).isoformat()}"
        )
    if schedule.next_after(start - 1, created=start) is None:
        raise InvalidTask(
            f"until={from_ms(until).isoformat()}: no tick is between start="
            f"{from_ms(start).isoformat()} and then"
        )


# A series, as it is declared or asked for: what runs, and when.

_LONGEST_TICK = len("@9999999999999")
"""Of an id, what a tick adds to that of its series: enough until the year 2286."""
MAX_ID = 128 - _LONGEST_TICK
"""The most characters that the id of a series can have."""
_FINGERPRINT = 16
"""Hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSpec:
    """The definition of a series: its call, schedule and policies, as a deploy can change them."""

    id: str
    func: str
    args: bytes
    """JSON, as `encode_args` writes it: at most 64 KiB."""
    schedule: Schedule
    fields: Mapping[str, str | float] = field(default_factory=dict)
    """Tags and policies of its ticks, as the record of a task holds them."""

    @property
    def fingerprint(self) -> str:
        """A short hash of what the series runs and when: equal if nothing differs but the id."""
        content = {
            "func": self.func,
            # As text: the order of keyword arguments is kept.
            "args": self.args.decode(),
            "schedule": self.schedule.to_json(),
            "fields": self.fields,
        }
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return sha256(canonical).hexdigest()[:_FINGERPRINT]


def check_series_id(id: object) -> str:
    """Return a valid id of a series; raise InvalidTask for any other, or if its ticks had none."""
    checked = keys.check_id(id)
    if len(checked) > MAX_ID:
        raise InvalidTask(
            f"id={checked[:40]!r}...: {len(checked)} characters; a series has at most {MAX_ID}, "
            "since the id of a tick is <series>@<milliseconds>"
        )
    return checked
