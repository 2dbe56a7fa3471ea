"""Limits and rates: what they accept, and the value of an argument in the name of its lane."""

import re
from datetime import timedelta
from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge import Budget, Limit, Rate
from expirebridge.errors import InvalidTask
from expirebridge.limits.bound_limits import bind_limits
from expirebridge.limits.values import MOST, lane_value, limits_of
from expirebridge.store.queue_places import limit_from
from tests.kit.cases import each
from tests.kit.lane_values import LANE_VALUES, LaneValue


def test_a_limit_is_written_with_its_number_and_the_longest_wait_in_ms() -> None:
    assert Limit(5).encode() == b'{"most":5}'
    assert Limit(5, per="customer", name="sms").encode() == b'{"most":5}'
    assert Limit(MOST, wait="5m").encode() == b'{"most":1000000,"wait":300000}'
    assert Limit(1, wait=timedelta(days=1)) != Limit(1, wait="1d")
    assert Limit(1, wait=timedelta(days=1)).encode() == Limit(1, wait="1d").encode()


def test_a_rate_is_written_with_its_time_in_microseconds() -> None:
    assert Rate(100, "1m").encode() == b'{"starts":100,"every":60000000,"burst":1}'
    assert Rate(100, "1m", burst=20).encode() == b'{"starts":100,"every":60000000,"burst":20}'
    hourly = Rate(1, timedelta(hours=1), per="account")
    assert hourly.encode() == b'{"starts":1,"every":3600000000,"burst":1}'
    assert Rate(1_000_000, 1).encode() == b'{"starts":1000000,"every":1000000,"burst":1}'


def test_a_budget_is_written_with_a_burst_only_if_it_has_one() -> None:
    tokens = Budget(2_000_000, "1m", of="tokens")
    assert tokens.encode() == b'{"starts":2000000,"every":60000000,"of":"tokens"}'
    assert Budget(10, 1, of="n", burst=3).encode() == (
        b'{"starts":10,"every":1000000,"of":"n","burst":3}'
    )
    assert (tokens.refill, Budget(10, 1, of="n", burst=3).refill) == (60, 0.3)


def test_a_limit_is_a_value() -> None:
    assert Limit(5, per="customer") == Limit(5, per="customer")
    assert hash(Rate(5, "1s")) == hash(Rate(5, "1s"))
    assert repr(Rate(5, 1)) == "Rate(starts=5, every=1, per=None, name=None, burst=1)"
    with pytest.raises(AttributeError):
        Limit(5).most = 6  # type: ignore[misc]
    with pytest.raises(TypeError):
        Limit(5, "customer")  # type: ignore[call-arg]


@given(st.integers(1, MOST), st.integers(1, 10**9))
def test_an_interval_as_it_is_shown_never_allows_more_than_the_rate(starts: int, ms: int) -> None:
    every = timedelta(milliseconds=ms)
    if ms * 1000 < starts:
        with pytest.raises(InvalidTask, match="more than one a microsecond"):
            Rate(starts, every)
        return
    exact = Fraction(ms * 1000, starts)
    shown = limit_from("l", Rate(starts, every).encode())
    assert shown is not None
    assert shown.interval is not None
    assert exact <= round(shown.interval * 1_000_000) < exact + 1


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
    assert Rate(1, "36500d").refill == 36500 * 86400
    with pytest.raises(InvalidTask, match=r"^burst=2: .* give a smaller burst$"):
        Rate(1, "36500d", burst=2)


# Several on one handler

EACH, ALL, RATE = Limit(5, per="customer"), Limit(50), Rate(100, "1m")


def test_limits_and_rates_are_given_alone_or_in_lists() -> None:
    assert limits_of(None, None) == limits_of([], None) == limits_of(None, []) == ()
    assert limits_of(ALL, None) == limits_of([ALL], None) == (ALL,)
    assert set(limits_of((EACH, ALL), [RATE])) == {EACH, ALL, RATE}
    assert limits_of(None, RATE) == limits_of(None, [RATE]) == (RATE,)


LINE = Limit(1, per="order", ordered=True)
TOKENS = Budget(200_000, "1m", of="tokens", per="key")
DAILY, BY_KEY = Rate(5, "1d", per="user"), Rate(500, "1m", per="key", burst=500)


def order(*limits: Any) -> list[Any]:
    """The order in which tasks of a handler take these."""

    def ask(order: int, customer: int, key: str, user: str, tokens: int = 7) -> None: ...

    return [one.limit for one in bind_limits(limits, ask, "llm.ask")]


@given(st.permutations([EACH, ALL, LINE, RATE, TOKENS, DAILY, BY_KEY]))
def test_places_are_taken_in_one_order(limits: list[Any]) -> None:
    # TOKENS and BY_KEY both take a minute to be there again: their names decide.
    assert order(*limits) == [LINE, DAILY, BY_KEY, TOKENS, RATE, EACH, ALL]


def test_a_cost_is_found_in_its_argument() -> None:
    def ask(prompt: str, tokens: int = 7, *, key: str, **more: int) -> None: ...

    (tokens,) = bind_limits([TOKENS], ask, "llm.ask")
    assert tokens.name == "llm.ask:key#tokens"
    assert tokens.entry() == [tokens.name, -1, "key", None, None, None, None, 1, "tokens", 7]
    (words,) = bind_limits([Budget(5, 1, of="words", name="w")], ask, "llm.ask")
    assert words.entry() == ["w", *[None] * 6, -1, "words", None]


@each("default", ["None", "-1", "1.5", "True", "'7'"])
def test_a_default_that_is_no_cost_is_refused(default: str) -> None:
    source: dict[str, Any] = {}
    exec(f"def ask(tokens={default}): ...", source)  # noqa: S102
    with pytest.raises(InvalidTask, match=r"^of='tokens': its default .* is no cost"):
        bind_limits([Budget(5, 1, of="tokens")], source["ask"], "llm.ask")


def test_two_that_would_have_one_name_are_refused() -> None:
    two = [Rate(1, 1, per="key"), Rate(100, "1d", per="key")]
    with pytest.raises(InvalidTask, match=r"two have the name 'llm.ask:key#rate': give one"):
        order(*two)


@each(
    ("options", "why"),
    [
        ({"amount": 0}, "amount=0: it must be a whole number, 1 to 1000000000"),
        ({"amount": 1.5}, "amount=1.5: it must be"),
        ({"burst": 0}, "burst=0: it must be"),
        ({"of": "two words"}, "of='two words': give the name of a parameter"),
        ({"of": None}, "of=None: give the name"),
        ({"per": 5}, "per=5: give the name"),
        ({"name": "a b"}, "name='a b': a limit's name"),
        ({"every": 0}, "every"),
        ({"every": "36500d", "burst": 1000}, "burst=1000: at this rate"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(options: dict[str, Any], why: str) -> None:
    usual: dict[str, Any] = {"amount": 100, "every": "1m", "of": "tokens"}
    with pytest.raises(InvalidTask, match=why):
        Budget(**(usual | options))


@each(
    ("limit", "rate", "why"),
    [
        ([EACH, ALL, EACH], None, "limit=: 3 on one handler; at most two"),
        (None, [RATE, TOKENS, DAILY, BY_KEY], "rate=: 4 on one handler; at most 3"),
        ([EACH, Limit(1, per="order")], None, "two limits with `per`"),
        ([ALL, Limit(1)], None, "two limits without `per`"),
        (5, None, "give a Limit"),
        ([5], None, "give a Limit"),
        (RATE, None, "give a Limit"),
        ({ALL}, None, "give a Limit"),
        (None, 5, "give a Rate"),
        (None, ALL, "give a Rate"),
        (None, [RATE, ALL], "give a Rate"),
        (None, {RATE}, "give a Rate"),
    ],
)
def test_what_cannot_be_together_is_refused(limit: Any, rate: Any, why: str) -> None:
    with pytest.raises(InvalidTask, match=re.escape(why)):
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
