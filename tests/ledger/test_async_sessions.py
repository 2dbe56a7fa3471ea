"""The sessions of asyncio, through `run_sync`."""

from typing import Any, cast

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from expirebridge import Change
from expirebridge.errors import InvalidTask
from expirebridge.ledger import Ledger

DRIVERS = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite+aiosqlite"}


async def test_an_async_session_runs_it_in_its_transaction(engine: Engine, ledger: Ledger) -> None:
    driver = DRIVERS.get(engine.dialect.name)
    if driver is None:
        pytest.skip("no driver of MySQL for asyncio is among the tests' own")
    application = create_async_engine(engine.url.set(drivername=driver))
    try:
        async with AsyncSession(application) as session:
            await session.run_sync(ledger.make_task, "a.b", [], 5, id="x")
            await session.rollback()
            task = await session.run_sync(lambda session: ledger.get(session, "x"))
            assert task is None
            await session.run_sync(ledger.make_task, "a.b", [], 5, id="x")
            await session.commit()
            await session.run_sync(ledger.make_task, "a.b", [], 5, id="y", on_signal="a.c")
            assert await session.run_sync(ledger.signal, "y", 7) is Change.SIGNALLED
            await session.commit()
        async with application.connect() as connection:
            task = await connection.run_sync(lambda connection: ledger.get(connection, "x"))
            assert task is not None
            assert await connection.run_sync(ledger.signal, "y", 7) is Change.SIGNALLED
            assert await connection.run_sync(ledger.signal, "y", 8) is Change.SIGNALLED_BEFORE
    finally:
        await application.dispose()


async def test_an_async_engine_names_the_ledgers_database(engine: Engine) -> None:
    driver = DRIVERS.get(engine.dialect.name)
    if driver is None:
        pytest.skip("no driver of MySQL for asyncio is among the tests' own")
    application = create_async_engine(engine.url.set(drivername=driver))
    ledger = Ledger(application)
    assert not ledger.create()
    async with AsyncSession(application) as session:
        await session.run_sync(ledger.make_task, "a.b", [], 5, id="x")
    await application.dispose()


async def test_without_run_sync_it_is_named() -> None:
    application = create_async_engine("sqlite+aiosqlite://")
    async with AsyncSession(application) as session:
        with pytest.raises(InvalidTask, match=r"await session\.run_sync"):
            Ledger().make_task(cast(Any, session), "a.b", [], 5)
    await application.dispose()


def test_an_async_url_names_the_same_database(engine: Engine) -> None:
    """The relay and the commands wait; they use the driver that waits."""
    driver = DRIVERS.get(engine.dialect.name, engine.url.drivername)
    ledger = Ledger(engine.url.set(drivername=driver))
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], 5)
