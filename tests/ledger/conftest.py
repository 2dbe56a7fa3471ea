"""Fixtures: a real database of each kind, with the ledger's tables."""

from collections.abc import Iterator

import pytest
from sqlalchemy import URL, Engine, MetaData, create_engine

from expirebridge.ledger.schema import create
from expirebridge.ledger.tables import Tables, tables
from tests.kit.databases import Database


@pytest.fixture
def database_url(shared_database: Database) -> URL:
    """An empty database."""
    return shared_database.new_database()


@pytest.fixture
def made() -> Tables:
    return tables(MetaData())


@pytest.fixture
def engine(database_url: URL, made: Tables) -> Iterator[Engine]:
    """The engine of an application, in whose database the ledger's tables are."""
    engine = create_engine(database_url)
    with engine.begin() as connection:
        create(connection, made)
    yield engine
    engine.dispose()
