"""Copies of a ledger's two sides, as people make them, and whether tasks run from them."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import URL, Column, Table, create_engine, insert, select, update

from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.schema import create
from expirebridge.ledger.sql_tables import Tables
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.databases import SQLITE, DatabaseServer
from tests.kit.ledgers import LedgerHarness
from tests.kit.witness import Witness, listening, until_logged

COPIES = "may be copies"


def dump_sql(url: URL, made: Tables) -> list[list[dict[str, object]]]:
    """The rows of each table."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = [
            [dict(row) for row in connection.execute(select(*stored(table))).mappings()]
            for table in made.all()
        ]
    engine.dispose()
    return rows


def stored(table: Table) -> list[Column[Any]]:
    """The columns that are written: the database computes the others."""
    return [column for column in table.c if column.computed is None]


def load_sql(url: URL, made: Tables, dump: list[list[dict[str, object]]]) -> None:
    """Create the tables elsewhere, and fill them with what was dumped."""
    engine = create_engine(url)
    with engine.begin() as connection:
        create(connection, made)
        connection.execute(update(made.schema).values(**dump[2][0]))
        for table, rows in zip(made.all(), dump, strict=True):
            if rows and table is not made.schema:
                connection.execute(insert(table), rows)
    engine.dispose()


@contextmanager
def in_its_place(
    server: DatabaseServer | None,
    url: URL,
    made: Tables,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[None]:
    """Restore a dump of the ledger on another server, which has the name and port of this one.

    Without a server it is a file. `meanwhile` is called while neither runs.
    """
    dump = dump_sql(url, made)
    if server is None:
        assert url.get_backend_name() == SQLITE
        original = Path(url.database or "")
        original.rename(original.with_suffix(".original"))
        meanwhile()
        load_sql(url, made, dump)
        yield
        return
    copy = DatabaseServer(server.name)
    try:
        load_sql(copy.new_database(), made, dump)
        copy.stop()
        server.stop()
        meanwhile()
        copy.port = server.port
        copy.start()
        yield
    finally:
        copy.close()


@contextmanager
def copied(server: EmbeddedServer, *, port: int | None = None) -> Iterator[EmbeddedServer]:
    """Another server with a snapshot of this one, on this port."""
    with redis.Redis(port=server.port) as client:
        client.save()
    if port == server.port:
        server.kill()
    with EmbeddedServer(port=port, options={"appendonly": "no"}) as copy:
        copy.kill()
        shutil.copyfile(server.directory / "dump.rdb", copy.directory / "dump.rdb")
        copy.start()
        yield copy


def plain(url: URL) -> str:
    """As settings take it."""
    return url.render_as_string(hide_password=False)


def create_tables(url: URL, made: Tables) -> None:
    """Create the tables of a ledger."""
    engine = create_engine(url)
    with engine.begin() as connection:
        create(connection, made)
    engine.dispose()


def fill(settings: Settings, made: Tables) -> None:
    """Bind the ledger as a listener does, and leave tasks: carried, and still to be carried."""
    ledger_engine = LedgerEngine(settings)
    with redis.Redis.from_url(settings.url) as client:
        store = Store(client, prefix="expirebridge")
        harness = LedgerHarness(ledger_engine.engine, made, store)
        ours = ledger_engine.partition(lambda: store)
        harness.insert("carried", func="test.run", params="[]")
        ours.relay_once()
        ours.relay_once()
        harness.insert("new", func="test.run", params="[]")
    ledger_engine.close()


async def nothing_runs(settings: Settings, caplog: pytest.LogCaptureFixture) -> str:
    """A listener runs no task of the ledger; returns why."""
    ran: list[int] = []
    async with listening(settings, Witness(), run=lambda: ran.append(1)):
        await until_logged(lambda: "stands still" in caplog.text)
        await asyncio.sleep(2)  # time passes: what would be claimed by then
    assert ran == []
    [line] = [one.getMessage() for one in caplog.records if "stands still" in one.getMessage()]
    assert "ledger rebuild --yes" in line
    return line


async def all_run(settings: Settings, count: int = 2) -> None:
    """A listener runs the tasks of the ledger."""
    witness = Witness()
    async with listening(settings, witness, run=lambda: None):
        await witness.until_ended(count, End.SUCCEEDED)
