"""The testing kit and a program of asyncio: its engine, and its test's open transaction."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import Engine, event, select
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    create_async_engine,
)

from expirebridge import InvalidTask, State, current_task
from expirebridge.hooks import End
from expirebridge.ledger import Ledger, LedgerUnsuitable, Status, Tables
from expirebridge.testing import Clock, TravelError, arun_handler

DRIVERS = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite+aiosqlite"}


class NoSaleError(Exception):
    """Why a savepoint is rolled back."""


@pytest.fixture
async def application(engine: Engine) -> AsyncIterator[AsyncEngine]:
    """The engine of the program under test."""
    driver = DRIVERS.get(engine.dialect.name)
    if driver is None:
        pytest.skip("no driver of MySQL for asyncio is among the tests' own")
    application = create_async_engine(engine.url.set(drivername=driver))
    if engine.dialect.name == "sqlite":
        _let_savepoints_work(application)
    yield application
    await application.dispose()


def _let_savepoints_work(application: AsyncEngine) -> None:
    """What SQLAlchemy's page on pysqlite says."""

    @event.listens_for(application.sync_engine, "connect")
    def leave_transactions_to_us(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(application.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


@pytest.fixture
def handlers() -> dict[str, Any]:
    """Those of the test; it may add more before it travels."""

    async def work(*args: Any) -> list[Any]:
        return list(args)

    return {"orders.rate": work}


@pytest.fixture
def clock(handlers: dict[str, Any]) -> Iterator[Clock]:
    with Clock(handlers=handlers) as clock:
        yield clock


@pytest.fixture(params=[
    "session", pytest.param("scoped", marks=pytest.mark.rest),
    pytest.param("connection", marks=pytest.mark.rest),
])  # fmt: skip
async def session(
    request: pytest.FixtureRequest, application: AsyncEngine, clock: Clock
) -> AsyncIterator[AsyncSession]:
    """The test's own, given to the kit as such, by its registry or as its connection; it is rolled
    back."""
    async with application.connect() as connection:
        await connection.begin()
        own = AsyncSession(connection, join_transaction_mode="create_savepoint")
        async with own as session:
            scoped: async_scoped_session[AsyncSession] = async_scoped_session(
                lambda: own,  # type: ignore[arg-type]
                scopefunc=lambda: 0,
            )
            sources = {"session": session, "scoped": scoped, "connection": connection}
            clock.use_ledger(sources[request.param])
            yield session
        await connection.rollback()


async def status(session: AsyncSession, ledger: Ledger, id: str) -> Status:
    found = await session.run_sync(ledger.get, id)
    assert found is not None
    return found.status


async def test_rows_of_an_open_transaction_run_and_learn_how_they_ended(
    clock: Clock, session: AsyncSession, ledger: Ledger
) -> None:
    await session.run_sync(ledger.make_task, "orders.rate", [17], "24h", id="a")
    await session.commit()
    await clock.aassert_made("orders.rate", args=[17], due_in="24h", within="1m", count=1)
    await clock.aassert_not_made("orders.rate", args=[18])
    [ran] = await clock.atravel("24h", limit=2)
    assert (ran.end, ran.result) == (End.SUCCEEDED, [17])
    assert await status(session, ledger, "a") is Status.SUCCEEDED
    assert [task.state for task in await clock.amade()] == [State.SUCCEEDED]
    assert await clock.afailed() == []


async def test_a_savepoint_that_is_rolled_back_makes_nothing(
    clock: Clock, session: AsyncSession, ledger: Ledger
) -> None:
    await session.run_sync(ledger.make_task, "orders.rate", ["kept"], "1h")
    with suppress(NoSaleError):
        async with session.begin_nested():
            await session.run_sync(ledger.make_task, "orders.rate", ["gone"], "1h")
            await clock.aassert_made("orders.rate", args=["gone"])
            raise NoSaleError
    await clock.aassert_not_made("orders.rate", args=["gone"])
    assert [ran.task.args for ran in await clock.atravel("1h")] == [["kept"]]


async def test_handlers_complete_their_tasks(
    clock: Clock, session: AsyncSession, ledger: Ledger, handlers: dict[str, Any]
) -> None:
    async def complete() -> None:
        await session.run_sync(current_task().complete_in)
        await session.commit()
        raise RuntimeError("after its commit")

    handlers["orders.complete"] = complete
    await session.run_sync(ledger.make_task, "orders.complete", [], "1h", id="a")
    [ran] = await clock.atravel("3d")
    assert ran.end is End.SUCCEEDED
    assert await status(session, ledger, "a") is Status.SUCCEEDED
    await session.run_sync(ledger.make_task, "orders.complete", [], "1h", id="b")
    assert (await clock.arun_now("b")).end is End.SUCCEEDED


async def test_a_series_ticks(clock: Clock, session: AsyncSession, ledger: Ledger) -> None:
    await session.run_sync(ledger.schedule, "nightly", "orders.rate", cron="0 3 * * *")
    assert len(await clock.atravel("3d", limit=5)) == 3


@pytest.fixture
def horizon_of_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_HORIZON", "1d")


@pytest.mark.usefixtures("horizon_of_a_day")
@pytest.mark.parametrize("parts", [(365,), (364, 1)], ids=str)
async def test_a_row_that_is_kept_back_runs_in_its_time(
    parts: tuple[int, ...], clock: Clock, session: AsyncSession, ledger: Ledger
) -> None:
    for id, delay in (("first", "365d"), ("now", "400d"), ("last", "366d")):
        await session.run_sync(ledger.make_task, "orders.rate", [id], delay, id=id)
    assert [task.id for task in await clock.amade()] == ["first", "last", "now"]
    assert clock.bridge.get("now") is None
    assert (await clock.arun_now("now")).task.id == "now"
    ran = [one for days in parts for one in await clock.atravel(f"{days}d")]
    assert [one.task.id for one in ran] == ["first"]
    [last] = await clock.atravel(until="idle")
    assert last.task.id == "last"


async def test_nothing_is_left_of_it(
    application: AsyncEngine, engine: Engine, clock: Clock, ledger: Ledger, made: Tables
) -> None:
    async with application.connect() as connection:
        clock.use_ledger(connection)
        await connection.run_sync(ledger.make_task, "orders.rate", [1], "1h")
        assert len(await clock.atravel("1h")) == 1
        await connection.rollback()
    with engine.connect() as connection_after:
        for table in (made.task, made.passes):
            assert connection_after.execute(select(table)).all() == []


async def test_what_would_not_be_awaited_is_refused(clock: Clock, session: AsyncSession) -> None:
    assert session is not None
    with pytest.raises(TravelError, match=r"await amade\("):
        clock.made()
    with pytest.raises(TravelError, match=r"await afailed\("):
        clock.failed()
    with pytest.raises(TravelError, match=r"await aassert_made\("):
        clock.assert_made("orders.rate")
    with pytest.raises(TravelError, match=r"await aassert_not_made\("):
        clock.assert_not_made("orders.rate")


async def test_awaited_calls_work_without_a_ledger_too(clock: Clock) -> None:
    clock.bridge.make_task("orders.rate", [1], "1h")
    await clock.aassert_made("orders.rate", count=1)
    with pytest.raises(AssertionError, match="not wanted"):
        await clock.aassert_not_made("orders.rate")


async def test_an_engine_of_asyncio_names_the_database(
    application: AsyncEngine, clock: Clock, ledger: Ledger
) -> None:
    clock.use_ledger(application)
    async with AsyncSession(application) as session, session.begin():
        await session.run_sync(ledger.make_task, "orders.rate", [1], "1h", id="a")
    clock.assert_made("orders.rate", args=[1], due_in="1h")
    [ran] = await clock.atravel("1h")
    assert ran.end is End.SUCCEEDED
    async with AsyncSession(application) as session:
        assert await status(session, ledger, "a") is Status.SUCCEEDED


async def test_what_cannot_be_used_is_named_when_it_is_awaited(
    application: AsyncEngine, database_url: Any
) -> None:
    with Clock() as clock:
        clock.use_ledger(application.connect())
        with pytest.raises(InvalidTask, match="not open"):
            await clock.atravel(0)
    driver = DRIVERS[database_url.get_backend_name()]
    empty = create_async_engine(database_url.set(drivername=driver))
    async with AsyncSession(empty) as session:
        with Clock() as clock:
            clock.use_ledger(session)
            with pytest.raises(LedgerUnsuitable, match="there is no table"):
                await clock.atravel(0)
    await empty.dispose()


@pytest.mark.parametrize("commits", [True, False])
async def test_a_handler_alone_that_fails_after_it_completed(
    application: AsyncEngine, engine: Engine, ledger: Ledger, *, commits: bool
) -> None:
    async def complete() -> None:
        async with AsyncSession(application) as session:
            await session.run_sync(current_task().complete_in)
            if commits:
                await session.commit()
            raise RuntimeError

    with engine.begin() as connection:
        ledger.make_task(connection, "orders.rate", [], "1h", id="a")
    ran = await arun_handler(complete, id="a", raising=False)
    assert ran.end is (End.SUCCEEDED if commits else End.RETRY)


async def test_it_is_seen_in_an_open_transaction(application: AsyncEngine, ledger: Ledger) -> None:
    async with application.connect() as connection:
        await connection.run_sync(ledger.make_task, "orders.rate", [], "1h", id="a")

        async def complete() -> None:
            own = AsyncSession(connection, join_transaction_mode="create_savepoint")
            async with own as session, session.begin():
                await session.run_sync(current_task().complete_in)
            raise RuntimeError

        assert (await arun_handler(complete, id="a", raising=False)).end is End.SUCCEEDED
        await connection.rollback()
