"""Fixtures: a real database of each kind, with the ledger's tables."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine, MetaData, create_engine

from expirebridge.ledger import Ledger, Tables, tables
from expirebridge.ledger.schema import create
from tests.kit.databases import Database


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
    with shared_engine.begin() as connection:
        connection.execute(made.task.delete())
        connection.execute(made.passes.delete())
        connection.execute(made.series.delete())
    return shared_engine


@pytest.fixture
def ledger(engine: Engine) -> Ledger:
    return Ledger(engine.url)
