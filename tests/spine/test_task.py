"""Times of tasks, and their states."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expirebridge import current_task
from expirebridge.task.task import FINISHED, State, Task, from_ms, to_ms
from tests.kit.cases import each

MILLISECOND = timedelta(milliseconds=1)
ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# A day from either end of the calendar, so that no zone leads beyond it.
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=ZONES)


@given(st.integers(to_ms(datetime.min.replace(tzinfo=UTC)), 253_402_300_799_999))
@example(0)
@example(-1)
@example(253_402_300_799_999)
def test_milliseconds_come_back_from_a_datetime_as_they_were(ms: int) -> None:
    assert to_ms(from_ms(ms)) == ms


@given(MOMENTS)
@example(datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
@example(datetime(2030, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC))
@example(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
def test_a_moment_is_rounded_up_to_the_millisecond_and_never_earlier(moment: datetime) -> None:
    rounded = from_ms(to_ms(moment))
    assert moment <= rounded < moment + MILLISECOND


@each(
    ("moment", "ms"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC), 1500),
        (datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1),
        (datetime(1970, 1, 1, 8, tzinfo=timezone(timedelta(hours=8))), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), 0),
    ],
)
def test_a_moment_is_counted_from_1970_in_any_zone(moment: datetime, ms: int) -> None:
    assert to_ms(moment) == ms


def test_a_moment_is_given_in_utc() -> None:
    assert from_ms(1_893_456_000_001) == datetime(2030, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert from_ms(0).tzinfo is UTC


def test_three_states_are_finished() -> None:
    assert {state for state in State if state.finished} == FINISHED
    assert {State.SUCCEEDED, State.FAILED, State.CANCELLED} == FINISHED


def test_what_cannot_complete_says_what_to_do() -> None:
    now = datetime.now(UTC)
    task = Task(id="a", func="mail.send", key=b"a:?mail.send?[]", state=State.RUNNING, due=now)
    with closing(sqlite3.connect(":memory:")) as session:
        with pytest.raises(LookupError, match=r"only in a handler.*testing\.run_handler"):
            current_task().complete_in(session)
        with pytest.raises(LookupError, match=r"^task 'a' .*make it by ledger\.make_task.*_LEDGER"):
            task.complete_in(session)
