"""Durations as people write and read them."""

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.errors import InvalidTask
from expirebridge.task.durations import LONGEST, Duration, human, seconds_of, written
from tests.kit.cases import each


@each(
    ("value", "seconds"),
    [
        (0, 0),
        (90, 90),
        (1.5, 1.5),
        (timedelta(hours=1, milliseconds=5), 3600.005),
        ("250ms", 0.25),
        ("90s", 90),
        ("15m", 900),
        ("24h", 86400),
        ("1.5h", 5400),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1w", 604800),
        ("0s", 0),
        (LONGEST, LONGEST),
    ],
)
def test_a_duration_is_read_in_seconds(value: Duration, seconds: float) -> None:
    assert seconds_of(value, name="delay") == pytest.approx(seconds)


@given(*[st.integers(0, 100)] * 6)
def test_the_parts_of_a_text_are_added(w: int, d: int, h: int, m: int, s: int, ms: int) -> None:
    whole = timedelta(weeks=w, days=d, hours=h, minutes=m, seconds=s, milliseconds=ms)
    text = f"{w}w{d}d{h}h{m}m{s}s{ms}ms"
    assert seconds_of(text, name="delay") == pytest.approx(whole.total_seconds())


@each(
    "value",
    [
        -1, -0.001, timedelta(microseconds=-1), math.nan, math.inf, -math.inf, LONGEST + 1,
        timedelta.max, "5300w",
        "9" * 400 + "w",
        10**400,
        -(10**400),
        "", "5", "s", "1 h", "1h 30m", " 1h", "1h\n", "-5s", "+5s", "1e3s", "1H", "5 minutes",
        "5min", ".5h", "1.h", "\u0663s", "1h?",
        True, None, b"5s", [5], object(),
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^after="):
        seconds_of(value, name="after")


@each(
    ("seconds", "text"),
    [
        (0, "0ms"),
        (0.25, "250ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (90, "1m 30s"),
        (3600, "1h"),
        (3601, "1h 1s"),
        (3661, "1h 1m"),
        (187200, "2d 4h"),
        (LONGEST, "36500d"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert human(seconds) == text


@given(st.floats(0, LONGEST))
def test_a_shown_duration_can_be_read_again(seconds: float) -> None:
    # The most that two units leave out is just under an hour of a day and an hour.
    read = seconds_of(human(seconds).replace(" ", ""), name="delay")
    assert read == pytest.approx(seconds, rel=0.04, abs=0.51)


def test_a_negative_duration_is_told_from_what_is_none() -> None:
    for value in (-5, "-5m", "-1h30m"):
        with pytest.raises(InvalidTask, match=r"^by=.*: a duration cannot be negative$"):
            seconds_of(value, name="by")
    with pytest.raises(InvalidTask, match="not a duration"):
        seconds_of("-", name="by")


@each(("ms", "text"), [(0, "0s"), (900_000, "15m"), (1500, "1s500ms"), (5_405_000, "1h30m5s")])
def test_milliseconds_are_written_exactly(ms: int, text: str) -> None:
    assert written(ms) == text


@given(st.integers(0, round(LONGEST * 1000)))
def test_what_is_written_exactly_is_read_back(ms: int) -> None:
    assert round(seconds_of(written(ms), name="every") * 1000) == ms
