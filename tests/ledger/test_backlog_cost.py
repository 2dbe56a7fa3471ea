"""What a pass costs the database does not grow with the rows that wait."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from expirebridge.ledger import Tables, calls
from expirebridge.ledger.relay import finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import SyncState
from expirebridge.store.client import Store
from expirebridge.task.partitions import PartitionLayout
from tests.kit.ledgers import LedgerHarness
from tests.ledger.plans import filled, noted, rows_read

WAITING = {"sqlite": 2_000, "postgresql": 10_000, "mariadb": 10_000}
"""A planner takes an index once there are so many rows."""
LAYOUT = PartitionLayout("expirebridge", 4)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass carries few of the rows that wait."""
    monkeypatch.setattr(calls, "MAX_ROWS", 100)


@pytest.fixture(params=[SyncState.RELAY, SyncState.REBUILD])
def full(engine: Engine, made: Tables, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose table has many rows that wait, and as many that do not."""
    slots = range(LAYOUT.count) if request.param is SyncState.REBUILD else [None]
    rows = [
        {"id": f"t{n}", "func": "mail.send", "params": "[1]", "delay_ms": 3_600_000,
         "todo": request.param if n % 2 else SyncState.NOTHING, "slot": slots[n // 2 % len(slots)]}
        for n in range(2 * WAITING[engine.dialect.name])
    ]  # fmt: skip
    with filled(engine, made.task, rows):
        yield engine


@pytest.mark.usefixtures("small_pages")
def test_a_pass_reads_no_more_rows_than_it_carries(
    full: Engine, made: Tables, store: Store
) -> None:
    harness = LedgerHarness(full, made, store)
    first = finish(harness.relay().carry())  # before it, nothing is known of passes
    with noted(full) as queries:
        assert finish(harness.relay().carry()) == first == 100
    assert len(queries) >= 2
    with full.connect() as connection:
        read = {query[0]: rows_read(connection, query) for query in queries}
    assert max(read.values()) < 1000, read


@pytest.mark.usefixtures("small_pages")
def test_a_look_at_all_partitions_reads_few_rows(full: Engine, made: Tables) -> None:
    relay_stores = [
        RelayStore(full, made, name="default", layout=LAYOUT, partition=number)
        for number in range(LAYOUT.count)
    ]
    for each in relay_stores:
        each.begin("nonce", "{}")
    with noted(full) as queries:
        found = relay_stores[0].read_all()
        relay_stores[1].sort(100)
        relay_stores[1].begin_batch(found[1], seen=0)
    assert len(found) == LAYOUT.count
    assert any(each.waiting or each.unsorted for each in found.values())
    # A look, new rows, lost ones, and a page: what passes over locks is no part of a UNION.
    assert len(queries) == 4
    with full.connect() as connection:
        read = {query[0]: rows_read(connection, query) for query in queries}
    assert max(read.values()) < 1000, read
