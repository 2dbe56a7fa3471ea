"""A year of a series, in a moment."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from expirebridge import State, current_task, every
from expirebridge.testing import Clock, NeverIdle, run_handler

pytestmark = pytest.mark.servers("oldest")

NIGHTLY = "30 2 * * *"
ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe")

seen: list[tuple[str, datetime]] = []


def note(*_: Any) -> None:
    task = current_task()
    assert task.tick is not None
    seen.append((task.id.partition("@")[0], task.tick))


@pytest.fixture
def clock() -> Iterator[Clock]:
    seen.clear()
    hourly = every("1h", id="hourly")(note)
    functions: dict[str, Callable[..., Any]] = {"test.note": hourly}
    with Clock(handlers=functions) as clock:
        yield clock


@pytest.mark.rest
def test_a_year_of_every_night_in_three_zones(clock: Clock) -> None:
    begun = clock.now
    for zone in ZONES:
        clock.bridge.schedule(zone.replace("/", "."), "test.note", cron=NIGHTLY, tz=zone)
    ran = clock.travel("365d", limit=2000)
    assert len(ran) == len(seen) == len(set(seen))
    for zone in ZONES:
        local = [
            tick.astimezone(ZoneInfo(zone)) for name, tick in seen if name == zone.replace("/", ".")
        ]
        # One on each day, at 02:30, or right after the gap in which that was.
        days = [moment.date() for moment in local]
        assert all(later - day == timedelta(days=1) for day, later in pairwise(days))
        assert len(days) in {364, 365, 366}
        odd = [moment.strftime("%H:%M") for moment in local if moment.strftime("%H:%M") != "02:30"]
        assert odd in ([], ["03:00"])
    assert min(tick for _, tick in seen) > begun
    assert max(tick for _, tick in seen) <= clock.now


def test_declared_series_run_once_they_are_declared(clock: Clock) -> None:
    assert clock.travel("3h") == []
    clock.declare_series()
    clock.declare_series()
    begun = clock.now
    assert len(clock.travel("3h")) == 3
    ticks = [tick for _, tick in seen]
    assert all(later - tick == timedelta(hours=1) for tick, later in pairwise(ticks))
    assert timedelta(minutes=59) < ticks[0] - begun <= timedelta(hours=1)


def test_after_days_without_a_listener_the_latest_tick_runs_late(clock: Clock) -> None:
    clock.bridge.schedule("s", "test.note", cron=NIGHTLY, tz="Europe/Berlin")
    clock.travel("5d", listening=False)
    ran = clock.travel(0)
    assert len(ran) == 1
    [(_, tick)] = seen
    assert timedelta(0) <= clock.now - tick < timedelta(days=1)
    series = clock.bridge.get_series("s")
    assert series is not None
    assert series.next is not None
    assert series.missed == 1  # the one that waited; those between were never made
    assert series.next - tick == timedelta(days=1)


def test_what_is_not_made_up_for_is_skipped(clock: Clock) -> None:
    made = clock.bridge.schedule("s", "test.note", every="1h", missed="skip")
    clock.travel("5h30m", listening=False)
    assert clock.travel(0) == []
    ran = clock.travel("1h")
    assert len(ran) == 1
    assert made.next is not None
    assert seen == [("s", made.next + timedelta(hours=5))]


def test_a_tick_that_is_a_little_late_runs(clock: Clock) -> None:
    made = clock.bridge.schedule("s", "test.note", every="1d", missed="skip")
    clock.travel("1d7h", listening=False)
    assert len(clock.travel(0)) == 1
    assert seen == [("s", made.next)]


def test_a_policy_for_late_tasks_applies_to_ticks(clock: Clock) -> None:
    clock.bridge.schedule("s", "test.note", every="1d", late_after="1h", misfire="skip")
    clock.travel("1d7h", listening=False)
    [skipped] = clock.travel(0)
    assert skipped.reason is not None
    assert skipped.reason.startswith("skipped: found")
    assert seen == []


def test_a_series_is_never_idle(clock: Clock) -> None:
    clock.bridge.schedule("s", "test.note", every="1d")
    with pytest.raises(NeverIdle, match=r"test\.note"):
        clock.travel(until="idle", limit=20)


def test_a_series_ends_in_a_travel_too(clock: Clock) -> None:
    until = clock.now + timedelta(hours=3, minutes=30)
    clock.bridge.schedule("s", "test.note", every="1h", until=until)
    assert len(clock.travel(until="idle")) == 3
    series = clock.bridge.get_series("s")
    assert series is not None
    assert series.over
    assert series.state is State.SUCCEEDED


def test_a_handler_is_given_a_tick() -> None:
    tick = datetime(2035, 1, 1, 9, tzinfo=UTC)
    ran = run_handler(lambda: current_task().tick, tick=tick, id=f"s@{tick:%s}")
    assert ran.task.tick == tick
