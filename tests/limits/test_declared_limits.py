"""Limits and rates: what they accept, and the value of an argument in the name of its lane."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge import Limit, Rate
from expirebridge.errors import InvalidTask
from expirebridge.limits.values import MOST, lane_value, limits_of
from tests.kit.cases import each
from tests.kit.lane_values import LANE_VALUES, LaneValue


def test_a_limit_is_written_with_its_number_and_the_longest_wait_in_ms() -> None:
    assert Limit(5).encode() == b'{"most":5}'
    assert Limit(5, per="customer", name="sms").encode() == b'{"most":5}'
    assert Limit(MOST, wait="5m").encode() == b'{"most":1000000,"wait":300000}'
    assert Limit(1, wait=timedelta(days=1)) != Limit(1, wait="1d")
    assert Limit(1, wait=timedelta(days=1)).encode() == Limit(1, wait="1d").encode()


def test_a_rate_is_written_with_the_interval_in_microseconds() -> None:
    assert Rate(100, "1m").encode() == b'{"interval":600000,"burst":1}'
    assert Rate(100, "1m", burst=20).encode() == b'{"interval":600000,"burst":20}'
    assert Rate(1, timedelta(hours=1), per="account").interval == 3_600_000_000
    assert Rate(1_000_000, 1).interval == 1


def test_a_limit_is_a_value() -> None:
    assert Limit(5, per="customer") == Limit(5, per="customer")
    assert hash(Rate(5, "1s")) == hash(Rate(5, "1s"))
    assert repr(Rate(5, 1)) == "Rate(starts=5, every=1, per=None, name=None, burst=1)"
    with pytest.raises(AttributeError):
        Limit(5).most = 6  # type: ignore[misc]
    with pytest.raises(TypeError):
        Limit(5, "customer")  # type: ignore[call-arg]


@given(st.integers(1, MOST), st.integers(1, 10**9))
def test_an_interval_never_allows_more_starts_than_the_rate(starts: int, ms: int) -> None:
    every = timedelta(milliseconds=ms)
    if ms * 1000 < starts:
        with pytest.raises(InvalidTask, match="more than one a microsecond"):
            Rate(starts, every)
        return
    exact = Fraction(ms * 1000, starts)
    assert exact <= Rate(starts, every).interval < exact + 1


@each("number", [0, -1, MOST + 1, 1.0, True, "5", None])
def test_a_number_that_cannot_be_is_refused(number: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^most=.*: it must be a whole number, 1 to 1000000$"):
        Limit(number)
    with pytest.raises(InvalidTask, match=r"^starts=.*: it must be a whole number"):
        Rate(number, "1m")
    with pytest.raises(InvalidTask, match=r"^burst=.*: it must be a whole number"):
        Rate(1, "1m", burst=number)


@each("per", ["", "a b", "a.b", "0", "user[0]", 0, b"user"])
def test_a_parameter_that_cannot_be_is_refused(per: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^per=.*: give the name of a parameter"):
        Limit(5, per=per)
    with pytest.raises(InvalidTask, match=r"^per=.*: give the name of a parameter"):
        Rate(5, "1m", per=per)


@each("name", ["", "a.b", "a=b", "a b", "a\n", "é", "a" * 101, 5])
def test_a_name_that_cannot_be_is_refused(name: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^name=.*: a limit's name has 1 to 100 characters"):
        Limit(5, name=name)
    with pytest.raises(InvalidTask, match=r"^name=.*: a limit's name has 1 to 100 characters"):
        Rate(5, "1m", name=name)
    assert Limit(5, name="aZ_-9" * 20).name


@each("most", [0, 2, MOST])
def test_tasks_in_order_run_one_at_a_time(most: int) -> None:
    with pytest.raises(InvalidTask, match=rf"^most={most}: "):
        Limit(most, ordered=True)
    assert Limit(1, ordered=True).encode() == b'{"most":1,"ordered":true}'


def test_what_is_for_lanes_in_order_only_is_refused_elsewhere() -> None:
    with pytest.raises(InvalidTask, match=r"^fair='customer': tasks in order take no turns"):
        Limit(1, ordered=True, fair="customer")
    with pytest.raises(InvalidTask, match=r"^on_failed='hold': it needs ordered=True$"):
        Limit(1, on_failed="hold")
    with pytest.raises(InvalidTask, match=r"^on_failed='stop': write 'next' or 'hold'$"):
        Limit(1, ordered=True, on_failed="stop")  # type: ignore[arg-type]


@each("wait", [0, "0.4ms", -1, "soon", "200000w", True])
def test_a_wait_that_cannot_be_is_refused(wait: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^wait="):
        Limit(5, wait=wait)


@each("every", [0, -1, "soon", "1us", None])
def test_a_time_that_cannot_be_is_refused(every: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^every="):
        Rate(5, every)


def test_a_burst_takes_at_most_a_hundred_years_to_be_used_again() -> None:
    assert Rate(1, "36500d").interval == 36500 * 86400 * 1_000_000
    with pytest.raises(InvalidTask, match=r"^burst=2: .* give a smaller burst$"):
        Rate(1, "36500d", burst=2)


# Several on one handler

EACH, ALL, RATE = Limit(5, per="customer"), Limit(50), Rate(100, "1m")


def test_places_are_taken_in_one_order() -> None:
    assert limits_of(None, None) == limits_of([], None) == ()
    assert limits_of(ALL, None) == limits_of([ALL], None) == (ALL,)
    assert limits_of([EACH, ALL], None) == limits_of([ALL, EACH], None) == (EACH, ALL)
    assert limits_of(EACH, RATE) == (RATE, EACH)
    assert limits_of((ALL,), RATE) == (RATE, ALL)
    assert limits_of(None, RATE) == (RATE,)


@each(
    ("limit", "rate", "why"),
    [
        ([EACH, ALL, EACH], None, "3 on one handler; at most two together"),
        ([EACH, ALL], RATE, "3 on one handler; at most two together"),
        ([EACH, Limit(1, per="order")], None, "two limits with `per`"),
        ([ALL, Limit(1)], None, "two limits without `per`"),
        (5, None, "give a Limit"),
        ([5], None, "give a Limit"),
        (RATE, None, "give a Limit"),
        ({ALL}, None, "give a Limit"),
        (None, 5, "give a Rate"),
        (None, ALL, "give a Rate"),
        (None, [RATE], "give a Rate"),
    ],
)
def test_what_cannot_be_together_is_refused(limit: Any, rate: Any, why: str) -> None:
    with pytest.raises(InvalidTask, match=why):
        limits_of(limit, rate)


# Lanes


@each("case", LANE_VALUES)
def test_an_argument_chooses_a_lane(case: LaneValue) -> None:
    assert lane_value(orjson.loads(case.json)) == case.python


@given(st.text() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.none())
def test_a_value_is_short_and_fits_on_a_line(value: object) -> None:
    encoded = lane_value(value).encode()
    assert len(encoded) <= 100
    assert not any(byte < 0x20 or byte == 0x7F for byte in encoded)


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_has_one_lane(number: int) -> None:
    assert lane_value(number) == lane_value(float(number)) == lane_value(str(number))
