"""Fixtures: a real database of each kind, with the ledger's tables."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine, MetaData, create_engine

from expirebridge.embedded.server import EmbeddedServer
from expirebridge.ledger import Ledger, Tables, tables
from expirebridge.ledger.binding import place_of
from expirebridge.ledger.partition import LedgerEngine, LedgerPartition
from expirebridge.ledger.schema import create
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.databases import Database
from tests.kit.ledgers import LedgerHarness, wait_for_threads


@pytest.fixture
def database_url(shared_database: Database) -> URL:
    """An empty database."""
    return shared_database.new_database()


@pytest.fixture(scope="session")
def made() -> Tables:
    return tables(MetaData())


@pytest.fixture(scope="session")
def shared_engine(shared_database: Database, made: Tables) -> Iterator[Engine]:
    """A database in which the ledger's tables are, for the whole session."""
    engine = create_engine(shared_database.new_database())
    with engine.begin() as connection:
        create(connection, made)
    yield engine
    engine.dispose()


@pytest.fixture
def engine(shared_engine: Engine, made: Tables) -> Engine:
    """The engine of an application; the ledger's tables are there, and empty."""
    wait_for_threads()  # of a listener of the test before, which ended without them
    with shared_engine.begin() as connection:
        connection.execute(made.task.delete())
        connection.execute(made.passes.delete())
        connection.execute(made.series.delete())
    return shared_engine


@pytest.fixture
def with_ledger(url: str, engine: Engine) -> Settings:
    """The settings of a listener that has this ledger."""
    return Settings(url=url, ledger=engine.url.render_as_string(hide_password=False))


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store, with_ledger: Settings) -> LedgerHarness:
    """The two halves of such a listener's relay."""
    return LedgerHarness(engine, made, store, place=place_of(with_ledger, engine.url))


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    return Ledger(engine.url)


@pytest.fixture
def original() -> Iterator[EmbeddedServer]:
    """The Redis of production."""
    with EmbeddedServer() as server:
        yield server


@pytest.fixture
def ledger_engine(with_ledger: Settings) -> Iterator[LedgerEngine]:
    """What a listener has of the ledger."""
    ledger_engine = LedgerEngine(with_ledger)
    yield ledger_engine
    ledger_engine.close()


@pytest.fixture
def ours(harness: LedgerHarness, ledger_engine: LedgerEngine, store: Store) -> LedgerPartition:
    """The ledger of a listener that has relayed the row `a`."""
    ours = ledger_engine.partition(lambda: store)
    harness.insert("a", 3_600_000)
    while ours.relay_once():
        pass
    return ours
