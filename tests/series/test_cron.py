"""Cron expressions, compared with a model of Debian's cron that goes minute by minute."""

import functools
import zoneinfo
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from expirebridge.series import cron
from expirebridge.series.cron import Cron
from expirebridge.task.task import from_ms, to_ms
from tests.kit.cases import each
from tests.kit.cron_model import FIRST_YEAR, LAST_YEAR, ClockChange, changes_of, cron_runs
from tests.kit.servers import PART

MINUTE = 60_000
ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
EXAMPLES = settings().max_examples * (1 if PART == "quick" else 2)
AROUND = 300
"""Minutes on each side of a change of the clock: further than any of them goes."""
TRICKY = [
    "*/5 * * * *",
    "* 2 * * *",
    "*/15 * * * *",
    "0 * * * *",
    "0 */2 * * *",
    "30 */3 * * *",
    "30 2 * * *",
    "0,20,40 0-4 * * *",
    "59 23,0,1,2,3 * * *",
    "*/10 0-3,22,23 * * *",
]


def minute_of(moment: datetime) -> int:
    return int(moment.timestamp()) // 60


def ticks(expression: str, zone: str, first: int, last: int) -> list[int]:
    """The ticks from one minute since 1970 to another."""
    schedule, found = Cron.parse(expression, zone), []
    tick = schedule.next_after(first * MINUTE - 1)
    while tick is not None and tick <= last * MINUTE:
        assert tick % MINUTE == 0
        found.append(tick // MINUTE)
        after, tick = tick, schedule.next_after(tick)
        assert tick is None or tick > after
    return found


@functools.cache
def kinds_of_changes() -> list[ClockChange]:
    """One of each kind that any zone has from 2020 to 2040: at what local time, and how far."""
    kinds = {(change.shown, change.by): change for zone in ZONES for change in changes_of(zone)}
    return list(kinds.values())


def test_there_is_every_kind_of_change() -> None:
    turned = {change.by for change in kinds_of_changes()}
    assert {-60, -30, 30, 60, 120, -120} <= turned
    assert len(kinds_of_changes()) > 20


@pytest.mark.parametrize(
    "expression",
    [
        one if one in {"*/15 * * * *", "30 2 * * *"} else pytest.param(one, marks=pytest.mark.rest)
        for one in TRICKY
    ],
)
def test_each_kind_of_change_is_as_in_debian(expression: str) -> None:
    for change in kinds_of_changes():
        first, last = change.minute - AROUND, change.minute + AROUND
        expected = cron_runs(expression, ZoneInfo(change.zone), first, last)
        assert ticks(expression, change.zone, first, last) == expected, change


expressions = st.builds(
    "{} {} {} {} {}".format,
    st.sampled_from(["*", "*/15", "*/7", "0", "30", "59", "0,30", "15-45/10", "5,17,44"]),
    st.sampled_from(["*", "*/2", "*/3", "0", "1", "2", "3", "1-3", "0,12", "23", "0-23", "*/23"]),
    st.sampled_from(["*", "*", "*", "1", "*/2", "28-31", "15"]),
    st.sampled_from(["*", "*", "*", "3,4", "OCT,NOV", "*/5"]),
    st.sampled_from(["*", "*", "*", "SUN", "1-5", "7", "*/2", "sat-6".upper()]),
)
years = st.datetimes(
    datetime(FIRST_YEAR, 1, 2), datetime(LAST_YEAR, 12, 30), timezones=st.just(UTC)
)


@st.composite
def moments(draw: st.DrawFn) -> tuple[str, int]:
    """A zone and a minute, often near a change of its clock."""
    zone = draw(st.sampled_from(ZONES))
    if draw(st.booleans()) and changes_of(zone):
        change: ClockChange = draw(st.sampled_from(changes_of(zone)))
        return zone, change.minute
    return zone, minute_of(draw(years))


@settings(max_examples=EXAMPLES)
@given(expressions, moments())
@example("0 */3 * * *", ("Australia/Lord_Howe", minute_of(datetime(2026, 10, 3, 16, tzinfo=UTC))))
def test_ticks_are_those_of_debian(expression: str, place: tuple[str, int]) -> None:
    zone, minute = place
    first, last = minute - 2 * AROUND, minute + 2 * AROUND
    expected = cron_runs(expression, ZoneInfo(zone), first, last)
    assert ticks(expression, zone, first, last) == expected


@settings(max_examples=EXAMPLES)
@given(expressions, moments(), st.integers(-AROUND * MINUTE, AROUND * MINUTE))
def test_a_tick_is_the_first_after_any_moment(
    expression: str, place: tuple[str, int], beyond: int
) -> None:
    """Also in the second pass of a repeated hour, where its first pass matches."""
    zone, minute = place
    moment = minute * MINUTE + beyond
    first = moment // MINUTE + 1  # its own minute began before it, or is it
    expected = cron_runs(expression, ZoneInfo(zone), first, first + AROUND)
    found = Cron.parse(expression, zone).next_after(moment)
    if expected:
        assert found == expected[0] * MINUTE
    else:
        assert found is None or found > (first + AROUND) * MINUTE


def local_ticks(expression: str, zone: str, after: str, n: int) -> list[str]:
    schedule, found = Cron.parse(expression, zone), []
    tick: int | None = to_ms(datetime.fromisoformat(after))
    for _ in range(n):
        assert tick is not None
        tick = schedule.next_after(tick)
        assert tick is not None
        found.append(from_ms(tick).astimezone(ZoneInfo(zone)).strftime("%d %H:%M %z"))
    return found


BERLIN = "Europe/Berlin"


def test_spring_in_berlin() -> None:
    eve = "2026-03-28T12:00+01:00"
    assert local_ticks("30 2 * * *", BERLIN, eve, 2) == ["29 03:00 +0200", "30 02:30 +0200"]
    # Two of its times are in the gap: one tick.
    assert local_ticks("0,30 2 * * *", BERLIN, eve, 2) == ["29 03:00 +0200", "30 02:00 +0200"]
    assert local_ticks("30 */1 * * *", BERLIN, "2026-03-29T01:00+01:00", 2) == [
        "29 01:30 +0100",
        "29 03:30 +0200",
    ]


def test_autumn_in_berlin() -> None:
    eve = "2026-10-25T02:15+02:00"
    assert local_ticks("30 2 * * *", BERLIN, eve, 2) == ["25 02:30 +0200", "26 02:30 +0100"]
    assert local_ticks("30 * * * *", BERLIN, eve, 3) == [
        "25 02:30 +0200",
        "25 02:30 +0100",
        "25 03:30 +0100",
    ]
    # In the second pass, the first one is over.
    second_pass = "2026-10-25T02:15+01:00"
    assert local_ticks("30 2 * * *", BERLIN, second_pass, 1) == ["26 02:30 +0100"]


def test_a_gap_of_three_hours() -> None:
    """Debian's cron would leave this one out: it takes more than three hours for a set clock."""
    assert local_ticks("30 1 * * *", "Antarctica/Casey", "2020-10-03T12:00+08:00", 2) == [
        "04 03:01 +1100",
        "05 01:30 +1100",
    ]


def test_a_midnight_that_does_not_exist() -> None:
    zone, before = "America/Sao_Paulo", "2018-11-03T01:00-03:00"
    assert local_ticks("@daily", zone, before, 2) == ["04 01:00 -0200", "05 00:00 -0200"]
    assert local_ticks("0 */2 4 11 *", zone, before, 1) == ["04 02:00 -0200"]


@each(("nickname", "fields"), [*cron.NICKNAMES.items(), (" @Daily ", "0 0 * * *")])
def test_a_nickname_stands_for_fields(nickname: str, fields: str) -> None:
    assert Cron.parse(nickname) == Cron.parse(fields)


@each(
    ("expression", "fires"),
    [
        ("0 0 29 2 *", "2028-02-29"),
        ("0 0 29 2 MON#5", "2028-02-29"),  # either of both is enough, as in Debian
        ("0 0 * 2 MON#5", "2044-02-29"),
        ("0 0 30 2 MON", "2027-02-01"),
        ("0 0 L * *", "2026-11-30"),
        ("0 0 LW 1 *", "2027-01-29"),
        ("0 0 * * 5L", "2026-11-27"),
    ],
)
def test_rare_days(expression: str, fires: str) -> None:
    moment = to_ms(datetime(2026, 11, 22, tzinfo=UTC))
    found = Cron.parse(expression).next_after(moment)
    assert found is not None
    assert from_ms(found).date().isoformat() == fires


@given(expressions)
def test_there_is_a_shortest_time_between_ticks(expression: str) -> None:
    shortest = timedelta(milliseconds=Cron.parse(expression).shortest)
    assert timedelta(minutes=1) <= shortest <= timedelta(days=366 * 8)


def test_after_the_last_year_there_is_none() -> None:
    last = to_ms(datetime.max.replace(tzinfo=UTC))
    assert Cron.parse("@daily", "Asia/Tokyo").next_after(last) is None


def test_many_series_with_one_expression_cost_one_computation() -> None:
    moment = to_ms(datetime(2031, 5, 5, tzinfo=UTC))
    before = cron._next.cache_info()
    ticks = {Cron("0 9 * * *", "Europe/Berlin").next_after(moment) for _ in range(100_000)}
    after = cron._next.cache_info()
    assert len(ticks) == 1
    assert after.misses - before.misses <= 1
    assert after.hits - before.hits >= 99_999
