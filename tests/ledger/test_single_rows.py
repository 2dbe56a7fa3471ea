"""One row that cannot be written, or that is locked: the others are, and it is said which it is."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, create_engine, text, update
from sqlalchemy.exc import DBAPIError

from expirebridge import Bridge
from expirebridge.checks.finding import Level
from expirebridge.errors import LedgerError, LedgerUnsuitable
from expirebridge.ledger import Ledger, Tables, held_rows, lost_rows, series_ticks
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger import engine as engines
from expirebridge.ledger import relay as relays
from expirebridge.ledger.binding import place_of
from expirebridge.ledger.checks import check_dirty
from expirebridge.ledger.engine import RelayTransactions, connected, engine_of
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.relay import finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import RowVersion, Status, SyncState
from expirebridge.ledger.schema import create
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.partitions import PartitionLayout
from tests.kit.databases import Database, DatabaseServer
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.patience import PATIENCE
from tests.kit.witness import Witness, listening, until_logged

HOUR = 3_600_000


def fail(error: str) -> None:
    """A handler."""
    raise ValueError(error)


def note(number: int) -> None:
    """A handler."""


async def others_run(bridge: Bridge, witness: Witness) -> None:
    """Tasks without a row are made, and run."""
    before = len(witness.ended())
    for number in range(3):
        bridge.make_task("test.note", [number], 0)
    await witness.until_ended(before + 3)


ERRORS = {"nul": "bad \x00 text", "emoji": "it is 😀", "plain": "bad"}


async def test_a_text_that_sql_refuses_is_escaped(
    harness: LedgerHarness, with_ledger: Settings
) -> None:
    witness, ids = Witness(), [f"later{number}" for number in range(20)]
    harness.insert("nul", func="test.fail", params=json.dumps([ERRORS["nul"]]))
    async with listening(with_ledger, witness, fail=fail, note=note):
        await witness.until_ended(1)
        for id in ids:
            harness.insert(id, func="test.note", params="[1]")
        await until(lambda: all(harness.status(id) is Status.SUCCEEDED for id in ids))
        await until(lambda: harness.row("nul").message)
    assert harness.row("nul").message.endswith(r"ValueError: bad \x00 text")


@pytest.fixture
def latin(
    shared_database: Database, url: str, made: Tables, store: Store
) -> Iterator[LedgerHarness]:
    """A ledger in a database that lacks most characters."""
    if not isinstance(shared_database, DatabaseServer) or shared_database.name != "postgresql":
        pytest.skip("only databases of PostgreSQL have an encoding")
    own = shared_database.new_database("LATIN1")
    settings = Settings(url=url, ledger=own.render_as_string(hide_password=False))
    engine = engine_of(own)
    with engine.begin() as connection:
        create(connection, made)
    yield LedgerHarness(engine, made, store, place=place_of(settings, own))
    engine.dispose()


async def test_a_database_that_lacks_a_character(
    latin: LedgerHarness, with_ledger: Settings, bridge: Bridge
) -> None:
    witness = Witness()
    settings = replace(with_ledger, ledger=latin.engine.url.render_as_string(hide_password=False))
    for name, error in ERRORS.items():
        latin.insert(name, func="test.fail", params=json.dumps([error]))
    async with listening(settings, witness, fail=fail, note=note):
        await others_run(bridge, witness)
        await until(lambda: all(latin.row(name).message for name in ERRORS))
    assert latin.row("emoji").message.endswith(r"ValueError: it is \U0001f600")
    assert latin.row("plain").message.endswith("ValueError: bad")


def test_a_database_that_takes_any_bytes_for_text_is_refused(shared_database: Database) -> None:
    if not isinstance(shared_database, DatabaseServer) or shared_database.name != "postgresql":
        pytest.skip("only databases of PostgreSQL have an encoding")
    own = shared_database.new_database("SQL_ASCII").render_as_string(hide_password=False)
    with (
        pytest.raises(LedgerUnsuitable, match="ENCODING 'UTF8'"),
        connected(own) as connection,
    ):
        create(connection, Ledger(own).tables)


TRIGGERS = {
    "sqlite": [
        "CREATE TRIGGER refusing BEFORE {verb} ON expirebridge_task WHEN {row}.id LIKE 'bad%' "
        "BEGIN SELECT RAISE(ABORT, 'not this row'); END"
    ],
    "postgresql": [
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'not this row'; END $$",
        "CREATE TRIGGER refusing BEFORE {verb} ON expirebridge_task FOR EACH ROW "
        "WHEN ({row}.id LIKE 'bad%') EXECUTE FUNCTION refuse()",
    ],
    "mariadb": [
        "CREATE TRIGGER refusing BEFORE {verb} ON expirebridge_task FOR EACH ROW "
        "IF {row}.id LIKE 'bad%' THEN SIGNAL SQLSTATE '45000' "
        "SET MESSAGE_TEXT = 'not this row'; END IF"
    ],
}


@contextmanager
def refusing(engine: Engine, verb: str = "UPDATE") -> Iterator[None]:
    """A database that refuses each change, or insert, of rows of which the id begins with `bad`."""
    row = "NEW" if verb == "INSERT" else "OLD"
    with engine.begin() as connection:
        for statement in TRIGGERS[engine.dialect.name]:
            trigger = statement.replace("{verb}", verb).replace("{row}", row)
            connection.execute(text(trigger))
    try:
        yield
    finally:
        where = " ON expirebridge_task" if engine.dialect.name == "postgresql" else ""
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP TRIGGER refusing{where}")


def test_a_row_that_the_database_refuses_to_write_is_left_out_and_reported(
    harness: LedgerHarness, bridge: Bridge, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("bad", "good"):
        harness.insert(id, HOUR)
    harness.settle_down()
    relay, before = harness.relay(), harness.row("bad").generation
    with refusing(harness.engine):
        for id in ("bad", "good"):
            bridge.cancel(id)
        assert finish(relay.bring_back()) == 2
        assert harness.status("good") is Status.CANCELLED
        assert harness.status("bad") is Status.WAITING
        assert finish(relay.bring_back()) == 0  # it is put off
        [said] = [one.getMessage() for one in caplog.records if "refuses" in one.getMessage()]
        assert "'bad'" in said
        assert "not this row" in said
        [found] = store.run(check_dirty(60))
        assert found.level is Level.WARNING
        assert "1 row of the ledger could not be written" in found.message
        # New rows are carried, also beside one that cannot be stamped.
        harness.insert("new", HOUR)
    assert finish(relay.carry()) == 1
    bridge.run_now("bad")  # marked again, it is read at once
    harness.settle_down()
    assert harness.row("bad").generation > before


def test_a_row_that_cannot_be_stamped_holds_up_no_other(
    harness: LedgerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("bad", "good"):
        harness.insert(id, HOUR)
    with refusing(harness.engine):
        assert finish(harness.relay().carry()) == 2
    assert harness.row("good").todo == SyncState.NOTHING
    assert harness.row("bad").todo == SyncState.RELAY
    assert "the database refuses to write row 'bad'" in caplog.text


def test_more_rows_than_a_page_that_cannot_be_stamped_hold_up_no_other(
    harness: LedgerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are due first, so they stand at the front of each page."""
    monkeypatch.setattr(ledger_calls, "MAX_ROWS", 4)
    bad, good = [f"bad{number}" for number in range(10)], [f"good{number}" for number in range(10)]
    for id in bad:
        harness.insert(id)
    for id in good:
        harness.insert(id, HOUR)
    with refusing(harness.engine):
        harness.settle_down()
    assert {row.id for row in harness.all_rows() if row.todo == SyncState.NOTHING} == set(good)
    reported = [one for one in caplog.messages if "refuses to write row 'bad" in one]
    assert len(reported) == len(bad)


def test_a_row_that_cannot_be_relayed_again_holds_up_no_other(
    harness: LedgerHarness, bridge: Bridge
) -> None:
    """Redis has marked both as changed, and has lost the record of one of them."""
    for id in ("bad", "good"):
        harness.insert(id, HOUR)
    harness.settle_down()
    with refusing(harness.engine):
        for id in ("bad", "good"):
            bridge.cancel(id)
        harness.store.client.delete("expirebridge:task:bad")
        harness.settle_down()
        assert harness.status("good") is Status.CANCELLED
    assert harness.row("bad").todo == SyncState.NOTHING


def test_a_row_that_cannot_be_recalled_holds_up_no_other(harness: LedgerHarness) -> None:
    for id in ("bad", "good"):
        harness.insert(id, HOUR)
    harness.settle_down()
    with refusing(harness.engine):
        assert harness.rows.recall(["bad", "good"]) == []
    assert harness.row("good").todo == SyncState.REBUILD


def test_a_row_whose_deadline_cannot_decide_holds_up_no_other(harness: LedgerHarness) -> None:
    for id in ("bad", "good"):
        harness.insert(id, options='{"on_signal": "mail.send?[2]"}')
    versions = {row.id: RowVersion(row.generation, row.revision) for row in harness.all_rows()}
    with refusing(harness.engine):
        rows = harness.rows.decide(versions)
    assert (rows["bad"].is_open, rows["good"].is_open) == (True, False)


def test_a_row_that_cannot_be_deleted_holds_up_no_other(
    harness: LedgerHarness, bridge: Bridge
) -> None:
    for id in ("bad", "good"):
        harness.insert(id, HOUR)
    harness.settle_down()
    for id in ("bad", "good"):
        bridge.cancel(id)
    harness.settle_down()
    harness.age("bad", "good")
    with refusing(harness.engine, "DELETE"):
        assert harness.prune_old() == 1
    assert [row.id for row in harness.all_rows()] == ["bad"]


def test_a_row_that_cannot_be_sorted_holds_up_no_other(engine: Engine, made: Tables) -> None:
    layout = PartitionLayout("", 2)
    relay_stores = [
        RelayStore(engine, made, name="default", layout=layout, partition=each) for each in (0, 1)
    ]
    relay_stores[0].begin("nonce", "{}")
    ids = [f"{kind}{number}" for kind in ("bad", "good") for number in range(10)]
    with engine.begin() as connection:
        rows = [{"id": id, "func": "a.b", "params": "[]", "delay_ms": HOUR} for id in ids]
        connection.execute(made.task.insert(), rows)
    with refusing(engine):
        for _ in range(5):
            relay_stores[0].sort(4)
    with engine.connect() as connection:
        found = dict(
            connection.execute(
                made.task.select().with_only_columns(made.task.c.id, made.task.c.slot)
            ).all()
        )
    assert {id for id, slot in found.items() if slot is not None} == {
        id for id in ids if id.startswith("good")
    }


def test_many_ticks_that_the_database_refuses_hold_up_no_other(
    harness: LedgerHarness, ledger: Ledger, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(series_ticks, "MOST", 3)
    bad = [f"bad{number}" for number in range(7)]
    with harness.engine.begin() as connection:
        for id in [*bad, "other"]:
            ledger.schedule(connection, id, "a.b", [], every="1s")
    make_first_due(harness, besides="other")
    with refusing(harness.engine, "INSERT"):
        assert series_ticks.make_ticks(harness.engine, harness.made, "default") == 1
    refused = [one for one in caplog.messages if "refuses the next tick of series bad" in one]
    assert len(refused) == len(bad)


def make_first_due(harness: LedgerHarness, *, besides: str) -> None:
    """All series but one come before that."""
    series = harness.made.series
    with harness.engine.begin() as connection:
        connection.execute(update(series).where(series.c.id != besides).values(due=1))


@pytest.mark.parametrize(
    "error", [UnicodeEncodeError("latin-1", "x", 0, 1, "no"), RuntimeError("no"), TypeError()],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
async def test_no_error_of_a_driver_ends_a_listener(
    error: Exception, harness: LedgerHarness, with_ledger: Settings, bridge: Bridge,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def raise_it(*_: object, **__: object) -> None:
        raise error

    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    with monkeypatch.context() as broken:
        for name in ("read", "fence", "ask"):
            broken.setattr(RelayStore, name, raise_it)
        async with listening(with_ledger, witness, note=note):
            await until_logged(lambda: "the relay of the ledger stands still" in caplog.text)
            await others_run(bridge, witness)
            broken.undo()
            await witness.until_ended(4)
    assert type(error).__name__ in caplog.text


# Locks


@pytest.fixture
def locking(engine: Engine) -> Iterator[Connection]:
    """An open transaction of the application."""
    if engine.dialect.name == "sqlite":
        pytest.skip("SQLite locks the whole file")
    # In MariaDB a stricter transaction also locks what lies between rows, also for inserts.
    own = create_engine(engine.url, isolation_level="READ COMMITTED")
    with own.connect() as connection:
        yield connection
        connection.rollback()
    own.dispose()


def lock(connection: Connection, *ids: str) -> None:
    for id in ids:
        query = "SELECT id FROM expirebridge_task WHERE ledger = 'default' AND id = :id FOR UPDATE"
        connection.execute(text(query), {"id": id})


async def test_a_locked_row_holds_up_no_other(
    harness: LedgerHarness, with_ledger: Settings, locking: Connection, ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """As in a request that calls `ledger.cancel`, and takes long."""
    monkeypatch.setattr(relays, "LONG", 0.5)
    witness = Witness()
    harness.insert("slow", HOUR, func="test.note", params="[1]")
    harness.settle_down()
    ledger.cancel(locking, "slow")
    harness.insert("ran", func="test.note", params="[1]")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(1)
        lock(locking, "ran")
        for number in range(20):
            harness.insert(f"later{number}", func="test.note", params="[1]")
        await witness.until_ended(21)
        await until(
            lambda: all(
                harness.status(f"later{number}") is Status.SUCCEEDED for number in range(20)
            )
        )
        locking.commit()
        await until(lambda: harness.status("ran") is Status.SUCCEEDED)
        await until(lambda: harness.status("slow") is Status.CANCELLED)
    assert "stands still" not in caplog.text


async def test_a_row_that_is_locked_for_long_is_reported_as_what_it_is(
    harness: LedgerHarness, locking: Connection, store: Store, bridge: Bridge,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(relays, "LONG", 0.05)
    monkeypatch.setattr(relays, "LONG_PAUSE", 60.0)
    monkeypatch.setattr(relays, "LOCKED_PAUSE", 0.01)
    harness.insert("slow", HOUR)
    harness.settle_down()
    lock(locking, "slow")
    bridge.cancel("slow")
    relay = harness.relay()
    async with asyncio.timeout(PATIENCE):
        while "another transaction has locked row 'slow'" not in caplog.text:
            await asyncio.to_thread(finish, relay.bring_back())
            await asyncio.sleep(0.05)
    [found] = store.run(check_dirty(60))
    assert (found.level, found.check) == (Level.WARNING, "write-back")
    locking.rollback()
    assert harness.store.run(ledger_calls.read_ledger()).stuck == 1
    harness.store.client.zadd("expirebridge:dirty", {"slow": 1})
    finish(relay.bring_back())
    assert harness.status("slow") is Status.CANCELLED


def test_many_locked_rows_hold_up_no_new_one(harness: LedgerHarness, locking: Connection) -> None:
    """More than a batch has."""
    ids = [f"slow{number:03}" for number in range(250)]
    with harness.engine.begin() as connection:
        connection.execute(
            harness.made.task.insert(),
            [{"id": id, "func": "a.b", "params": "[]", "delay_ms": HOUR} for id in ids],
        )
    lock(locking, *ids)
    relay = harness.relay()
    harness.insert("new", HOUR)
    for _ in range(4):
        finish(relay.carry())
    assert harness.row("new").todo == SyncState.NOTHING
    locking.rollback()
    harness.settle_down()
    assert all(row.todo == SyncState.NOTHING for row in harness.all_rows())


def test_a_lost_row_that_is_locked_is_marked_when_it_is_free(
    harness: LedgerHarness, locking: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By any relay, and after any number of batches: Redis knows that a mark is missing."""
    monkeypatch.setattr(lost_rows, "MARK_PAUSE", 0)
    monkeypatch.setattr(lost_rows, "MARK_REST", 0)
    for id in ("slow", "other"):
        harness.insert(id, HOUR)
    harness.settle_down()
    harness.store.client.flushdb()
    lock(locking, "slow")
    for id in ("new", "newer"):
        harness.insert(id, HOUR)
        harness.settle_down()
    there = harness.store.client.zrange("expirebridge:pending", 0, -1)
    assert sorted(there) == [b"new", b"newer", b"other"]
    locking.rollback()
    harness.settle_down()
    assert harness.store.client.zscore("expirebridge:pending", "slow") is not None
    assert harness.store.run(ledger_calls.read_ledger()).unmarked is None


def test_what_the_database_refuses_to_mark_as_lost_holds_up_no_other(
    harness: LedgerHarness,
) -> None:
    for id in ("bad", "good"):
        harness.insert(id, HOUR)
    harness.settle_down()
    harness.store.client.flushdb()
    with refusing(harness.engine):
        harness.settle_down()
        assert harness.store.client.zrange("expirebridge:pending", 0, -1) == [b"good"]
    unmarked = harness.store.run(ledger_calls.read_ledger()).unmarked
    assert unmarked is not None
    assert unmarked.has(harness.row("bad").stamp)
    assert harness.rows.lost_rows.is_held_up()


def test_a_locked_row_is_named_with_who_has_locked_it(
    harness: LedgerHarness, locking: Connection, with_ledger: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """By `ledger status`, and by doctor; a lock of a moment is not."""
    for id in ("free", "slow"):
        harness.insert(id, HOUR)
    inspector = LedgerInspector(with_ledger)
    lock(locking, "slow")
    assert inspector.status().held == []
    monkeypatch.setattr(held_rows, "LONG", 0.0)
    [held] = inspector.status().held
    assert held.row == "slow"
    assert held.seconds is not None
    process = (
        "pg_backend_pid()" if harness.engine.dialect.name == "postgresql" else "connection_id()"
    )
    assert f"process {locking.scalar(text(f'SELECT {process}'))} (root" in held.by
    found = check_ledger(with_ledger, dict)
    [said] = [
        one.message for one in found if "locked by other transactions: slow by" in one.message
    ]
    assert "open for" in said
    locking.rollback()
    assert inspector.status().held == []


def test_a_row_that_could_not_be_written_back_is_named(
    harness: LedgerHarness, locking: Connection, bridge: Bridge, with_ledger: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It does not wait for the relay: Redis knows it."""
    monkeypatch.setattr(held_rows, "LONG", 0.0)
    monkeypatch.setattr(relays, "LOCKED_PAUSE", 60.0)
    harness.insert("slow", HOUR)
    harness.settle_down()
    lock(locking, "slow")
    bridge.cancel("slow")
    finish(harness.relay().bring_back())
    known = harness.store.run(ledger_calls.read_ledger())
    assert known.stuck_ids == ("slow",)
    [held] = LedgerInspector(with_ledger).figures({0: known}).held
    assert held.row == "slow"


def test_locked_batch_numbers_are_named(
    harness: LedgerHarness, locking: Connection, with_ledger: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(held_rows, "LONG", 0.0)
    harness.insert("a", HOUR)
    harness.settle_down()
    locking.execute(text("SELECT number FROM expirebridge_pass FOR UPDATE"))
    [held] = LedgerInspector(with_ledger).status().held
    assert held.row == "batch numbers of partition 0"


def test_locked_batch_numbers_are_not_waited_for(
    harness: LedgerHarness, locking: Connection, with_ledger: Settings, store: Store
) -> None:
    """The relay says what it waits for; no thread of the listener is held, and rows are asked."""
    harness.insert("a", HOUR)
    harness.settle_down()
    locking.execute(text("SELECT number FROM expirebridge_pass FOR UPDATE"))
    harness.insert("b", HOUR)
    engine = LedgerEngine(with_ledger)
    partition = engine.partition(lambda: store)
    for method in (partition.relay_once, partial(partition.fence, 0)):
        with pytest.raises(LedgerError, match="another transaction holds a lock"):
            method()
    assert list(partition.ask(["a", "none"])) == ["a"]
    locking.rollback()
    assert partition.relay_once() == 1
    engine.close()


def test_a_transaction_of_ours_that_stalls_does_not_keep_the_batch_numbers(
    harness: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a process that was stopped, after it took a number."""
    if harness.engine.dialect.name == "sqlite":
        pytest.skip("SQLite ends no transaction by itself")
    monkeypatch.setattr(engines, "STALLED_SECONDS", 1)
    seconds = "idle_transaction_timeout = {}"
    command = str(engines._MYSQL["init_command"])
    soon = command.replace(seconds.format(10), seconds.format(1))
    assert soon != command
    monkeypatch.setitem(engines._MYSQL, "init_command", soon)
    harness.insert("a", HOUR)
    harness.settle_down()
    own = engine_of(harness.engine.url)
    with suppress(DBAPIError), RelayTransactions(own).begin() as stalled:
        stalled.execute(update(harness.made.passes).values(stamp=harness.made.passes.c.stamp))
        harness.insert("b", HOUR)
        harness.settle_down()  # waits until the database has ended that
        stalled.execute(text("SELECT 1"))
        pytest.fail("it was not ended")
    own.dispose()
    assert harness.row("b").todo == SyncState.NOTHING


def test_a_table_that_is_locked_is_said_to_be(
    harness: LedgerHarness, locking: Connection, with_ledger: Settings, store: Store
) -> None:
    """As by a migration; all goes on after it."""
    harness.insert("a", HOUR)
    harness.settle_down()
    engine = LedgerEngine(with_ledger)
    partition = engine.partition(lambda: store)
    is_postgresql = harness.engine.dialect.name == "postgresql"
    locks = (
        "LOCK TABLE expirebridge_pass IN EXCLUSIVE MODE"
        if is_postgresql
        else ("LOCK TABLES expirebridge_pass WRITE")
    )
    locking.execute(text(locks))
    with pytest.raises(LedgerError, match="another transaction holds a lock"):
        partition.fence(0)
    locking.execute(text("ROLLBACK" if is_postgresql else "UNLOCK TABLES"))
    harness.insert("b", HOUR)
    assert partition.relay_once() == 1
    engine.close()


def test_a_series_that_is_locked_holds_up_no_other(
    harness: LedgerHarness, locking: Connection, ledger: Ledger, with_ledger: Settings, store: Store
) -> None:
    with harness.engine.begin() as connection:
        for id in ("slow", "other"):
            ledger.schedule(connection, id, "a.b", [], every="1s")
    ledger.pause_series(locking, "slow")
    engine = LedgerEngine(with_ledger)
    partition = engine.partition(lambda: store)
    before = {row.id for row in harness.all_rows()}
    while not {row.id for row in harness.all_rows()} - before:
        partition.relay_once()
    assert {row.id.partition("@")[0] for row in harness.all_rows() if row.id not in before} == {
        "other"
    }
    engine.close()


def test_many_locked_series_hold_up_no_other(
    harness: LedgerHarness, locking: Connection, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one transaction follows, and all of them due before the other."""
    monkeypatch.setattr(series_ticks, "MOST", 3)
    slow = [f"slow{number}" for number in range(7)]
    with harness.engine.begin() as connection:
        for id in [*slow, "other"]:
            ledger.schedule(connection, id, "a.b", [], every="1s")
    make_first_due(harness, besides="other")
    for id in slow:
        ledger.pause_series(locking, id)
    assert series_ticks.make_ticks(harness.engine, harness.made, "default") == 1


def test_a_row_that_is_locked_keeps_no_old_one(
    harness: LedgerHarness, locking: Connection, bridge: Bridge
) -> None:
    for id in ("slow", "old"):
        harness.insert(id)
    harness.settle_down()
    for id in ("slow", "old"):
        bridge.cancel(id)
    harness.settle_down()
    harness.age("slow", "old")
    lock(locking, "slow")
    assert harness.prune_old() == 1
    locking.rollback()
    assert harness.prune_old() == 1
