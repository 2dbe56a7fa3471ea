"""Schedules: what `@every` accepts, what it refuses, and how it is stored."""

import importlib.resources
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.errors import InvalidTask
from expirebridge.series.schedule import (
    MAX_ID,
    Interval,
    Missed,
    Schedule,
    SeriesSpec,
    check_series_id,
    rule_arguments,
    schedule_from_json,
    schedule_of,
)
from expirebridge.series.ticks import following, retimed
from expirebridge.series.time_zones import tzdata_at, tzdata_version, zone_of
from expirebridge.task.durations import Duration
from expirebridge.task.keys import check_id
from expirebridge.task.task import to_ms
from tests.kit.cases import each

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
CREATED = to_ms(NEW_YEAR)


def local_ticks(schedule: Schedule, after: datetime, n: int) -> list[str]:
    ticks = schedule.ticks(to_ms(after), n, created=CREATED)
    return [schedule.local(tick).isoformat() for tick in ticks]


@each(
    ("given", "problem"),
    [
        ({}, "give either a cron expression or an interval"),
        ({"cron": "* * * * *", "every": 5}, "give either"),
        ({"cron": ""}, "0 fields, not five"),
        ({"cron": "* * * *"}, "4 fields, not five; write 'minute hour"),
        ({"cron": "0 * * * * *"}, "six fields: seconds and years are not supported; give an int"),
        ({"cron": "0 * * * * * 2030"}, "seven fields"),
        ({"cron": "15 m"}, "an interval is written without spaces, such as '15m'"),
        ({"cron": "@reboot"}, "'@reboot': it names no time"),
        ({"cron": "@dialy"}, "no such name; there are @yearly, "),
        ({"cron": "60 * * * *"}, "'60' is not a valid minute"),
        ({"cron": "* 24 * * *"}, "'24' is not a valid hour"),
        ({"cron": "* * 0 * *"}, "'0' is not a valid day of the month"),
        ({"cron": "* * * 13 *"}, "'13' is not a valid month"),
        ({"cron": "* * * * 8"}, "'8' is not a valid day of the week"),
        ({"cron": "* * * * MON#2/2"}, "is not a valid day of the week"),
        ({"cron": "*/0 * * * *"}, "is not a valid minute"),
        ({"cron": "9-5 * * * *"}, "is not a valid minute"),
        ({"cron": "٣ * * * *"}, "all ASCII"),
        ({"cron": "0," * 200 + " * * * *"}, "at most 256 characters"),
        ({"cron": "0 0 30 2 *"}, "it never fires"),
        ({"cron": "0 0 31 2,4,6 *"}, "it never fires"),
        ({"cron": 5}, "cron=5: give text"),
        ({"cron": "* * * * *", "tz": "Europe/Berln"}, "no such time zone .*'Europe/Berlin'"),
        ({"cron": "* * * * *", "tz": "europe/berlin"}, "did you mean 'Europe/Berlin'"),
        ({"cron": "* * * * *", "tz": "New York"}, "did you mean 'America/New_York'"),
        ({"cron": "* * * * *", "tz": "../../etc/passwd"}, "no such time zone"),
        ({"cron": "* * * * *", "tz": "right/UTC"}, "no such time zone"),
        ({"cron": "* * * * *", "tz": "localtime"}, "another zone on another host"),
        ({"cron": "* * * * *", "tz": ""}, "no such time zone"),
        ({"cron": "* * * * *", "tz": UTC}, "give the name of a time zone"),
        ({"every": "999ms"}, "every='999ms': an interval is at least a second"),
        ({"every": 0}, "at least a second"),
        ({"every": "soon"}, "not a duration"),
        ({"every": "15m", "tz": "UTC"}, "an interval has no time zone"),
        ({"every": "15m", "jitter": "15m"}, "shorter than the time between two ticks, 15m"),
        ({"cron": "0,5 * * * *", "jitter": 300}, "shorter than the time between two ticks, 5m"),
        ({"every": 5, "jitter": -1}, "jitter=-1"),
        ({"every": 5, "missed": "all"}, "missed='all': one of 'latest', 'skip'"),
        ({"every": 5, "overlap": "maybe"}, "overlap='maybe': one of 'skip', 'allow'"),
        ({"every": 5, "start": datetime(2026, 1, 1)}, "start=.*a naive datetime is ambiguous"),
        ({"every": 5, "until": datetime(2026, 1, 1)}, "until=.*a naive datetime is ambiguous"),
        ({"every": 5, "start": "2026-01-01"}, "give an aware datetime"),
        (
            {"every": 5, "start": NEW_YEAR, "until": NEW_YEAR - timedelta(seconds=1)},
            "it is before start=2026-01-01T00:00:00",
        ),
        (
            {"cron": "0 9 * * *", "start": NEW_YEAR, "until": NEW_YEAR + timedelta(hours=8)},
            "no tick is between",
        ),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidTask, match=problem):
        schedule_of(**given)


@pytest.mark.parametrize(
    ("when", "written"),
    [
        ("30  2 * * mon-fri", "30 2 * * MON-FRI UTC"),
        ("@daily", "0 0 * * * UTC"),
        ("@Hourly", "0 * * * * UTC"),
        ("15m", "every 15m"),
        (90, "every 1m30s"),
        (timedelta(hours=1), "every 1h"),
    ],
)
def test_one_argument_is_an_expression_or_an_interval(when: Duration, written: str) -> None:
    assert str(schedule_of(**rule_arguments(when))) == written


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "30 2 * * *", "tz": "Europe/Berlin"},
        {"cron": "30 2 * * *", "tz": ZoneInfo("Europe/Berlin"), "jitter": "1m"},
        {"cron": "0 0 * * 5L"},
        {"every": "1.5s", "missed": "skip", "overlap": "allow"},
        {"every": 5, "start": NEW_YEAR, "until": NEW_YEAR + timedelta(milliseconds=7)},
    ],
)
def test_a_schedule_is_read_back_as_it_was_stored(given: dict[str, Any]) -> None:
    schedule = schedule_of(**given)
    assert schedule_from_json(schedule.to_json()) == schedule


def test_only_what_is_not_the_default_is_stored() -> None:
    assert schedule_of(every="15m").to_json() == {"every": 900_000}
    assert schedule_of(cron="@daily").to_json() == {"cron": "0 0 * * *", "tz": "UTC"}


def test_an_interval_counts_from_the_creation_of_the_series() -> None:
    schedule = schedule_of(every="15m")
    late = NEW_YEAR + timedelta(hours=1, minutes=7)
    assert local_ticks(schedule, NEW_YEAR, 2) == [
        "2026-01-01T00:15:00+00:00",
        "2026-01-01T00:30:00+00:00",
    ]
    assert local_ticks(schedule, late, 1) == ["2026-01-01T01:15:00+00:00"]


def test_an_interval_with_a_start_counts_from_it_whenever_the_series_was_made() -> None:
    schedule = schedule_of(every="1h", start=NEW_YEAR + timedelta(minutes=10))
    assert local_ticks(schedule, NEW_YEAR - timedelta(days=9), 2) == [
        "2026-01-01T00:10:00+00:00",
        "2026-01-01T01:10:00+00:00",
    ]
    assert schedule.next_after(CREATED, created=0) == schedule.next_after(CREATED, created=CREATED)


def test_an_interval_does_not_drift() -> None:
    rule = Interval.of("1.001s")
    tick = CREATED
    for _ in range(1000):
        tick = rule.next_after(tick, origin=CREATED)
    assert tick == CREATED + 1000 * 1001


def test_start_and_until_may_be_ticks_themselves() -> None:
    schedule = schedule_of(cron="@daily", start=NEW_YEAR, until=NEW_YEAR + timedelta(days=1))
    assert local_ticks(schedule, NEW_YEAR - timedelta(days=3), 5) == [
        "2026-01-01T00:00:00+00:00",
        "2026-01-02T00:00:00+00:00",
    ]
    assert local_ticks(schedule, NEW_YEAR + timedelta(days=1), 5) == []


def test_jitter_is_the_same_for_each_tick_and_shorter_than_asked() -> None:
    schedule = schedule_of(every="1m", jitter="30s")
    delays = {f"tenant-{n}": schedule.delay(f"tenant-{n}") for n in range(1000)}
    assert all(0 <= delay < 30_000 for delay in delays.values())
    # Spread over the whole of it: a thousand ids in ten parts of three seconds.
    parts = [sum(delay // 3000 == part for delay in delays.values()) for part in range(10)]
    assert min(parts) > 50
    # Literal: every host and every later version must compute the same.
    assert delays["tenant-7"] == 25_139
    assert schedule_of(every="1m").delay("tenant-7") == 0


@pytest.mark.parametrize("missed", ["skip", "latest"])
def test_a_tick_that_jitter_puts_off_is_not_missed_before_it_is_due(missed: Missed) -> None:
    schedule = schedule_of(every="1m", jitter="59.9s", start=NEW_YEAR, missed=missed)
    latest = to_ms(NEW_YEAR)
    id = max((f"tenant-{n}" for n in range(100)), key=schedule.delay)
    delay = schedule.delay(id)
    assert delay > 55_000
    # The next one stands for a time that has passed, but is not due for long.
    made = following(schedule, id, latest, latest + 60_000 + 100, made=CREATED)
    assert made is not None
    assert (made.tick, made.due) == (latest + 60_000, latest + 60_000 + delay)
    late = following(schedule, id, latest, latest + 120_000 + delay, made=CREATED)
    assert late is not None
    assert late.tick == latest + (120_000 if missed == "latest" else 180_000)


@given(
    expression=st.sampled_from(["30 2 * * *", "*/30 * * * *", "0 */3 * * *", "15 1-3 1 * MON"]),
    zone=st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"]),
    day=st.integers(0, 5000),
)
def test_the_same_data_move_no_tick(expression: str, zone: str, day: int) -> None:
    schedule = schedule_of(cron=expression, tz=zone)
    tick = next(schedule.ticks(CREATED - 86_400_000 * day, 1, created=CREATED))
    times = retimed(schedule, "s", tick, tzdata_at(zone, tick), made=CREATED)
    assert times is not None
    assert times.tick == tick


@pytest.mark.parametrize(
    ("then", "offset", "now"),
    [
        # Before, the zone had no summer time, or another: the time of day stays.
        ("2026-07-01T01:30:00Z", 3600, "2026-07-01T02:30:00+02:00"),
        ("2026-06-30T23:30:00Z", 10800, "2026-07-01T02:30:00+02:00"),
        # The clock leaves 02:30 out by these data, and by those did not.
        ("2026-03-29T01:30:00Z", 3600, "2026-03-29T03:00:00+02:00"),
        # By those it left 02:30 out, a day later, and by these does not.
        ("2026-03-30T01:00:00Z", 7200, "2026-03-30T02:30:00+02:00"),
        # By those the hour came once, and by these twice: the first time.
        ("2026-10-25T01:30:00Z", 3600, "2026-10-25T02:30:00+02:00"),
    ],
)
def test_other_data_move_a_tick_to_its_time_of_day(then: str, offset: int, now: str) -> None:
    schedule = schedule_of(cron="30 2 * * *", tz="Europe/Berlin", jitter="1m")
    tick = to_ms(datetime.fromisoformat(then))
    times = retimed(schedule, "s", tick, f"2020a {offset}", made=CREATED)
    assert times is not None
    assert schedule.local(times.tick).isoformat() == now
    assert times.due == times.tick + schedule.delay("s")
    damaged = retimed(schedule, "s", tick, "2020a x", made=CREATED)
    assert damaged is not None
    assert damaged.tick == tick


def test_the_id_of_a_series_leaves_room_for_its_ticks() -> None:
    longest = "x" * MAX_ID
    assert check_series_id(longest) == longest
    assert check_id(f"{longest}@{to_ms(datetime(2286, 1, 1, tzinfo=UTC))}")
    with pytest.raises(InvalidTask, match="115 characters; a series has at most 114"):
        check_series_id(f"{longest}x")
    with pytest.raises(InvalidTask, match="an id has 1 to 128 characters"):
        check_series_id("a b")


def spec(**changes: Any) -> SeriesSpec:
    given: dict[str, Any] = {
        "id": "nightly",
        "func": "reports.send",
        "args": b'{"b":1,"a":2}',
        "schedule": schedule_of(cron="30 2 * * *", tz="Europe/Berlin"),
        "fields": {"retry": "[15.0]", "timeout": 5.0},
    }
    return SeriesSpec(**(given | changes))


def test_a_fingerprint_changes_with_all_but_the_id() -> None:
    # Literal: hosts with other versions must compute the same.
    assert spec().fingerprint == spec(id="other").fingerprint == "4054799d7f5ecca1"
    changed = [
        spec(func="reports.make"),
        spec(args=b"[]"),
        spec(schedule=schedule_of(cron="31 2 * * *", tz="Europe/Berlin")),
        spec(schedule=schedule_of(cron="30 2 * * *", tz="Europe/Paris")),
        spec(fields={"retry": "[15.0]"}),
    ]
    assert len({spec().fingerprint, *(one.fingerprint for one in changed)}) == 6


@each(
    "stored",
    [
        5,
        {},
        {"every": "x"},
        {"every": True},
        {"every": 5000, "start": "soon"},
        {"every": 10**40},
        {"cron": "* * * * *", "tz": "Mars/Base"},
        {"cron": "* * * * *", "tz": 5},
        {"cron": "* * * * *", "tz": "UTC", "missed": []},
    ],
)
def test_what_is_no_schedule_in_redis_is_refused(stored: Any) -> None:
    with pytest.raises(InvalidTask):
        schedule_from_json(stored)


def test_the_version_of_the_data_of_a_zone_is_known() -> None:
    assert tzdata_version("Europe/Berlin") >= "2024a"
    assert schedule_of(cron="@daily", tz="Europe/Berlin").tzdata == tzdata_version("Europe/Berlin")
    assert schedule_of(cron="@daily").tzdata == schedule_of(every=5).tzdata == ""
    assert zone_of("Europe/Berlin").key == "Europe/Berlin"


@pytest.fixture
def zone_folder(tmp_path: Path) -> Iterator[Path]:
    """Where Python looks for zones first, and where it finds one."""
    before = zoneinfo.TZPATH
    package = importlib.resources.files("tzdata") / "zoneinfo" / "Europe" / "Berlin"
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(package.read_bytes())
    zoneinfo.reset_tzpath(to=[tmp_path])
    tzdata_version.cache_clear()
    yield tmp_path
    zoneinfo.reset_tzpath(to=before)
    tzdata_version.cache_clear()


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("tzdata.zi", "# version 2031c\nR A\n", "2031c"),
        ("+VERSION", "2031c\n", "2031c"),
        ("tzdata.zi", "# version unknown\n", ""),
        ("other", "", ""),
    ],
)
def test_the_version_is_that_of_the_folder_with_the_zone(
    zone_folder: Path, file: str, text: str, version: str
) -> None:
    (zone_folder / file).write_text(text)
    assert tzdata_version("Europe/Berlin") == version
    # Python takes this one from the package, which is what the system lacks.
    lines = (importlib.resources.files("tzdata") / "zoneinfo" / "tzdata.zi").read_text()
    assert f"# version {tzdata_version('Europe/Paris')}\n" == lines.splitlines(keepends=True)[0]


@given(st.integers(1000, 10**9), st.integers(0, 10**13), st.integers(0, 10**13))
def test_an_interval_is_counted_from_its_origin(ms: int, origin: int, moment: int) -> None:
    tick = Interval(ms).next_after(moment, origin=origin)
    assert tick > moment
    assert tick >= origin
    assert (tick - origin) % ms == 0
    assert tick == origin or tick - ms <= moment
