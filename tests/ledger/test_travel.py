"""The testing kit relays the rows of a test: of its database, and of its open transaction."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, create_engine, select
from sqlalchemy.orm import Session

from expirebridge import Change, InvalidTask, State, current_task
from expirebridge.errors import CompletionRefused
from expirebridge.hooks import End
from expirebridge.ledger import (
    Ledger,
    LedgerUnsuitable,
    Status,
    Tables,
    sql_types,
    tables,
    transaction,
)
from expirebridge.ledger.testing.rows import Rows
from expirebridge.task.task import from_ms, to_ms
from expirebridge.testing import Clock, TravelError, run_handler

Handlers = dict[str, Callable[..., Any]]
Within = Callable[[], AbstractContextManager[Any]]
"""Opens a transaction of the test's program, which commits it."""


DAY = 86_400_000
"""In ms."""


class NoSaleError(Exception):
    """Why a transaction is rolled back."""


@pytest.fixture
def handlers() -> Handlers:
    """Those of the test; it may add more before it travels."""

    def work(*args: Any) -> list[Any]:
        return list(args)

    def fail() -> None:
        raise RuntimeError("the shop is closed")

    return {"orders.rate": work, "orders.fail": fail}


@pytest.fixture(params=[
    "database", pytest.param("connection", marks=pytest.mark.rest),
    pytest.param("session", marks=pytest.mark.rest),
])  # fmt: skip
def kind(request: pytest.FixtureRequest) -> str:
    """What the test gives to the kit: a database, or its own open transaction."""
    kind: str = request.param
    return kind


@pytest.fixture
def place(kind: str, engine: Engine) -> Iterator[Engine | Connection | Session]:
    """Where the rows are; an open transaction is rolled back in the end."""
    if kind == "database":
        yield engine
        return
    with engine.connect() as connection, connection.begin() as transaction:
        if kind == "connection":
            yield connection
        else:
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                yield session
        transaction.rollback()


@pytest.fixture
def within(place: Engine | Connection | Session) -> Within:
    """Opens a transaction, as the program under test does."""

    @contextmanager
    def opened() -> Iterator[Any]:
        match place:
            case Engine():
                with Session(place) as session, session.begin():
                    yield session
            case Connection():
                joining = Session(place, join_transaction_mode="create_savepoint")
                with joining as session, session.begin():
                    yield session
            case _:
                with place.begin_nested():
                    yield place

    return opened


@pytest.fixture
def clock(handlers: Handlers, place: object) -> Iterator[Clock]:
    with Clock(handlers=handlers) as clock:
        clock.use_ledger(place)
        yield clock


def status(within: Within, made: Tables, id: str) -> tuple[Status, int, str | None]:
    task = made.task.c
    with within() as session:
        query = select(task.status, task.retry_times, task.message).where(task.id == id)
        [(code, retries, message)] = session.connection().execute(query).all()
    return Status(code), retries, message


def test_a_row_is_made_runs_in_its_time_and_learns_how_it_ended(
    clock: Clock, ledger: Ledger, within: Within, made: Tables
) -> None:
    with within() as session:
        ledger.make_task(session, "orders.rate", [17], "24h", id="a", ext="order-17")
        ledger.make_task(session, "orders.fail", [], "24h", id="b", retry=[60])
    clock.assert_made("orders.rate", args=[17], due_in="24h", count=1)
    assert clock.travel("23h") == []
    ran = clock.travel("1h", limit=3)
    assert [(one.func, one.end) for one in ran] == [
        ("orders.rate", End.SUCCEEDED),
        ("orders.fail", End.RETRY),
    ]
    assert status(within, made, "a") == (Status.SUCCEEDED, 0, None)
    waiting, retries, message = status(within, made, "b")
    assert (waiting, retries) == (Status.WAITING, 1)
    assert "the shop is closed" in (message or "")
    [last] = clock.travel(until="idle")
    assert last.end is End.FAILED
    assert status(within, made, "b")[0] is Status.FAILED


def test_all_of_a_delay_is_the_delay(clock: Clock, ledger: Ledger, within: Within) -> None:
    for turn in range(5):
        with within() as session:
            ledger.make_task(session, "orders.rate", [turn], "1h")
        [ran] = clock.travel("1h")
        assert ran.task.args == [turn]


def test_a_rollback_makes_nothing(clock: Clock, ledger: Ledger, within: Within) -> None:
    with suppress(NoSaleError), within() as session:
        ledger.make_task(session, "orders.rate", [1], "1h")
        raise NoSaleError
    clock.assert_not_made("orders.rate")
    assert clock.travel(until="idle") == []


@pytest.mark.parametrize(
    "kind",
    [
        "connection",
        *(pytest.param(kind, marks=pytest.mark.rest) for kind in ("database", "session")),
    ],
    indirect=True,
)
def test_a_savepoint_that_is_rolled_back_makes_nothing(
    clock: Clock, ledger: Ledger, within: Within
) -> None:
    with within() as session:
        ledger.make_task(session, "orders.rate", ["kept"], "1h")
        with suppress(NoSaleError), session.begin_nested():
            ledger.make_task(session, "orders.rate", ["gone"], "1h")
            raise NoSaleError
    clock.assert_made("orders.rate", args=["kept"], count=1)
    clock.assert_not_made("orders.rate", args=["gone"])
    assert [ran.task.args for ran in clock.travel("1h")] == [["kept"]]


@pytest.mark.parametrize(
    "kind", ["session", pytest.param("connection", marks=pytest.mark.rest)], indirect=True
)
def test_what_was_looked_at_before_its_savepoint_is_rolled_back_is_undone(
    clock: Clock, ledger: Ledger, within: Within
) -> None:
    with within() as session:
        ledger.make_task(session, "orders.rate", ["kept"], "1h")
    clock.assert_made("orders.rate", count=1)
    with suppress(NoSaleError), within() as session:
        ledger.make_task(session, "orders.rate", ["gone"], "1h", id="x")
        clock.assert_made("orders.rate", count=2)
        raise NoSaleError
    clock.assert_made("orders.rate", args=["kept"], count=1)
    assert len(clock.made()) == 1
    assert [ran.task.args for ran in clock.travel("1h")] == [["kept"]]
    with within() as session:
        ledger.make_task(session, "orders.rate", ["new"], "1h", id="x")
    assert [ran.task.args for ran in clock.travel("1h")] == [["new"]]


def test_what_a_handler_makes_runs_in_the_same_travel(
    clock: Clock, ledger: Ledger, within: Within, handlers: Handlers
) -> None:
    def begin() -> None:
        with within() as session:
            ledger.make_task(session, "orders.rate", ["next"], "2h")

    handlers["orders.begin"] = begin
    with within() as session:
        ledger.make_task(session, "orders.begin", [], "1h")
    assert [ran.func for ran in clock.travel("4h")] == ["orders.begin", "orders.rate"]


def test_changes_are_carried(clock: Clock, ledger: Ledger, within: Within, made: Tables) -> None:
    with within() as session:
        ledger.make_task(session, "orders.rate", ["cancelled"], "1h", id="a")
        ledger.make_task(session, "orders.rate", ["moved"], "1h", id="b")
    assert len(clock.made()) == 2
    with within() as session:
        ledger.cancel(session, "a")
        ledger.reschedule(session, "b", "5h")
    clock.assert_not_made("orders.rate", args=["cancelled"])
    assert clock.travel("2h") == []
    assert [ran.task.args for ran in clock.travel("3h")] == [["moved"]]
    assert status(within, made, "a")[0] is Status.CANCELLED


def test_a_handler_completes_its_task(
    clock: Clock, ledger: Ledger, within: Within, made: Tables, handlers: Handlers
) -> None:
    found: list[Status] = []

    def complete() -> None:
        with within() as session:
            current_task().complete_in(session)
        found.append(status(within, made, "a")[0])
        raise RuntimeError("after its commit")

    handlers["orders.complete"] = complete
    with within() as session:
        ledger.make_task(session, "orders.complete", [], "1h", id="a")
    [ran] = clock.travel(until="idle")
    assert found == [Status.SUCCEEDED]
    assert ran.end is End.SUCCEEDED
    assert status(within, made, "a") == (Status.SUCCEEDED, 0, None)
    assert [task.state for task in clock.made()] == [State.SUCCEEDED]


def test_an_interrupt_after_a_completion_ends_the_test(
    clock: Clock, ledger: Ledger, within: Within, handlers: Handlers
) -> None:
    def complete() -> None:
        with within() as session:
            current_task().complete_in(session)
        raise KeyboardInterrupt

    handlers["orders.complete"] = complete
    with within() as session:
        ledger.make_task(session, "orders.complete", [], "1h")
    with pytest.raises(KeyboardInterrupt):
        clock.travel("1h")


def test_a_completion_is_refused_and_the_attempt_does_not_count(
    clock: Clock, ledger: Ledger, within: Within, handlers: Handlers
) -> None:
    def complete() -> None:
        if current_task().attempt == 1 and clock.ran == []:
            with within() as session:
                ledger.reschedule(session, "a", "5h")
        with within() as session:
            current_task().complete_in(session)

    handlers["orders.complete"] = complete
    with within() as session:
        ledger.make_task(session, "orders.complete", [], "1h", id="a")
    refused, completed = clock.travel("7h")
    assert (refused.end, completed.end) == (End.DROPPED, End.SUCCEEDED)
    assert completed.attempt == 1


def test_run_now_finds_a_row(clock: Clock, ledger: Ledger, within: Within, made: Tables) -> None:
    with within() as session:
        ledger.make_task(session, "orders.rate", [1], "24h", id="a")
    assert clock.run_now("a").end is End.SUCCEEDED
    assert status(within, made, "a")[0] is Status.SUCCEEDED


async def test_it_does_so_in_an_event_loop(clock: Clock, ledger: Ledger, within: Within) -> None:
    with within() as session:
        ledger.make_task(session, "orders.rate", [1], "24h")
    [ran] = await clock.atravel("24h")
    assert ran.end is End.SUCCEEDED


def test_tasks_without_a_row_run_beside_them(clock: Clock, ledger: Ledger, within: Within) -> None:
    clock.bridge.make_task("orders.rate", ["plain"], "1h")
    with within() as session:
        ledger.make_task(session, "orders.rate", ["row"], "2h")
    assert [ran.task.args for ran in clock.travel("3h")] == [["plain"], ["row"]]


def test_nothing_is_left_of_an_open_transaction(
    engine: Engine, ledger: Ledger, handlers: Handlers, made: Tables
) -> None:
    for _ in range(2):
        with engine.connect() as connection, Clock(handlers=handlers) as clock:
            clock.use_ledger(connection)
            ledger.make_task(connection, "orders.rate", [1], "1h", id="same")
            assert len(clock.travel("1h")) == 1
            connection.rollback()
        with engine.connect() as connection:
            assert connection.execute(select(made.task)).all() == []
            assert connection.execute(select(made.passes)).all() == []


def test_a_ledger_that_listeners_use_is_refused(
    engine: Engine, made: Tables, handlers: Handlers
) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.passes.insert().values(
                ledger="default", partition=0, number=3, stamp=3, nonce="aa-somewhere"
            )
        )
    with Clock(handlers=handlers) as clock:
        with pytest.raises(TravelError, match="outside of tests"):
            clock.use_ledger(engine)
        clock.use_ledger(engine, name="own")
        with pytest.raises(TravelError, match="already"):
            clock.use_ledger(engine, name="another")


def test_what_a_test_commits_is_deleted_when_its_clock_ends(
    engine: Engine, ledger: Ledger, handlers: Handlers, made: Tables
) -> None:
    with engine.begin() as connection:
        Ledger(engine.url, name="another").make_task(connection, "orders.rate", [2], "1h")
    for _ in range(2):
        with Clock(handlers=handlers) as clock:
            clock.use_ledger(engine)
            with engine.begin() as connection:
                ledger.make_task(connection, "orders.rate", [1], "1h", id="same")
                ledger.schedule(connection, "nightly", "orders.rate", every="1d")
            assert len(clock.travel("1h")) == 1
    with engine.connect() as connection:
        [row] = connection.execute(select(made.task))
        assert row.ledger == "another"
        for table in (made.series, made.passes):
            assert connection.execute(select(table)).all() == []


def test_what_a_killed_test_left_is_deleted(
    engine: Engine, ledger: Ledger, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rows, "clear", lambda _: None)  # it has no time for that
    with Clock(handlers=handlers) as clock:
        clock.use_ledger(engine)
        with engine.begin() as connection:
            ledger.make_task(connection, "orders.rate", [1], "1h")
        clock.assert_made("orders.rate")
    monkeypatch.undo()
    with Clock(handlers=handlers) as clock:
        clock.use_ledger(engine)
        assert clock.made() == []


def test_rows_that_no_test_made_are_refused(
    engine: Engine, ledger: Ledger, handlers: Handlers, made: Tables
) -> None:
    with engine.begin() as connection:
        ledger.make_task(connection, "orders.rate", [1], "1h")
    with Clock(handlers=handlers) as clock, pytest.raises(TravelError, match="no test made"):
        clock.use_ledger(engine)
    with engine.connect() as connection:
        assert len(connection.execute(select(made.task)).all()) == 1


def test_a_test_may_drop_its_tables(database_url: Any, handlers: Handlers) -> None:
    metadata = MetaData()
    tables(metadata)
    own = create_engine(database_url)
    metadata.create_all(own)
    with Clock(handlers=handlers) as clock:
        clock.use_ledger(own)
        metadata.drop_all(own)
    own.dispose()


def test_a_test_without_a_ledger_is_told_of_it(handlers: Handlers, engine: Engine) -> None:
    with Clock(handlers=handlers) as clock:
        with pytest.raises(AssertionError, match="after use_ledger"):
            clock.assert_made("orders.rate")
        clock.use_ledger(engine)
        with pytest.raises(AssertionError, match="is the transaction committed"):
            clock.assert_made("orders.rate")


def test_a_database_is_named_by_its_url(engine: Engine, ledger: Ledger, handlers: Handlers) -> None:
    with Clock(handlers=handlers) as clock:
        clock.use_ledger(engine.url.render_as_string(hide_password=False))
        with Session(engine) as session, session.begin():
            ledger.make_task(session, "orders.rate", [1], "1h")
        assert len(clock.travel("1h")) == 1


def test_a_connection_of_a_driver_is_a_transaction(
    engine: Engine, ledger: Ledger, handlers: Handlers, made: Tables
) -> None:
    with engine.connect() as connection, Clock(handlers=handlers) as clock:
        own: Any = connection.connection.driver_connection
        clock.use_ledger(own)
        ledger.make_task(own, "orders.rate", [1], "1h", id="a")
        assert [ran.end for ran in clock.travel("1h")] == [End.SUCCEEDED]
        found = ledger.get(own, "a")
        assert found is not None
        assert found.status is Status.SUCCEEDED
        own.rollback()
    with engine.connect() as connection:
        assert connection.execute(select(made.task)).all() == []


@pytest.mark.parametrize("source", [object(), 17, None])
def test_what_is_no_database_is_refused(source: object) -> None:
    with Clock() as clock, pytest.raises(InvalidTask, match="session="):
        clock.use_ledger(source)


def test_missing_tables_are_named(database_url: Any) -> None:
    with Clock() as clock, pytest.raises(LedgerUnsuitable, match="there is no table"):
        clock.use_ledger(database_url)


# Series


def ticks(made: Tables, within: Within) -> list[tuple[int, Status]]:
    """Those of the series "nightly" that have rows, by their times."""
    task = made.task.c
    with within() as session:
        query = select(task.at_ms, task.status).where(task.id.like("nightly@%")).order_by(task.id)
        return [(at, Status(code)) for at, code in session.connection().execute(query)]


def test_a_series_has_a_tick_each_night(
    clock: Clock, ledger: Ledger, within: Within, made: Tables
) -> None:
    with within() as session:
        ledger.schedule(session, "nightly", "orders.rate", [1], cron="0 3 * * *")
    ran = clock.travel("3d", limit=5)
    assert [one.end for one in ran] == [End.SUCCEEDED] * 3
    assert [(one.task.tick, one.late < 60) for one in ran] == [(one.task.due, True) for one in ran]
    assert {(one.at.hour, one.at.minute) for one in ran} == {(3, 0)}
    *past, (coming, status) = ticks(made, within)
    assert past == [(to_ms(one.task.due), Status.SUCCEEDED) for one in ran]
    assert (coming, status) == (past[-1][0] + DAY, Status.WAITING)
    with within() as session:
        series = ledger.get_series(session, "nightly")
        [listed] = ledger.list_series(session).series
    assert series is not None
    assert (series.last, series.next) == (ran[-1].task.tick, from_ms(coming))
    assert (listed.last, listed.behind) == (series.last, timedelta(0))


def test_a_tick_that_was_cancelled_does_not_end_its_series(
    clock: Clock, ledger: Ledger, within: Within, made: Tables
) -> None:
    with within() as session:
        ledger.schedule(session, "nightly", "orders.rate", [1], every="1d")
    [(first, _)] = ticks(made, within)
    with within() as session:
        ledger.cancel(session, f"nightly@{first}")
    assert len(clock.travel("3d", limit=5)) == 2
    assert ticks(made, within)[0] == (first, Status.CANCELLED)


def test_a_series_counts_from_the_time_to_which_the_test_moved(
    clock: Clock, ledger: Ledger, within: Within
) -> None:
    clock.travel("10d")
    began = clock.now
    with within() as session:
        ledger.schedule(session, "nightly", "orders.rate", [1], every="1d")
    assert clock.travel("23h") == []
    [ran] = clock.travel("1h1m", limit=3)
    assert ran.at - began >= timedelta(days=1)
    with within() as session:
        ledger.pause_series(session, "nightly")
    assert clock.travel("7d") == []
    with within() as session:
        ledger.resume_series(session, "nightly")
    assert clock.travel(0) == []
    assert len(clock.travel("1d", limit=3)) == 1
    with within() as session:
        ledger.unschedule(session, "nightly")
    assert clock.travel(until="idle") == []


def test_a_database_whose_clock_is_behind_is_not_waited_for(
    engine: Engine, ledger: Ledger, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect, looks = engine.dialect.name, list[int | None]()
    behind = create_engine(engine.url)  # it has compiled nothing yet
    monkeypatch.setattr(transaction, "_compiled", {})  # nor is what is compiled now left behind
    monkeypatch.setitem(sql_types._NOW, dialect, f"({sql_types._NOW[dialect]} - 5000)")
    next_moment = Rows.next_moment

    def noting(rows: Rows) -> int | None:
        looks.append(next_moment(rows))
        return looks[-1]

    monkeypatch.setattr(Rows, "next_moment", noting)
    with Clock(handlers=handlers) as clock:
        clock.use_ledger(behind)
        with behind.begin() as connection:
            ledger.schedule(connection, "nightly", "orders.rate", [1], every="1d")
        assert [one.late < 1 for one in clock.travel("73h", limit=5)] == [True] * 3
    behind.dispose()
    assert len(looks) < 100


def test_nights_without_a_listener_are_made_up_for_by_one_tick(
    clock: Clock, ledger: Ledger, within: Within
) -> None:
    with within() as session:
        ledger.schedule(session, "nightly", "orders.rate", [1], every="1d")
    assert len(clock.travel("1d", limit=2)) == 1
    clock.travel("4d12h", listening=False)
    [late] = clock.travel(0, limit=5)
    assert late.late // 3600 == 12


def test_a_series_of_which_the_transaction_is_rolled_back_has_no_ticks(
    clock: Clock, ledger: Ledger, within: Within
) -> None:
    with suppress(NoSaleError), within() as session:
        ledger.schedule(session, "nightly", "orders.rate", [1], every="1d")
        raise NoSaleError
    assert clock.travel("3d") == []


# A handler alone


def test_a_handler_alone_completes_nothing_without_an_id(engine: Engine, made: Tables) -> None:
    def complete() -> None:
        with engine.begin() as connection:
            current_task().complete_in(connection)

    assert run_handler(complete).end is End.SUCCEEDED
    with pytest.raises(InvalidTask, match="session=17"):
        run_handler(lambda: current_task().complete_in(17))  # type: ignore[arg-type]
    with engine.connect() as connection:
        assert connection.execute(select(made.task)).all() == []


def test_a_handler_alone_completes_the_row_of_its_id(
    engine: Engine, ledger: Ledger, made: Tables
) -> None:
    def complete() -> None:
        with engine.begin() as connection:
            current_task().complete_in(connection)

    with engine.begin() as connection:
        ledger.make_task(connection, "orders.rate", [], "1h", id="a")
    assert run_handler(complete, id="a", attempt=2).end is End.SUCCEEDED
    with engine.connect() as connection:
        [row] = connection.execute(select(made.task))
    assert (row.status, row.retry_times) == (Status.SUCCEEDED, 1)
    with pytest.raises(CompletionRefused, match="succeeded already"):
        run_handler(complete, id="a")
    with pytest.raises(CompletionRefused, match="no row"):
        run_handler(complete, id="b")


# A row decides between a deadline and a signal.


@pytest.fixture
def waiting(handlers: Handlers, clock: Clock, within: Within, ledger: Ledger) -> Clock:
    """A clock with two tasks that wait for a signal."""

    def ship(order: int) -> list[Any]:
        signal = current_task().signal
        assert signal is not None
        return [order, signal.payload, signal.by, signal.instead_of]

    handlers["orders.ship"] = ship
    with within() as session:
        for id in ("a", "b"):
            ledger.make_task(session, "orders.rate", [17], "24h", id=id, on_signal="orders.ship")
    return clock


def test_a_signal_in_a_transaction_and_a_deadline(
    waiting: Clock, within: Within, ledger: Ledger
) -> None:
    with within() as session:
        assert ledger.signal(session, "a", {"sum": 9}, by="psp") is Change.SIGNALLED
    waiting.assert_made("orders.rate", count=1)
    assert waiting.bridge.signal("b") is Change.OF_LEDGER
    first, second = waiting.travel("2d")
    assert (first.func, first.result) == ("orders.ship", [17, {"sum": 9}, "psp", "orders.rate"])
    assert (second.func, second.result, second.task.signal) == ("orders.rate", [17], None)
    with within() as session:
        assert ledger.signal(session, "a", {"sum": 9}, by="psp") is Change.SIGNALLED
        assert ledger.signal(session, "b") is Change.FINISHED


def test_a_signal_after_the_first_attempt_comes_too_late(
    waiting: Clock, within: Within, ledger: Ledger
) -> None:
    with within() as session:
        ledger.make_task(session, "orders.fail", [], "24h", id="c", on_signal="orders.ship")
    ran = waiting.travel("24h")
    assert (ran[-1].func, ran[-1].end) == ("orders.fail", End.RETRY)
    with within() as session:
        assert ledger.signal(session, "c") is Change.BEGUN
    assert {ran.func for ran in waiting.travel(until="idle")} == {"orders.fail"}


def test_a_signal_that_is_rolled_back_has_not_come(
    waiting: Clock, within: Within, ledger: Ledger
) -> None:
    with suppress(NoSaleError), within() as session:
        assert ledger.signal(session, "a") is Change.SIGNALLED
        raise NoSaleError
    assert [ran.func for ran in waiting.travel("2d")] == ["orders.rate"] * 2
