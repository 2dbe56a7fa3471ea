"""The testing kit keeps rows back as listeners do, and brings them near as time is moved."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from expirebridge import Change, State, current_task
from expirebridge.ledger import Ledger, Status, Tables
from expirebridge.task.task import to_ms
from expirebridge.testing import Clock, NeverIdle, TravelError
from tests.kit.patience import PATIENCE

YEAR = timedelta(days=365)
DAY = timedelta(days=1)
Place = Engine | Session


@pytest.fixture(autouse=True)
def horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_HORIZON", "1d")


@pytest.fixture
def started() -> list[tuple[Any, timedelta]]:
    """What ran, each with how long after it was due."""
    return []


@pytest.fixture(params=["database", pytest.param("session", marks=pytest.mark.rest)])
def place(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Place]:
    """Where the rows are: in a database, or in a transaction that is rolled back."""
    if request.param == "database":
        yield engine
        return
    with engine.connect() as connection, connection.begin() as transaction:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            yield session
        transaction.rollback()


@pytest.fixture
def clock(place: Place, ledger: Ledger, started: list[tuple[Any, timedelta]]) -> Iterator[Clock]:
    def note(name: str) -> None:
        started.append((name, own.now - current_task().due))

    def follow(name: str) -> None:
        note(name)
        make(ledger, place, f"{name}-next", timedelta(days=30))

    with Clock(handlers={"test.note": note, "test.follow": follow}) as own:
        own.use_ledger(place)
        yield own


def make(
    ledger: Ledger, place: Place, name: str, delay: timedelta, *, func: str = "test.note",
    **options: Any,
) -> None:  # fmt: skip
    with written(place) as connection:
        ledger.make_task(connection, func, [name], delay, id=name, **options)


@contextmanager
def written(place: Place) -> Iterator[Any]:
    """A transaction of the program under test, which commits it."""
    if isinstance(place, Engine):
        with place.begin() as connection:
            yield connection
    else:
        with place.begin_nested():
            yield place


def row_of(place: Place, made: Tables, id: str) -> Any:
    query = select(made.task).where(made.task.c.id == id)
    with written(place) as session:
        return session.execute(query).one()


def names(started: list[tuple[Any, timedelta]]) -> list[Any]:
    return [name for name, _ in started]


def test_what_is_due_in_a_year_runs_on_its_time_and_in_order(
    clock: Clock, ledger: Ledger, place: Place, made: Tables, started: list[tuple[Any, timedelta]]
) -> None:
    make(ledger, place, "a", YEAR)
    make(ledger, place, "c", YEAR + timedelta(minutes=1))
    clock.bridge.make_task("test.note", ["b"], YEAR + timedelta(seconds=30))
    assert clock.bridge.get("a") is None
    clock.travel(YEAR - 2 * DAY)
    assert clock.bridge.get("a") is None
    assert row_of(place, made, "a").stamp == 0
    clock.travel(DAY + timedelta(minutes=2))
    found = clock.bridge.get("a")
    assert found is not None
    assert found.state is State.PENDING
    assert started == []
    clock.travel(2 * DAY)
    assert names(started) == ["a", "b", "c"]
    assert all(timedelta(0) <= late < timedelta(seconds=PATIENCE) for _, late in started), started
    assert row_of(place, made, "a").status == Status.SUCCEEDED


def test_a_single_travel_leads_over_all_that_comes_near(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    make(ledger, place, "a", YEAR)
    make(ledger, place, "b", 2 * YEAR)
    make(ledger, place, "first", timedelta(hours=1), func="test.follow")
    clock.travel(3 * YEAR)
    assert names(started) == ["first", "first-next", "a", "b"]
    assert all(timedelta(0) <= late < timedelta(seconds=PATIENCE) for _, late in started), started


def test_a_delay_counts_from_the_time_to_which_the_test_has_moved(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    clock.travel(3 * YEAR)
    make(ledger, place, "a", YEAR)
    began = clock.now
    clock.travel(YEAR - DAY)
    assert started == []
    clock.travel(until="idle")
    assert timedelta(0) <= clock.now - began - YEAR < timedelta(seconds=PATIENCE)


def test_a_moment_is_one_of_the_moved_clock(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    at, before = datetime.now(UTC) + YEAR, timedelta(seconds=2 * PATIENCE)
    with written(place) as connection:
        ledger.make_task(connection, "test.note", ["a"], at=at, id="a")
    clock.travel(at=at - before)
    assert started == []
    clock.travel(at=at)
    assert names(started) == ["a"]


def test_a_row_that_only_comes_near_is_no_attempt(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    make(ledger, place, "a", 2 * DAY)
    make(ledger, place, "b", 4 * DAY)
    clock.travel(3 * DAY + timedelta(hours=1), limit=1)
    assert names(started) == ["a"]
    make(ledger, place, "c", timedelta(hours=1))
    with pytest.raises(NeverIdle):
        clock.travel(3 * DAY, limit=1)


def test_what_is_late_while_nothing_listens_runs_afterwards(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    make(ledger, place, "a", YEAR)
    clock.travel(YEAR + DAY, listening=False)
    assert started == []
    clock.travel(0)
    [(_, late)] = started
    assert DAY <= late < DAY + timedelta(seconds=PATIENCE)


def test_rows_that_are_kept_back_were_made(clock: Clock, ledger: Ledger, place: Place) -> None:
    make(ledger, place, "far", YEAR, tags=["shop"])
    make(ledger, place, "near", timedelta(hours=1))
    clock.bridge.make_task("test.note", ["last"], 2 * YEAR, id="last")
    assert [task.id for task in clock.made()] == ["near", "far", "last"]
    [task] = clock.assert_made("test.note", args=["far"], due_in=YEAR, within="1h", count=1)
    assert task.tags == ("shop",)
    assert [task.id for task in clock.made("test.note")] == ["near", "far", "last"]
    with pytest.raises(AssertionError, match="far"):
        clock.assert_not_made("test.note", args=["far"])
    with written(place) as connection:
        ledger.cancel(connection, "far")
    clock.assert_not_made("test.note", args=["far"])


def test_a_row_that_is_kept_back_can_be_run_now(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    make(ledger, place, "a", YEAR)
    assert clock.bridge.cancel("a") is Change.NOT_FOUND
    clock.run_now("a")
    assert names(started) == ["a"]
    with pytest.raises(TravelError, match="not found"):
        clock.run_now("b")


def test_what_is_moved_meanwhile_runs_at_its_last_time(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    for name in ("sooner", "later", "beyond"):
        make(ledger, place, name, YEAR)
    clock.travel(timedelta(days=100))
    began = clock.now
    with written(place) as connection:
        ledger.reschedule(connection, "sooner", "1h")
        ledger.reschedule(connection, "later", "300d")
        ledger.reschedule(connection, "beyond", at=began + 2 * YEAR)
    clock.travel(timedelta(hours=1))
    assert names(started) == ["sooner"]
    clock.travel(timedelta(days=300))
    assert names(started) == ["sooner", "later"]
    clock.travel(until="idle")
    assert names(started) == ["sooner", "later", "beyond"]
    assert all(timedelta(0) <= late < timedelta(seconds=PATIENCE) for _, late in started), started
    assert abs(to_ms(clock.now) - to_ms(began + 2 * YEAR)) < PATIENCE * 1000


def test_a_row_waits_until_its_id_is_free(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    make(ledger, place, "a", YEAR)
    clock.bridge.make_task("test.note", ["other"], YEAR - timedelta(hours=1), id="a")
    clock.travel(until="idle")
    assert names(started) == ["other", "a"]
    assert all(timedelta(0) <= late < timedelta(seconds=PATIENCE) for _, late in started), started


def test_a_series_of_the_ledger_may_have_its_ticks_beyond_the_horizon(
    clock: Clock, ledger: Ledger, place: Place, started: list[tuple[Any, timedelta]]
) -> None:
    with written(place) as connection:
        ledger.schedule(connection, "weekly", "test.note", ["tick"], every="7d")
    clock.travel(timedelta(days=22))
    assert names(started) == ["tick"] * 3
    assert all(timedelta(0) <= late < timedelta(seconds=PATIENCE) for _, late in started), started
