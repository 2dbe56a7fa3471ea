"""The connections of a listener to its ledger's database."""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from expirebridge.ledger import engine as engines
from expirebridge.ledger.engine import RelayTransactions, check_after_idling, engine_of
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.settings import Settings
from tests.kit.databases import POSTGRESQL, SQLITE
from tests.kit.ledgers import wait_for_threads
from tests.kit.patience import PATIENCE


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


@pytest.mark.parametrize("way", ["begin", "ask", "send_early"])
async def test_connections_are_closed_after_the_last_call_that_uses_one(
    way: str, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "CLOSING", 0.0)
    ledger_engine, counts = LedgerEngine(with_ledger), Counter[str]()
    for name in ("connect", "close"):
        event.listen(ledger_engine.engine, name, lambda *_, name=name: counts.update([name]))
    begun, may_end = threading.Event(), threading.Event()

    def call() -> None:
        with ledger_engine.transactions.connect():
            begun.set()
            may_end.wait(PATIENCE)

    for other in ("begin", "ask", "send_early"):  # each has a thread
        await getattr(ledger_engine, other)(lambda: None)
    under_way = getattr(ledger_engine, way)(call)
    await asyncio.to_thread(begun.wait, PATIENCE)
    ledger_engine.close()
    assert counts["close"] == 0
    may_end.set()
    await under_way
    await asyncio.to_thread(wait_for_threads)
    assert counts == {"connect": 1, "close": 1}
