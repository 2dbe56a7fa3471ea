"""The connections of a listener to its ledger's database."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from expirebridge.ledger import engine as engines
from expirebridge.ledger.engine import RelayTransactions, check_after_idling, engine_of
from tests.kit.databases import POSTGRESQL, SQLITE


@pytest.fixture
def transactions(engine: Engine) -> Iterator[RelayTransactions]:
    """Those of an engine that has one connection, which was used just now."""
    if engine.dialect.name == SQLITE:
        pytest.skip("a file has no connections that break")
    own = engine_of(engine.url, pool_size=1, max_overflow=0)
    check_after_idling(own)
    transactions = RelayTransactions(own)
    _session(transactions)
    yield transactions
    own.dispose()


def _session(transactions: RelayTransactions) -> int:
    query = "SELECT pg_backend_pid()"
    with transactions.connect() as connection:
        if connection.dialect.name != POSTGRESQL:
            query = "SELECT connection_id()"
        return int(connection.execute(text(query)).scalar_one())


def _end(engine: Engine, session: int) -> None:
    kill = f"SELECT pg_terminate_backend({session})"
    if engine.dialect.name != POSTGRESQL:
        kill = f"KILL {session}"
    with engine.connect() as connection:
        connection.execute(text(kill))


def test_a_connection_that_broke_while_it_was_idle_is_replaced(
    engine: Engine, transactions: RelayTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_SECONDS", 0.0)
    before = _session(transactions)
    _end(engine, before)
    assert _session(transactions) != before


def test_one_that_breaks_in_use_costs_one_call(
    engine: Engine, transactions: RelayTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "IDLE_SECONDS", 60.0)
    before = _session(transactions)
    _end(engine, before)
    with pytest.raises(DBAPIError):
        _session(transactions)
    assert _session(transactions) != before


def test_what_only_reads_leaves_no_transaction_open(
    engine: Engine, transactions: RelayTransactions
) -> None:
    def state(connection: Connection) -> str:
        driver: Any = connection.connection.driver_connection
        connection.execute(text("SELECT 1"))
        return str(driver.info.transaction_status.name)

    if engine.dialect.name != POSTGRESQL:
        pytest.skip("its drivers would send a statement for that")
    with transactions.connect() as connection:
        assert state(connection) == "IDLE"
    with transactions.begin() as connection:
        assert state(connection) == "INTRANS"
