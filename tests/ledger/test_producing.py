"""Tasks are made, changed and found in the caller's transaction, however that is held."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import URL, Engine, MetaData, create_engine, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from expirebridge import Bridge
from expirebridge.errors import InvalidSetting, InvalidTask, LedgerUnsuitable, TaskExists
from expirebridge.ledger import (
    DesiredState,
    Ledger,
    LedgerTask,
    Status,
    Tables,
    tables,
)
from expirebridge.store.client import Store
from expirebridge.task.task import Change, Outcome
from tests.kit.ledgers import LedgerHarness


def driver_connection(url: URL) -> Any:
    """A connection of the database's driver, without SQLAlchemy."""
    match url.get_backend_name():
        case "postgresql":
            return psycopg.connect(
                host=url.host, port=url.port, user=url.username, dbname=url.database
            )
        case "sqlite":
            return sqlite3.connect(url.database or "")
        case _:
            return pymysql.connect(
                host=url.host, port=url.port or 0, user=url.username, database=url.database
            )


@contextmanager
def by_session(engine: Engine) -> Iterator[Session]:
    with Session(engine) as session:
        yield session


@contextmanager
def by_scoped_session(engine: Engine) -> Iterator[scoped_session[Session]]:
    session = scoped_session(sessionmaker(engine))
    try:
        yield session
    finally:
        session.remove()


@contextmanager
def by_connection(engine: Engine) -> Iterator[Any]:
    with engine.connect() as connection:
        yield connection


@contextmanager
def by_driver(engine: Engine) -> Iterator[Any]:
    connection = driver_connection(engine.url)
    try:
        yield connection
    finally:
        connection.rollback()
        connection.close()


WAYS = [by_session, by_scoped_session, by_connection, by_driver]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__.removeprefix("by_"))
def opened(request: pytest.FixtureRequest, engine: Engine) -> Callable[[], Any]:
    """Opens a transaction of the application in one of the ways that there are."""
    return lambda: request.param(engine)


def rows(engine: Engine, made: Tables) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(made.task.select().order_by(made.task.c.created)))


def test_a_task_is_committed_with_the_transaction(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        task = ledger.make_task(
            session, "orders.rate", [17, "ä"], "72h", ext="order-17", tags=["shop"],
            retry=[15, 60], timeout="30s", late_after="5m", misfire="skip",
        )  # fmt: skip
        assert rows(engine, made) == [] or engine.dialect.name == "sqlite"
        session.commit()
    [row] = rows(engine, made)
    assert (row.id, row.func, row.params) == (task.id, "orders.rate", '[17,"ä"]')
    assert (row.ext_string, row.delay_ms, row.at_ms) == ("order-17", 72 * 3600_000, None)
    assert (row.status, row.wanted, row.todo, row.revision) == (1, "none", 1, 1)
    now = datetime.now(UTC).timestamp() * 1000
    assert abs(row.written - now) < 10_000
    assert row.options == (
        '{"tags":["shop"],"retry":"[15.0,60.0]","timeout":30.0,"misfire":"[\\"skip\\",300.0]"}'
    )
    assert task == LedgerTask(
        id=task.id, func="orders.rate", args=[17, "ä"], ext="order-17", tags=("shop",),
        outcome=Outcome.CREATED,
    )  # fmt: skip


def test_a_signal_is_committed_with_the_transaction(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        ledger.make_task(session, "a.b", [], "1h", id="x", on_signal="a.c")
        session.commit()
    [before] = [after] = rows(engine, made)
    for end in ("rollback", "commit"):
        with opened() as session:
            assert ledger.signal(session, "x", {"ä": "100%"}, by="psp") is Change.SIGNALLED
            assert ledger.signal(session, "x", {"ä": "100%"}, by="psp") is Change.SIGNALLED
            assert ledger.signal(session, "x", by="psp") is Change.SIGNALLED_BEFORE
            assert rows(engine, made) == [before] or engine.dialect.name == "sqlite"
            getattr(session, end)()
        [after] = rows(engine, made)
        assert (after == before) is (end == "rollback")
    assert (after.func, after.decided, after.revision) == ("a.c", "signal", 2)
    assert (after.at_ms, after.delay_ms, after.due, after.todo) == (None, 0, None, 1)
    with opened() as session:
        task = ledger.get(session, "x")
        assert task is not None
        assert task.signal is not None
        assert (task.signal.payload, task.signal.instead_of) == ({"ä": "100%"}, "a.b")


def test_a_rollback_leaves_nothing(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        ledger.make_task(session, "a.b", [], 5, id="x")
        ledger.make_tasks(session, [{"func": "a.b", "delay": 5}] * 3)
        session.rollback()
    assert rows(engine, made) == []
    with opened() as session:
        ledger.make_task(session, "a.b", [], 5, id="x")
        session.commit()
    with opened() as session:
        assert ledger.cancel(session, "x") is Change.CANCELLED
        assert ledger.reschedule(session, ext="none", delay=1) == 0
        session.rollback()
    [row] = rows(engine, made)
    assert (row.wanted, row.revision) == ("none", 1)


def test_a_savepoint_that_is_rolled_back_leaves_nothing(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        run = session.execute if hasattr(session, "execute") else session.cursor().execute
        sql: Any = text if not hasattr(session, "cursor") else str
        ledger.make_task(session, "a.b", [], 5, id="outer")
        run(sql("SAVEPOINT inner_one"))
        ledger.make_task(session, "a.b", [], 5, id="inner")
        run(sql("ROLLBACK TO SAVEPOINT inner_one"))
        session.commit()
    assert [row.id for row in rows(engine, made)] == ["outer"]


def test_an_unfinished_task_keeps_its_id(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        ledger.make_task(session, "a.first", [], 5, id="x")
        session.commit()
        with pytest.raises(TaskExists, match="'x' exists and is not finished") as raised:
            ledger.make_task(session, "a.second", [], 5, id="x")
        assert (raised.value.id, raised.value.state) == ("x", "unfinished")
        ledger.make_task(session, "a.third", [], 5, id="y")  # the transaction goes on
        session.commit()
    assert {row.func for row in rows(engine, made)} == {"a.first", "a.third"}


def test_a_finished_task_makes_way(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.task.insert().values(
                id="x", func="a.first", params="[]", at_ms=1, status=10, todo=0, stamp=7, due=1,
                message="done", retry_times=3, generation=2, revision=4, wanted="cancelled",
                created=1, modified=1, slot=3, options='{"timeout":3}',
            )
        )  # fmt: skip
    with opened() as session:
        ledger.make_task(session, "a.second", [1], 5, id="x", ext="e")
        session.commit()
    [row] = rows(engine, made)
    assert (row.func, row.params, row.ext_string) == ("a.second", "[1]", "e")
    assert (row.at_ms, row.delay_ms, row.due, row.options) == (None, 5000, None, None)
    assert (row.revision, row.status, row.wanted) == (5, 1, "none")
    assert abs(row.generation - row.created) < 1000
    assert (row.todo, row.stamp, row.slot) == (1, 7, 3)
    assert (row.message, row.retry_times) == (None, 0)
    assert row.created > 1
    assert row.modified > 1


@pytest.mark.parametrize("status", [1, 10])
def test_another_task_is_replaced(
    status: int, opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.task.insert().values(id="x", func="a.b", params="[]", at_ms=1, status=status)
        )
    with opened() as session:
        ledger.make_task(session, "a.c", [], 5, id="x", if_exists="replace")
        ledger.make_task(session, "a.d", [], 5, id="new", if_exists="replace")
        session.commit()
        assert ledger.get(session, "x") is not None
    old, new = sorted(rows(engine, made), key=lambda row: str(row.func))
    assert (old.func, old.revision, old.status) == ("a.c", 2, 1)
    assert (new.func, new.revision) == ("a.d", 1)
    assert all(abs(row.generation - row.created) < 1000 for row in (old, new))


def test_to_replace_a_task_is_in_no_deadlock_with_who_writes_to_its_row(
    engine: Engine, ledger: Ledger
) -> None:
    """An INSERT that fails on MySQL holds a lock that an UPDATE elsewhere waits for."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    stop, written = threading.Event(), threading.Semaphore(0)

    def write() -> None:
        while not stop.is_set():
            with engine.begin() as connection:
                connection.execute(text("UPDATE expirebridge_task SET slot = 1 - slot"))
            written.release()

    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], 5, id="x")
        connection.execute(text("UPDATE expirebridge_task SET slot = 0"))
    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write) for _ in range(2)]
        try:
            for _ in range(200):
                written.acquire()
                with engine.begin() as connection:
                    ledger.make_task(connection, "a.b", [], 5, id="x", if_exists="replace")
        finally:
            stop.set()
        for writer in writers:
            writer.result()


def test_a_row_that_is_to_be_rebuilt_stays_one(
    engine: Engine, ledger: Ledger, made: Tables
) -> None:
    """Until Redis has it again, an older copy there may be claimed: the gate must stay closed."""
    with engine.begin() as connection:
        for id, status in (("a", 10), ("b", 1), ("c", 1)):
            connection.execute(
                made.task.insert().values(
                    id=id, func="a.b", params="[]", at_ms=1, status=status, todo=2
                )
            )
        ledger.make_task(connection, "a.b", [], 5, id="a")
        ledger.cancel(connection, "b")
        ledger.reschedule(connection, "c", 5)
    assert {row.todo for row in rows(engine, made)} == {2}


def test_tasks_are_cancelled_by_id_and_by_ext(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        for id in ("a", "b", "c"):
            ledger.make_task(session, "a.b", [], 5, id=id, ext="order-1" if id != "c" else None)
        session.commit()
        assert ledger.cancel(session, "c") is Change.CANCELLED
        assert ledger.cancel(session, "c") is Change.FINISHED
        assert ledger.cancel(session, ext="order-1") == 2
        assert ledger.cancel(session, ext="order-2") == 0
        session.commit()
        assert [task.wanted for task in ledger.find(session, ext="order-1")] == ["cancelled"] * 2
    for row in rows(engine, made):
        assert (row.wanted, row.revision, row.todo, row.status) == ("cancelled", 2, 1, 1)


def test_tasks_are_moved_by_id_and_by_ext(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.task.insert().values(
                id="x", func="a.b", params="[]", delay_ms=5, todo=0, due=77, written=1,
                ext_string="e",
            )
        )  # fmt: skip
    moment = datetime(2031, 5, 1, 8, tzinfo=UTC)
    with opened() as session:
        assert ledger.reschedule(session, "x", at=moment) == 1
        session.commit()
    [row] = rows(engine, made)
    ms = round(moment.timestamp() * 1000)
    assert (row.at_ms, row.delay_ms, row.due) == (ms, None, None)
    assert (row.revision, row.todo) == (2, 1)
    with opened() as session:
        assert ledger.reschedule(session, ext="e", delay="1h") == 1
        session.commit()
    [row] = rows(engine, made)
    assert (row.at_ms, row.delay_ms, row.revision) == (None, 3600_000, 3)
    assert row.written > 1
    with opened() as session:
        ledger.cancel(session, "x")
        assert ledger.reschedule(session, "x", 5) == 0
        session.commit()


def test_many_tasks_are_made_at_once(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with opened() as session:
        ledger.make_task(session, "a.b", [], 5, id="taken")
        tasks = [{"func": "a.b", "args": [n], "delay": n, "ext": f"e{n}"} for n in range(100)]
        tasks += [{"func": "a.b", "delay": 1, "id": id} for id in ("taken", "free")]
        tasks += [{"func": "a.c", "delay": 1, "id": "taken2", "if_exists": "replace"}]
        done = ledger.make_tasks(session, tasks)
        session.commit()
        assert [task.outcome for task in done[-3:]] == ["rejected", "created", "created"]
        assert len({task.id for task in done}) == 103
        [found] = ledger.find(session, ext="e42")
        assert found.args == [42]
        assert found.id == done[42].id
    assert len(rows(engine, made)) == 103


def test_a_task_is_found_as_it_is(
    opened: Callable[[], Any], engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with engine.begin() as connection:
        connection.execute(
            made.task.insert().values(
                id="x", func="a.b", params='{"*":[1],"k":2}', at_ms=5, due=86_400_000, status=20,
                message="boom", retry_times=2, ext_string="ü", todo=0,
            )
        )  # fmt: skip
    with opened() as session:
        task = ledger.get(session, "x")
        assert task is not None
        assert ledger.find(session, ext="ü") == [task]
        assert ledger.get(session, "X") is None  # bytes are compared
        assert ledger.find(session, ext="Ü") == []
    assert (task.args, task.kwargs) == ([1], {"k": 2})
    assert (task.status, task.wanted) == (Status.FAILED, DesiredState.NONE)
    assert task.due == datetime(1970, 1, 2, tzinfo=UTC)
    assert (task.message, task.retry_times) == ("boom", 2)
    assert task.created is not None
    assert abs(task.created - datetime.now(UTC)) < timedelta(seconds=10)


def test_ids_that_differ_in_case_only_are_two_tasks(
    engine: Engine, ledger: Ledger, made: Tables
) -> None:
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], 5, id="a")
        ledger.make_task(connection, "a.b", [], 5, id="A")
        assert ledger.cancel(connection, "A") is Change.CANCELLED
    assert {row.id: row.wanted for row in rows(engine, made)} == {"a": "none", "A": "cancelled"}


def test_the_longest_values_are_kept(engine: Engine, ledger: Ledger) -> None:
    text = "\U0001f600" * ((64 * 1024 - 4) // 4)
    with engine.begin() as connection:
        ledger.make_task(
            connection, f"a.{'b' * 198}", [text], "5200w", id="x" * 128, ext="\U0001f600" * 255
        )
        task = ledger.get(connection, "x" * 128)
        assert task is not None
        assert task.args == [text]
        assert task.ext == "\U0001f600" * 255


def test_ledgers_of_two_names_share_the_table(engine: Engine) -> None:
    shop, blog = Ledger(engine.url, name="shop"), Ledger(engine.url, name="blog")
    with engine.begin() as connection:
        shop.make_task(connection, "a.b", [], 5, id="x", ext="e")
        assert blog.get(connection, "x") is None
        assert blog.cancel(connection, ext="e") == 0
        blog.make_task(connection, "a.b", [], 5, id="x")
        assert shop.cancel(connection, "x") is Change.CANCELLED


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"func": "nothing"}, "func="),
        ({"args": [object()]}, r"args\[0\]"),
        ({"delay": None}, "give either delay or at"),
        ({"at": datetime(2031, 1, 1)}, "not both"),
        ({"delay": None, "at": datetime(2031, 1, 1)}, "naive"),
        ({"id": "a b"}, "id="),
        ({"if_exists": "keep"}, "in a ledger, reject or replace"),
        ({"ext": ""}, "ext="),
        ({"ext": "x" * 256}, "ext="),
        ({"ext": "a\0b"}, "ext="),
        ({"ext": "\ud800"}, "ext="),
        ({"tags": "text"}, "tags="),
        ({"timeout": -1}, "timeout="),
        ({"retry": "often"}, "retry="),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    given: dict[str, Any], error: str
) -> None:
    task: dict[str, Any] = {"func": "a.b", "args": [], "delay": 5, **given}
    ledger = Ledger()
    nothing_is_there = sqlite3.connect(":memory:")
    with pytest.raises(InvalidTask, match=error):
        ledger.make_task(nothing_is_there, **task)
    with pytest.raises(InvalidTask, match="task 1: .*" + error):
        ledger.make_tasks(nothing_is_there, [{"func": "a.b", "delay": 1}, task])


def test_a_session_must_be_one() -> None:
    ledger = Ledger()
    wrong: Any
    for wrong in (None, object(), create_engine("sqlite://")):
        with pytest.raises(InvalidTask, match="session"):
            ledger.make_task(wrong, "a.b", [], 5)


def test_either_an_id_or_an_ext_is_given() -> None:
    ledger: Any = Ledger()
    session = sqlite3.connect(":memory:")
    for call in (ledger.cancel, ledger.reschedule, ledger.erase):
        with pytest.raises(InvalidTask, match="either id or ext"):
            call(session)
        with pytest.raises(InvalidTask, match="either id or ext"):
            call(session, "x", ext="y")


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger: ledger.make_task("a.b", [1], 5),
        lambda ledger: ledger.make_task("a.b", [1], "5m"),
        lambda ledger: ledger.make_tasks([{"func": "a.b", "delay": 1}], []),
        lambda ledger: ledger.cancel("x"),
        lambda ledger: ledger.reschedule("x", "5m"),
        lambda ledger: ledger.erase("x"),
        lambda ledger: ledger.schedule("nightly", "a.b", [1], every="1h"),
        lambda ledger: ledger.list_series("nightly"),
        lambda ledger: ledger.unschedule("nightly", "x"),
    ],
)
def test_a_call_without_its_transaction_says_that_it_comes_first(
    call: Callable[[Any], object],
) -> None:
    with pytest.raises(InvalidTask, match=r"^session=.*: the first argument of each call is your"):
        call(Ledger())


def test_a_cancellation_answers_as_that_of_a_bridge(engine: Engine, ledger: Ledger) -> None:
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], 5, id="x")
        answers = [ledger.cancel(connection, id) for id in ("x", "x", "nobody")]
    assert answers == [Change.CANCELLED, Change.FINISHED, Change.NOT_FOUND]


def test_an_engine_names_the_ledgers_database(engine: Engine, database_url: URL) -> None:
    ledger = Ledger(engine)
    with Session(engine) as session, session.begin():
        assert ledger.make_task(session, "a.b", [], 5).outcome is Outcome.CREATED
    elsewhere = create_engine(database_url)
    assert Ledger(elsewhere).create()
    with (
        elsewhere.begin() as connection,
        pytest.raises(LedgerUnsuitable, match="another database"),
    ):
        ledger.make_task(connection, "a.b", [], 5)
    elsewhere.dispose()


def test_a_ledger_creates_its_tables(database_url: URL) -> None:
    engine = create_engine(database_url)
    ledgers = [Ledger(engine), Ledger(database_url)]
    assert [ledger.create() for ledger in ledgers] == [True, False]
    with engine.begin() as connection:
        assert ledgers[1].make_task(connection, "a.b", [], 5).outcome is Outcome.CREATED
    engine.dispose()


def test_create_all_is_enough_for_tables_of_ones_own(database_url: URL) -> None:
    metadata = MetaData()
    own = Ledger(database_url, tables=tables(metadata))
    engine = create_engine(database_url)
    metadata.create_all(engine)
    assert not own.create()
    with engine.begin() as connection:
        assert own.make_task(connection, "a.b", [], 5).outcome is Outcome.CREATED
    engine.dispose()


def test_tables_are_created_in_a_database_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EXPIREBRIDGE_LEDGER", raising=False)
    with pytest.raises(InvalidSetting, match=r"a URL or an Engine, or set EXPIREBRIDGE_LEDGER"):
        Ledger().create()


def test_what_is_no_engine_is_refused_with_what_to_give() -> None:
    engine = create_engine("sqlite://")
    given: Any
    for given in (
        Session(engine), sessionmaker(engine), scoped_session(sessionmaker(engine)),
        engine.connect(),
    ):  # fmt: skip
        with pytest.raises(InvalidSetting, match=r"Ledger\(engine\), and the session to each call"):
            Ledger(given)
    given = sqlite3.connect(":memory:")
    with pytest.raises(InvalidSetting, match=r"give a URL, an Engine or an AsyncEngine"):
        Ledger(given)


def test_a_bridge_names_the_way_to_change_a_task_of_the_ledger(
    engine: Engine, ledger: Ledger, made: Tables, store: Store, bridge: Bridge
) -> None:
    """No error names a way that leads to another error."""
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [1], "1h", id="a")
    LedgerHarness(engine, made, store).settle_down()
    ways: list[dict[str, Any]] = [
        {"args": args, "if_exists": how}
        for args in ([1], [2])
        for how in ("reject", "replace", "extend")
    ]
    for way in ways:
        if way != {"args": [1], "if_exists": "extend"}:
            with pytest.raises(TaskExists, match=r"of a ledger: .*ledger\.make_task\(session"):
                bridge.make_task("a.b", delay=60, id="a", **way)
    bridge.cancel("a")
    for way in ways:
        with pytest.raises(TaskExists, match="is cancelled, and of a ledger"):
            bridge.make_task("a.b", delay=60, id="a", **way)
