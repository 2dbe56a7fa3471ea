"""Durations as people write them: seconds, a timedelta, or text such as "1h30m"."""

import math
import re
from datetime import datetime, timedelta

from expirebridge.errors import InvalidTask

Duration = float | timedelta | str

LONGEST = 100 * 365 * 86400.0
"""A hundred years. A longer delay is a mistake, such as milliseconds in place of seconds."""

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def seconds_of(value: Duration, *, name: str) -> float:
    """Return `value` in seconds. Errors call it `name`.

    Numbers are seconds; text is one or more of `90s`, `15m`, `1h30m`, `2d`, `1w`, `250ms`.
    Raises InvalidTask for anything else, for negative durations and for those over 100 years.
    """
    match value:
        case bool():
            raise InvalidTask(f"{name}={value!r}: give seconds, a timedelta, or text like '15m'")
        case timedelta():
            seconds = value.total_seconds()
        case str():
            seconds = _parse(value, name)
        case int() | float():
            seconds = _number(value)
        case _:
            raise InvalidTask(f"{name}={value!r}: {_as_duration(value, name)}")
    if not math.isfinite(seconds):
        raise InvalidTask(f"{name}={value!r}: not a finite duration")
    if seconds < 0:
        raise InvalidTask(f"{name}={value!r}: a duration cannot be negative")
    if seconds > LONGEST:
        raise InvalidTask(f"{name}={value!r}: longer than 100 years; durations are in seconds")
    return seconds


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer larger than any float
        return math.inf


def _parse(text: str, name: str) -> float:
    amount = text.removeprefix("-")
    if not _WHOLE.fullmatch(amount):
        raise InvalidTask(
            f"{name}={text!r}: not a duration; write it like 90s, 15m, 1h30m, 2d or 250ms"
        )
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(amount))
    return -seconds if amount != text else seconds


def _as_duration(given: object, name: str) -> str:
    """What to give instead of something that is no duration."""
    if isinstance(given, datetime) and name == "delay":
        return "that is a time: give it as at="
    return "give seconds, a timedelta, or text like '15m'"


def human(seconds: float) -> str:
    """Write a duration in its two largest units: `2d 4h`, `1m 30s`, `250ms`."""
    if round(seconds * 1000) < 1000:
        return f"{round(seconds * 1000)}ms"
    left = round(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, int(_SECONDS[unit]))
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts[:2])


def written(ms: int) -> str:
    """Write milliseconds as `seconds_of` reads them, exactly: `1h30m`, `1s500ms`."""
    parts: list[str] = []
    for unit in ("w", "d", "h", "m", "s", "ms"):
        number, ms = divmod(ms, round(_SECONDS[unit] * 1000))
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


# Moments as people give them: aware datetimes.


def check_aware(moment: object, *, name: str) -> datetime:
    """Return a datetime that has a time zone; raise InvalidTask for anything else."""
    if not isinstance(moment, datetime):
        raise InvalidTask(f"{name}={moment!r}: {_as_moment(moment, name)}")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise InvalidTask(
            f"{name}={moment.isoformat()}: a naive datetime is ambiguous; give it a time zone, "
            "such as datetime.now(UTC)"
        )
    return moment


def _as_moment(given: object, name: str) -> str:
    """What to give instead of something that is no moment."""
    example = "give an aware datetime, such as datetime.now(UTC) + timedelta(hours=2)"
    if not isinstance(given, str):
        return example
    if _WHOLE.fullmatch(given):
        if name == "at":
            return f"that is a duration: give it as delay={given!r}"
        seconds = f"{_parse(given, name):g}"
        return f"give an aware datetime: datetime.now(UTC) + timedelta(seconds={seconds})"
    try:
        datetime.fromisoformat(given)
    except ValueError:
        return example
    return f"give an aware datetime: datetime.fromisoformat({given!r})"
