"""One side of a ledger may be moved; a copy of it runs nothing."""

import asyncio
import logging
from contextlib import closing
from dataclasses import replace

import pytest
import redis
from sqlalchemy import URL, create_engine, make_url, select, text

from expirebridge.checks.finding import Level
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger import Tables
from expirebridge.ledger.binding import Met
from expirebridge.ledger.calls import read_ledgers
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.schema import create, identity_of
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.copies import (
    COPIES,
    all_run,
    copied,
    create_tables,
    dump_sql,
    fill,
    load_sql,
    nothing_runs,
    plain,
)
from tests.kit.databases import POSTGRESQL, Database


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "expirebridge")
    return caplog


@pytest.fixture
def production(database_url: URL, made: Tables, original: EmbeddedServer) -> Settings:
    """A ledger that is bound to its Redis, with a task in both that is due, and one in SQL only."""
    create_tables(database_url, made)
    # Half of the lease is how long an answer may take: what a busy machine may need.
    settings = Settings(url=original.url, ledger=plain(database_url), lease=6.0)
    fill(settings, made)
    return settings


def elsewhere(settings: Settings, shared: Database, made: Tables) -> str:
    """Restore a dump of the ledger in another database; returns its URL."""
    url = shared.new_database()
    assert settings.ledger is not None
    load_sql(url, made, dump_sql(make_url(settings.ledger), made))
    return plain(url)


async def test_a_moved_sql_database_is_learnt(
    production: Settings, shared_database: Database, made: Tables,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    await all_run(replace(production, ledger=elsewhere(production, shared_database, made)))
    assert "has learnt: the SQL database is at" in caplog.text
    assert "stands still" not in caplog.text


async def test_a_moved_redis_is_learnt(
    production: Settings, original: EmbeddedServer, caplog: pytest.LogCaptureFixture
) -> None:
    with copied(original) as moved:
        original.kill()
        await all_run(replace(production, url=moved.url))
    assert f"has learnt: Redis is at 127.0.0.1:{moved.port}" in caplog.text
    assert "stands still" not in caplog.text


@pytest.mark.rest
async def test_a_dump_of_sql_beside_an_empty_redis_runs_nothing(
    production: Settings, shared_database: Database, made: Tables,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    with EmbeddedServer() as empty:
        ledger = elsewhere(production, shared_database, made)
        why = await nothing_runs(replace(production, url=empty.url, ledger=ledger), caplog)
        with redis.Redis(port=empty.port, db=1) as client:
            assert client.keys("expirebridge:task:*") == []
    assert "Redis knows no ledger; Redis is at" in why
    assert COPIES in why


@pytest.mark.rest
async def test_the_same_sql_database_beside_an_empty_redis_elsewhere_runs_nothing(
    production: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedServer() as empty:
        why = await nothing_runs(replace(production, url=empty.url), caplog)
    assert f"Redis knows no ledger; Redis is at 127.0.0.1:{empty.port}" in why


@pytest.mark.rest
async def test_a_copy_of_redis_beside_an_empty_ledger_runs_nothing(
    production: Settings, original: EmbeddedServer, shared_database: Database, made: Tables,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    url = shared_database.new_database()
    create_tables(url, made)
    with copied(original) as copy:
        why = await nothing_runs(replace(production, url=copy.url, ledger=plain(url)), caplog)
    assert "Redis belongs to another ledger" in why


async def test_copies_of_both_elsewhere_run_nothing(
    production: Settings, original: EmbeddedServer, shared_database: Database, made: Tables,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    ledger = elsewhere(production, shared_database, made)
    with copied(original) as copy:
        staging = replace(production, url=copy.url, ledger=ledger)
        why = await nothing_runs(staging, caplog)
        store = Store(redis.Redis(port=copy.port, db=1), prefix="expirebridge")
        [found] = await asyncio.to_thread(
            check_ledger, staging, lambda: store.run(read_ledgers(run_ids=True))
        )
        assert found.level is Level.ERROR
        assert why.endswith(f"{found.message} (reported once)")
        with closing(LedgerEngine(staging)) as ledger_engine:
            await asyncio.to_thread(ledger_engine.partition(lambda: store).rebuild)
        await all_run(staging)


def test_a_login_without_rights_is_told_less_of_postgresql(
    shared_database: Database, made: Tables
) -> None:
    if shared_database.name != POSTGRESQL:
        pytest.skip("others have no such rights")
    url = shared_database.new_database()
    engine = create_engine(url)
    with engine.begin() as connection:
        create(connection, made)
        full = identity_of(connection, made.passes)
        connection.execute(text("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"))
        connection.execute(text("CREATE ROLE poor"))
        connection.execute(text("SET LOCAL ROLE poor"))
        less = identity_of(connection, made.passes)
    engine.dispose()
    assert less.split()[1] == "?"
    assert less.split()[2:] == full.split()[2:]


def test_a_login_that_may_not_ask_redis_who_it_is(
    production: Settings, original: EmbeddedServer, shared_database: Database, made: Tables
) -> None:
    """Such as that of a producer, for a command: a listener may. Less can be told then."""
    with redis.Redis(port=original.port) as client:
        client.execute_command("ACL SETUSER poor on >p ~* &* +@all -info")
    poor = replace(production, url=f"redis://poor:p@localhost:{original.port}/1")
    with redis.Redis.from_url(poor.url) as client:
        store = Store(client, prefix="expirebridge")
        with closing(LedgerEngine(poor)) as ledger_engine:
            assert ledger_engine.partition(lambda: store).relay_once() == 1
        moved = replace(poor, ledger=elsewhere(poor, shared_database, made))
        with closing(LedgerEngine(moved)) as ledger_engine:
            with pytest.raises(LedgerUnsuitable, match="does not say which process it is"):
                ledger_engine.partition(lambda: store).relay_once()
            ledger_engine.partition(lambda: store).rebuild()
            assert ledger_engine.partition(lambda: store).relay_once() == 2


def test_a_bound_ledger_remembers_no_login(production: Settings, made: Tables) -> None:
    ledger_engine = LedgerEngine(production)
    with ledger_engine.engine.connect() as connection:
        met = Met.read(connection.scalar(select(made.passes.c.met)))
    ledger_engine.close()
    assert met.partitions == 1
    assert len(met.redis) == len(met.sql) == 1
    assert "@" not in met.text
