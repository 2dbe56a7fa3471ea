"""Rows that are due later than the horizon stay in SQL until they come near."""

from typing import Any

import pytest
import redis
from sqlalchemy import Engine, Table, delete, insert, update

from expirebridge import Bridge, State
from expirebridge.errors import InvalidSetting
from expirebridge.ledger import Ledger
from expirebridge.ledger.relay import WAITS_FOR_ID, finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.sql_tables import Tables
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.partitions import PartitionLayout
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.steps import server_ms, state_of
from tests.kit.witness import Witness, listening
from tests.ledger.plans import filled, noted, rows_read

HOUR = 3_600_000
HORIZON = 3600.0
MANY = {"sqlite": 2_000, "postgresql": 10_000, "mariadb": 10_000}
"""A planner takes an index once there are so many rows."""
LAYOUT = PartitionLayout("expirebridge", 4)


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store, horizon=HORIZON)


@pytest.fixture
def task(made: Tables) -> Table:
    return made.task


def come_near(harness: LedgerHarness, id: str, ms: int = 0) -> None:
    """Let so much time pass until the row is due, for its row."""
    planned = update(harness.made.task).where(harness.made.task.c.id == id)
    with harness.engine.begin() as connection:
        connection.execute(planned.values(written=harness.made.task.c.written - 3 * HOUR + ms))


def test_what_is_due_later_stays_in_sql_until_it_comes_near(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    harness.insert("near", HOUR // 2)
    harness.insert("far", 3 * HOUR)
    harness.settle_down()
    assert bridge.count().pending == 1
    state = harness.rows.read()
    assert state is not None
    assert not state.waiting
    assert harness.row("far").stamp == 0
    come_near(harness, "far", HOUR // 2)
    harness.settle_down()
    assert state_of(store, "far") is State.PENDING
    assert abs(harness.row("far").due - server_ms(store.client) - HOUR // 2) < 60_000


def test_those_that_are_due_first_come_first(
    harness: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expirebridge.ledger.calls.MAX_ROWS", 1)
    for id, minutes in (("b", 30), ("c", 40), ("a", 20)):
        harness.insert(id, minutes * 60_000)
    relay, order = harness.relay(), list[str]()
    while finish(relay.carry()):
        order += [row.id for row in harness.all_rows() if row.stamp and row.id not in order]
    assert order == ["a", "b", "c"]


def test_what_redis_has_had_is_never_kept_back(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a", HOUR // 2)
    harness.settle_down()
    harness.change("a", due=None, delay_ms=3 * HOUR)
    harness.settle_down()
    assert harness.row("a").due > server_ms(store.client) + 2 * HOUR
    assert harness.row("a").todo == SyncState.NOTHING


@pytest.mark.parametrize("batch", ["stamped", "cut off"])
async def test_a_task_that_redis_has_follows_its_row_beyond_the_horizon(
    batch: str, harness: LedgerHarness, with_ledger: Settings, bridge: Bridge
) -> None:
    harness.insert("a", func="test.run")
    steps = harness.relay().carry()
    while next(steps, "end") not in {"carried", "end"}:
        pass
    if batch == "stamped":
        finish(steps)
    harness.change("a", due=None, delay_ms=3 * HOUR)
    ran: list[str] = []
    witness = Witness()
    settings = Settings(url=with_ledger.url, ledger=with_ledger.ledger, ledger_horizon=HORIZON)
    async with listening(settings, witness, run=lambda *_: ran.append("ran")):
        await until(lambda: harness.row("a").todo == SyncState.NOTHING)
    assert ran == []
    found = bridge.get("a")
    assert found is not None
    assert found.state is State.PENDING
    assert found.due is not None
    assert harness.row("a").due == round(found.due.timestamp() * 1000)


def test_a_cancelled_row_ends_at_once(harness: LedgerHarness) -> None:
    harness.insert("a", 3 * HOUR)
    harness.settle_down()
    harness.cancel("a")
    harness.settle_down()
    assert harness.status("a") is Status.CANCELLED


def test_a_signalled_row_is_due_at_once(
    harness: LedgerHarness, engine: Engine, store: Store
) -> None:
    ledger = Ledger(engine.url)
    with engine.begin() as connection:
        ledger.make_task(connection, "a.b", [], "3h", id="a", on_signal="a.c")
    harness.settle_down()
    assert harness.row("a").stamp == 0
    with engine.begin() as connection:
        ledger.signal(connection, "a", {"n": 1})
    harness.settle_down()
    assert state_of(store, "a") is State.PENDING
    assert harness.row("a").due <= server_ms(store.client)


@pytest.mark.parametrize("wrong", [{"at_ms": 2**60}, {"at_ms": -5}, {"params": "no", "at_ms": 5}])
def test_what_cannot_be_a_task_is_refused_at_once(
    wrong: dict[str, Any], harness: LedgerHarness
) -> None:
    harness.insert("a", **wrong)
    harness.settle_down()
    assert harness.status("a") is Status.FAILED


@pytest.mark.one_database  # the others refuse it themselves
@pytest.mark.parametrize("time", ["tomorrow", b"\xff"])
def test_what_is_no_number_is_refused_at_once(
    time: Any, harness: LedgerHarness, engine: Engine
) -> None:
    harness.insert("a", at_ms=5)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE expirebridge_task SET at_ms = ?", (time,))
    harness.settle_down()
    assert harness.status("a") is Status.FAILED


def test_a_row_that_comes_near_waits_until_its_id_is_free(
    harness: LedgerHarness, bridge: Bridge, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    harness.insert("a", 3 * HOUR)
    bridge.make_task("other.task", [], "1h", id="a")
    come_near(harness, "a")
    for _ in range(2):
        harness.settle_down()
        row = harness.row("a")
        assert (row.todo, row.message) == (SyncState.TAKEN, WAITS_FOR_ID)
        assert row.status == Status.WAITING
        harness.rows.ask_for_ids_again()
    bridge.cancel("a")
    harness.settle_down()
    found = bridge.get("a")
    assert found is not None
    assert found.func == "mail.send"
    assert harness.row("a").message is None
    assert "waits" in caplog.text


def test_a_row_waits_for_its_id_also_if_the_ledger_is_bound_anew(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    harness.insert("a", 3 * HOUR)
    bridge.make_task("other.task", [], "1h", id="a")
    come_near(harness, "a")
    harness.settle_down()
    relay = harness.relay()
    relay.rebind()
    for _ in range(3):
        finish(relay.carry())
    assert harness.row("a").todo == SyncState.TAKEN  # or no task of the ledger would be claimed
    bridge.cancel("a")
    harness.rows.ask_for_ids_again()
    harness.settle_down()
    assert state_of(store, "a") is State.PENDING


def test_without_a_wait_a_taken_id_is_refused(harness: LedgerHarness, bridge: Bridge) -> None:
    bridge.make_task("other.task", [], "1h", id="a")
    harness.insert("a", HOUR // 2)
    harness.settle_down()
    assert harness.status("a") is Status.FAILED


def test_a_rebuild_keeps_back_what_redis_never_had(
    harness: LedgerHarness, client: redis.Redis, bridge: Bridge
) -> None:
    for id, delay in (("near", HOUR // 2), ("far", 3 * HOUR)):
        harness.insert(id, delay)
    harness.settle_down()
    client.flushall()
    harness.settle_down()
    assert bridge.count().pending == 1
    harness.relay().rebind()
    harness.settle_down()
    assert bridge.count().pending == 1
    assert harness.row("far").todo == SyncState.RELAY


def test_of_a_restored_ledger_nothing_is_kept_back(
    harness: LedgerHarness, engine: Engine, task: Table, bridge: Bridge
) -> None:
    harness.insert("a", HOUR // 2)
    harness.settle_down()
    with engine.begin() as connection:  # a backup from before: there the row was far
        connection.execute(delete(harness.made.passes))
        connection.execute(delete(task))
        connection.execute(
            insert(task).values(
                id="a", func="mail.send", params="[1]", delay_ms=3 * HOUR, revision=1
            )
        )
    harness.rows.begin("another", "{}")
    harness.relay().rebind()
    harness.settle_down()
    assert harness.row("a").stamp > 0


def test_rows_that_are_kept_back_get_no_partition(engine: Engine, made: Tables) -> None:
    rows = RelayStore(engine, made, name="default", layout=LAYOUT, partition=0, horizon=HORIZON)
    rows.begin("nonce", "{}")
    with engine.begin() as connection:
        for id, delay in (("near", HOUR // 2), ("far", 3 * HOUR)):
            connection.execute(
                insert(made.task).values(id=id, func="a.b", params="[]", delay_ms=delay)
            )
    state = rows.read_all()[0]
    assert state.unsorted
    rows.sort()
    assert not rows.read_all()[0].unsorted
    with engine.connect() as connection:
        slots = connection.execute(made.task.select().order_by(made.task.c.id)).all()
    assert [row.slot is None for row in slots] == [True, False]


def test_a_look_reads_nothing_of_what_is_kept_back(
    engine: Engine, made: Tables, store: Store
) -> None:
    harness = LedgerHarness(engine, made, store, horizon=HORIZON)
    rows = [
        {"id": f"t{n}", "func": "mail.send", "params": "[1]", "delay_ms": 3 * HOUR}
        for n in range(MANY[engine.dialect.name])
    ]
    with filled(engine, made.task, rows):
        finish(harness.relay().carry())  # before it, nothing is known of passes
        harness.insert("near", HOUR // 2)
        with noted(engine) as queries:
            assert finish(harness.relay().carry()) == 1
            assert finish(harness.relay().carry()) == 0
        with engine.connect() as connection:
            read = {query[0]: rows_read(connection, query) for query in queries}
    assert max(read.values()) < 100, read


@pytest.mark.parametrize("horizon", [599, "9m", "soon", True, -1])
def test_a_horizon_that_cannot_be_is_refused(horizon: Any) -> None:
    with pytest.raises(InvalidSetting, match="ledger_horizon"):
        Settings.read(ledger_horizon=horizon)


def test_a_horizon_may_have_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_LEDGER_HORIZON", "1d")
    assert Settings.read().ledger_horizon == 86400
