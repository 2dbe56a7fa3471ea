"""Copies at the addresses of the original."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from sqlalchemy import URL, create_engine, make_url

from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End
from expirebridge.ledger import Tables
from expirebridge.ledger.calls import read_ledger
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.copies import (
    COPIES,
    all_run,
    copied,
    create_tables,
    fill,
    in_its_place,
    nothing_runs,
    plain,
)
from tests.kit.databases import MARIADB, POSTGRESQL, SQLITE, DatabaseServer, binary_of
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.witness import Witness, listening, until_logged


@pytest.fixture(params=[SQLITE, POSTGRESQL, MARIADB])
def sql(
    request: pytest.FixtureRequest, tmp_path: Path, made: Tables
) -> Iterator[tuple[DatabaseServer | None, URL]]:
    """The ledger of production, on a server of its own, or in a file."""
    if request.param == SQLITE:
        url = make_url(f"sqlite:///{tmp_path}/ledger.db")
        create_tables(url, made)
        yield None, url
        return
    if binary_of(request.param) is None:
        pytest.skip(f"needs {request.param}")
    server = DatabaseServer(request.param)
    url = server.new_database()
    create_tables(url, made)
    yield server, url
    server.close()


@pytest.mark.parametrize(
    "sides",
    [
        "both",
        pytest.param("sql", marks=pytest.mark.rest),
        pytest.param("sql beside an empty Redis", marks=pytest.mark.rest),
    ],
)
async def test_copies_at_the_same_addresses(
    sql: tuple[DatabaseServer | None, URL], sides: str, made: Tables, original: EmbeddedServer,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """As a staging system in containers has them: with the host names of production."""
    server, url = sql
    settings = Settings(url=original.url, ledger=plain(url), lease=1.0)
    fill(settings, made)
    with ExitStack() as stack:
        stack.enter_context(in_its_place(server, url, made))
        if sides == "sql":
            await all_run(settings)
            return
        if sides == "both":
            stack.enter_context(copied(original, port=original.port))
            why = await nothing_runs(settings, caplog)
            assert "is another process than the one met last" in why
        else:
            with redis.Redis(port=original.port) as client:
                client.flushall()
            why = await nothing_runs(settings, caplog)
            assert "Redis knows no ledger; the SQL database at" in why
    assert COPIES in why


@pytest.mark.parametrize("sides", ["both", "sql"])
async def test_copies_under_a_listener(
    sql: tuple[DatabaseServer | None, URL], sides: str, made: Tables, original: EmbeddedServer,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """It asks on its new connections, as one does that starts."""
    server, url = sql
    if server is None:
        pytest.skip("a file that was renamed is still the one that is open")
    caplog.set_level(logging.INFO, "expirebridge")
    settings = Settings(url=original.url, ledger=plain(url), lease=1.0)
    fill(settings, made)
    witness = Witness()
    store = Store(redis.Redis(port=original.port, db=1), prefix="expirebridge")
    with ExitStack() as stack:
        async with listening(settings, witness, run=lambda: None) as listener:
            await witness.until_ended(2, End.SUCCEEDED)
            # Otherwise the dump would be older than the Redis beside it.
            await until(lambda: store.run(read_ledger()).dirty == 0)

            def copy_redis() -> None:
                if sides == "both":
                    stack.enter_context(copied(original, port=original.port))

            changed = in_its_place(server, url, made, copy_redis)
            await asyncio.to_thread(stack.enter_context, changed)
            engine = create_engine(url)
            LedgerHarness(engine, made, store).insert("copied", func="test.run", params="[]")
            engine.dispose()
            if sides == "sql":
                await witness.until_ended(3, End.SUCCEEDED)
                await until_logged(lambda: "the SQL database says that it is" in caplog.text)
            else:
                await until_logged(lambda: COPIES in caplog.text)
                await asyncio.sleep(2 * listener.settings.lease)
                assert not store.client.exists("expirebridge:task:copied")
    assert (COPIES in caplog.text) == (sides == "both")
