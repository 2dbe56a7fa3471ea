"""When a failed attempt is tried again."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.errors import InvalidTask
from expirebridge.task.policies import (
    DEFAULT_POLICY,
    MAX_ATTEMPTS,
    Busy,
    Delays,
    Discard,
    Exponential,
    Retry,
    RetryPolicy,
    Snooze,
    decode_policy,
    policy_of,
)
from tests.kit.cases import each

SECOND, MINUTE, HOUR = 1, 60, 3600


def test_the_default_is_the_schedule_that_wechat_pay_publishes() -> None:
    delays = [DEFAULT_POLICY.delay(attempt) for attempt in range(1, 16)]
    assert delays == [
        15 * SECOND, 15 * SECOND, 30 * SECOND,
        3 * MINUTE, 10 * MINUTE, 20 * MINUTE, 30 * MINUTE, 30 * MINUTE, 30 * MINUTE,
        60 * MINUTE, 3 * HOUR, 3 * HOUR, 3 * HOUR, 6 * HOUR, 6 * HOUR,
    ]  # fmt: skip
    assert DEFAULT_POLICY.delay(16) is None
    assert sum(DEFAULT_POLICY.seconds) == 24 * HOUR + 4 * MINUTE


def test_a_list_gives_one_delay_after_each_failure_and_then_gives_up() -> None:
    policy = policy_of([15, "1m", timedelta(hours=1)])
    assert policy is not None
    assert [policy.delay(attempt) for attempt in (1, 2, 3, 4, 5)] == [15, 60, 3600, None, None]


def test_an_empty_list_means_one_attempt_only() -> None:
    policy = policy_of([])
    assert policy is not None
    assert policy.delay(1) is None


def test_nothing_said_is_no_policy() -> None:
    assert policy_of(None) is None


def test_a_policy_is_taken_as_it_is() -> None:
    policy = Exponential()
    assert policy_of(policy) is policy
    assert policy_of(DEFAULT_POLICY) is DEFAULT_POLICY


@each(
    ("spec", "named"),
    [
        ("15m", "retry='15m'"),
        (b"15m", "retry="),
        (15, "retry=15"),
        ({15: 30}, "retry="),
        (object(), "retry="),
        (Exponential, "retry="),
        ([15, -1], r"retry\[1\]=-1"),
        ([15, "soon"], r"retry\[1\]='soon'"),
        ([math.nan], r"retry\[0\]=nan"),
        ([math.inf], r"retry\[0\]=inf"),
        ([None], r"retry\[0\]=None"),
        ([True], r"retry\[0\]=True"),
        ([[15]], r"retry\[0\]="),
        ([1] * MAX_ATTEMPTS, "1000 delays are too many"),
    ],
)
def test_what_is_no_policy_is_refused_by_its_place(spec: Any, named: str) -> None:
    with pytest.raises(InvalidTask, match=named):
        policy_of(spec)


# Exponential

# Up to here plain multiplication stays finite.
FACTORS = st.floats(1, 10)
ATTEMPTS = st.integers(1, 60)


@given(first=st.floats(0.001, 3600), factor=FACTORS, spread=FACTORS, attempt=ATTEMPTS)
def test_an_exponential_delay_lies_between_half_and_the_whole(
    first: float, factor: float, spread: float, attempt: int
) -> None:
    policy = Exponential(
        first=first, factor=factor, longest=first * spread**3, attempts=MAX_ATTEMPTS
    )
    whole = first
    for _ in range(attempt - 1):
        whole = min(policy.longest, whole * factor)
    delay = policy.delay(attempt)
    assert delay is not None
    assert whole * 0.499999 <= delay <= whole * 1.000001


def test_exponential_delays_are_spread_over_their_whole_range() -> None:
    policy = Exponential(first=100)
    delays = [policy.delay(1) or 0 for _ in range(300)]
    assert min(delays) < 60
    assert max(delays) > 90


def test_exponential_gives_up_after_its_attempts() -> None:
    policy = Exponential(attempts=3)
    assert [policy.delay(attempt) is None for attempt in (1, 2, 3, 4)] == [False, False, True, True]


def test_an_exponential_with_a_small_factor_grows_until_its_longest() -> None:
    # 1.05 to the power of 180 is over 6,000.
    delay = Exponential(factor=1.05, longest=3600, attempts=200).delay(181)
    assert delay is not None
    assert delay >= 1800


@each("factor", [1e6, 1e300])
def test_an_exponential_with_a_great_factor_stays_at_its_longest(factor: float) -> None:
    delay = Exponential(factor=factor, attempts=MAX_ATTEMPTS).delay(999)
    assert delay is not None
    assert 1800 <= delay <= 3600


@each(
    "options",
    [
        {"first": 0},
        {"first": -1},
        {"first": math.nan},
        {"factor": 0.99},
        {"factor": math.nan},
        {"longest": 0.5},
        {"longest": math.nan},
        {"attempts": 0},
        {"attempts": MAX_ATTEMPTS + 1},
        # What JSON, or a due time, cannot hold would be found out only when an attempt has failed.
        {"first": math.inf, "longest": math.inf},
        {"factor": math.inf},
        {"longest": math.inf},
        {"longest": 1e300},
        {"first": "1m"},
        {"attempts": 2.5},
    ],
)
def test_an_exponential_that_cannot_be_is_refused(options: Any) -> None:
    with pytest.raises(InvalidTask):
        Exponential(**options)


# In the record

POLICIES: st.SearchStrategy[RetryPolicy] = st.one_of(
    st.lists(st.floats(0, 1e9), max_size=20).map(lambda seconds: Delays(tuple(seconds))),
    st.builds(
        Exponential,
        first=st.floats(0.001, 100),
        factor=st.floats(1, 100),
        longest=st.floats(100, 1e6),
        attempts=st.integers(1, MAX_ATTEMPTS),
    ),
)


@given(POLICIES)
def test_a_policy_comes_back_from_its_record(policy: RetryPolicy) -> None:
    assert decode_policy(policy.encode()) == policy


def test_the_default_comes_back_from_its_record() -> None:
    assert decode_policy(DEFAULT_POLICY.encode()) == DEFAULT_POLICY


@each(
    "stored",
    [
        b"", b"\xff", b"15", b"null", b'"x"', b"[1", b'["x"]', b"[null]", b"[[1]]", b'{"x":1}',
        b'{"first":-1}', b'{"first":"a"}', b'{"attempts":0}', b'{"longest":null}',
    ],
)  # fmt: skip
def test_what_is_no_policy_in_a_record_raises_value_error(stored: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_policy(stored)


# What a handler raises


@each(("after", "seconds"), [(90, 90), ("15m", 900), (timedelta(minutes=1), 60), (0, 0)])
def test_retry_takes_any_duration(after: float | timedelta | str, seconds: float) -> None:
    retry = Retry(after)
    assert retry.after == seconds
    assert str(retry) == f"the handler asked to be run again after {seconds} s"


def test_retry_and_discard_say_their_reason() -> None:
    assert str(Retry("1m", "the shop is closed")) == "the shop is closed"
    assert Discard("no such user").reason == str(Discard("no such user")) == "no such user"


def test_snooze_says_why_it_is_not_granted_any_more() -> None:
    until = datetime(2031, 5, 1, tzinfo=UTC)
    now = until.timestamp()
    snooze = Snooze("1h", "a rate limit", times=2, until=until)
    assert [snooze.refusal(snoozes, now - 1) for snoozes in (0, 1)] == [None, None]
    assert snooze.refusal(2, now - 1) == "snoozed 2 times, 2 allowed: a rate limit"
    assert snooze.refusal(1, now) == (
        "snoozed 1 time, until 2031-05-01T00:00:00+00:00: a rate limit"
    )
    assert Snooze(90).refusal(10**9, now) is None


@given(
    after=st.floats(0, 1e6), left=st.floats(0.001, 1e6), snoozes=st.integers(0, 20),
    times=st.none() | st.integers(1, 10),
)  # fmt: skip
def test_a_granted_snooze_waits_no_longer_than_it_may(
    after: float, left: float, snoozes: int, times: int | None
) -> None:
    until = datetime(2031, 5, 1, tzinfo=UTC)
    snooze, now = Snooze(after, times=times, until=until), until.timestamp() - left
    assert (snooze.refusal(snoozes, now) is None) == (times is None or snoozes < times)
    assert 0 <= snooze.delay(now) <= min(after, left + 1e-3)
    assert Snooze(after).delay(now) == after


@each(
    ("wrong", "name"),
    [
        ({"after": "soon"}, "after"), ({"after": -1}, "after"),
        ({"times": 0}, "times"), ({"times": 1.5}, "times"), ({"times": True}, "times"),
        ({"until": datetime(2031, 5, 1)}, "until"),
        ({"until": "18:00"}, "until"),
    ],
)  # fmt: skip
def test_snooze_refuses_what_is_no_limit(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidTask, match=f"^{name}="):
        Snooze(**{"after": 1, **wrong})


@each(
    ("wrong", "name"),
    [
        ({"after": "soon"}, "after"),
        ({"per": ""}, "per"),
        ({"per": "a b"}, "per"),
        ({"per": 0}, "per"),
    ],
)
def test_busy_refuses_what_is_no_duration_or_parameter(wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidTask, match=f"^{name}="):
        Busy(**{"after": 1, **wrong})


@each("after", [-1, "soon", math.nan, None])
def test_retry_refuses_what_is_no_duration(after: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^after="):
        Retry(after)
