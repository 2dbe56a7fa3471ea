"""After a notification the relay begins without a look: what changed meanwhile is noticed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis
from sqlalchemy import Connection, Engine, event

from expirebridge import State
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger.partition import LedgerEngine, LedgerPartition
from expirebridge.ledger.relay import finish
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.sql_tables import Tables
from expirebridge.store.client import Store
from expirebridge.task.calls import producing
from tests.kit.ledgers import LedgerHarness, restore, snapshot
from tests.kit.steps import state_of
from tests.ledger.plans import noted

HOUR = 3_600_000


def test_rows_are_read_once(
    harness: LedgerHarness, ledger_engine: LedgerEngine, ours: LedgerPartition, store: Store
) -> None:
    harness.insert("b", HOUR)
    with noted(ledger_engine.engine) as queries:
        assert ours.relay_once(in_hurry=True) == 1
    locking = [query for query, _ in queries if "SKIP LOCKED" in query]
    assert len(queries) - len(locking) == 1
    assert len(locking) == (ledger_engine.engine.dialect.name != "sqlite")  # by ids, to stamp them
    assert state_of(store, "b") is State.PENDING
    assert harness.row("b").todo == SyncState.NOTHING


def test_without_rows_no_number_is_taken(harness: LedgerHarness, ours: LedgerPartition) -> None:
    before = harness.numbers()
    assert ours.relay_once(in_hurry=True) == 0
    assert harness.numbers() == before


def test_a_batch_of_another_listener_is_noticed(
    harness: LedgerHarness, ours: LedgerPartition, store: Store
) -> None:
    harness.insert("b", HOUR)
    assert finish(harness.relay().carry()) == 1
    harness.insert("c", HOUR)
    assert ours.relay_once(in_hurry=True) == 1
    assert state_of(store, "c") is State.PENDING
    number, stamp, seen = harness.numbers()
    assert number == stamp == seen == harness.row("c").stamp


def test_what_the_server_lost_is_relayed_again(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    before = snapshot(client)
    harness.insert("b", HOUR)
    assert ours.relay_once(in_hurry=True) == 1
    restore(client, before)
    assert state_of(store, "b") is None
    harness.insert("c", HOUR)
    while ours.relay_once(in_hurry=True):
        pass
    assert state_of(store, "b") is state_of(store, "c") is State.PENDING


def test_a_server_that_was_emptied_is_noticed(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    client.flushdb()
    harness.insert("b", HOUR)
    while ours.relay_once(in_hurry=True):
        pass
    assert state_of(store, "a") is state_of(store, "b") is State.PENDING


def test_a_database_that_was_restored_to_earlier_stops_the_relay(
    harness: LedgerHarness, ours: LedgerPartition
) -> None:
    passes = harness.made.passes
    with harness.engine.connect() as connection:
        saved = connection.execute(passes.select()).one()._mapping
    harness.insert("b", HOUR)
    assert ours.relay_once(in_hurry=True) == 1
    with harness.engine.begin() as connection:
        connection.execute(passes.update().values(saved))
    harness.insert("c", HOUR)
    with pytest.raises(LedgerUnsuitable, match="restored"):
        ours.relay_once(in_hurry=True)


def test_what_ended_is_written_back_without_a_look(
    harness: LedgerHarness, ledger_engine: LedgerEngine, ours: LedgerPartition, store: Store
) -> None:
    store.run(producing.cancel(["a"], keep=HOUR / 1000))
    harness.insert("b", HOUR)
    with noted(ledger_engine.engine) as queries:
        assert ours.write_back_once() == 1
    assert harness.status("a") is Status.CANCELLED
    assert harness.row("b").todo == SyncState.NOTHING
    # The row that is written, the page, and by ids those that are stamped.
    assert len(queries) == 2 + (ledger_engine.engine.dialect.name != "sqlite")
    before = harness.numbers()
    assert ours.write_back_once() == 0
    assert harness.numbers() == before


@pytest.mark.parametrize("lost", [False, True])
def test_a_write_back_notices_what_has_changed(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis, lost: bool
) -> None:
    if lost:
        client.flushdb()
    else:
        store.run(producing.cancel(["a"], keep=HOUR / 1000))
        harness.insert("b", HOUR)
        assert finish(harness.relay().carry()) == 1  # of another listener
    while ours.write_back_once():
        pass
    assert harness.status("a") is (Status.WAITING if lost else Status.CANCELLED)
    assert state_of(store, "a") is (State.PENDING if lost else State.CANCELLED)


def test_many_rows_are_written_by_one_statement(
    harness: LedgerHarness, ledger_engine: LedgerEngine, ours: LedgerPartition, store: Store
) -> None:
    ids = [f"b{number}" for number in range(60)]  # of several scripts
    for id in ids:
        harness.insert(id, HOUR)
    with writing(ledger_engine.engine) as writes:
        assert ours.relay_once(in_hurry=True) == len(ids)
    one_by_one = ledger_engine.engine.dialect.name == "sqlite"  # where there are no round trips
    assert writes == [one_by_one]
    store.run(producing.cancel(ids, keep=HOUR / 1000))
    with writing(ledger_engine.engine) as writes:
        assert ours.relay_once() == len(ids)
    assert writes == [one_by_one]
    assert {harness.status(id) for id in ids} == {Status.CANCELLED}


def test_rows_that_others_have_locked_do_not_hold_up_the_rows_that_are_written(
    harness: LedgerHarness, ours: LedgerPartition, engine: Engine, made: Tables
) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite locks its whole database")
    harness.insert("b", HOUR)
    # A database that believes the table to be small may read, and lock, all of it.
    with engine.begin() as connection:
        key = (made.task.c.ledger == "default", made.task.c.id == "a")
        connection.execute(made.task.select().where(*key).with_for_update())
        assert ours.relay_once(in_hurry=True) == 1
    assert harness.row("b").todo == SyncState.NOTHING


@contextmanager
def writing(engine: Engine) -> Iterator[list[bool]]:
    """The statements that write rows of tasks meanwhile; whether each is repeated for each row."""
    writes: list[bool] = []

    def note(
        _connection: Connection, _cursor: object, statement: str, _parameters: object,
        _context: object, executemany: bool,
    ) -> None:  # fmt: skip
        if "UPDATE" in statement and "stamp" in statement and "expirebridge_task" in statement:
            writes.append(executemany)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield writes
    finally:
        event.remove(engine, "before_cursor_execute", note)
