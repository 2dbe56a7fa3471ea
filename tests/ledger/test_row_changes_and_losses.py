"""What is asked of tasks of a ledger, where Redis or the SQL database has lost something, and where
Redis alone is asked for something of what follows a run."""

from typing import Any

import pytest
import redis
from sqlalchemy import Engine, delete, insert, select, update

from expirebridge import Bridge, Change
from expirebridge.ledger import Tables
from expirebridge.ledger.rows import SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.reconciling import EventKind, KeyEvent
from tests.kit.copies import stored
from tests.kit.ledgers import LedgerHarness, restore, snapshot
from tests.kit.row_states import HOUR, Stage
from tests.kit.steps import age, beating, claim, server_ms, settle

# The database is only asked as everywhere.
pytestmark = pytest.mark.one_database

KEY = b"a:?mail.send?[1]"


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)


@pytest.fixture
def stage(harness: LedgerHarness, bridge: Bridge, client: redis.Redis) -> Stage:
    return Stage(harness, bridge, client)


def replace(stage: Stage, args: list[int], delay: str = "1h") -> None:
    with stage.harness.engine.begin() as session:
        stage.ledger.make_task(session, "mail.send", args, delay, id="a", if_exists="replace")


def run_and_replace(stage: Stage, args: list[int]) -> None:
    """A task runs, and another one is to follow it in an hour; all is carried."""
    stage.bring("runs", "a")
    replace(stage, args)
    stage.harness.settle_down()


# What follows a run, and Redis alone


@pytest.mark.parametrize("args", [[1], [2]])
def test_what_follows_a_run_is_moved_in_redis_and_its_row_knows(
    stage: Stage, client: redis.Redis, args: list[int]
) -> None:
    run_and_replace(stage, args)
    assert stage.bridge.reschedule("a", "5h") is Change.REARMED
    stage.harness.settle_down()
    stage.end("a", "succeeded")
    stage.harness.settle_down()
    assert stage.look("a") == f"pending [{args[0]}] 5"
    client.flushall()
    stage.harness.settle_down()
    assert stage.look("a") == f"pending [{args[0]}] 5"


@pytest.mark.parametrize("again", ["reschedule", "set"])
def test_what_was_cancelled_before_it_followed_is_begun_in_redis(
    stage: Stage, client: redis.Redis, again: str
) -> None:
    run_and_replace(stage, [1])
    stage.ask("a", "cancel")
    stage.harness.settle_down()
    if again == "reschedule":
        stage.bridge.reschedule("a", "2h")
    else:
        client.set(KEY, 0, px=2 * HOUR)
    stage.end("a", "succeeded")
    stage.harness.settle_down()
    assert stage.look("a") == "pending [1] 2"
    client.flushall()
    stage.harness.settle_down()
    assert stage.look("a") == "pending [1] 2"


def test_a_timer_that_was_set_and_heard_of_counts_for_what_follows(
    stage: Stage, client: redis.Redis
) -> None:
    """It has ended when the run does."""
    run_and_replace(stage, [1])
    client.set(KEY, 0, px=HOUR)
    hint = KeyEvent(KEY, "a", KEY.partition(b":?")[2], EventKind.LIVE)
    stage.store.run(reconciling.adopt([hint], Settings()))
    client.hset("expirebridge:task:a", "rearm", server_ms(client) - 1000)
    client.delete(KEY)
    stage.end("a", "succeeded")
    stage.harness.settle_down()
    assert stage.look("a") == "pending [1] 0"


def test_what_was_erased_while_it_ran_cannot_be_begun_again(stage: Stage) -> None:
    stage.bring("runs, and has completed", "a")
    stage.ask("a", "erase")
    stage.harness.settle_down()
    assert stage.bridge.reschedule("a", "1h") is Change.FINISHED
    stage.end("a", "succeeded")
    assert stage.bridge.run_now("a") is Change.FINISHED
    stage.harness.settle_down()
    assert stage.look("a") == 'succeeded {"erased":true}'


# A row, and a task without one


def test_a_row_for_a_task_without_one_that_is_alike_moves_it(stage: Stage) -> None:
    stage.bridge.make_task("mail.send", [1], "1h", id="a")
    stage.harness.insert("a", 3 * HOUR)
    stage.harness.settle_down()
    assert stage.look("a") == "pending [1] 3"


def test_a_row_for_a_task_that_is_replaced_while_it_runs_is_refused(stage: Stage) -> None:
    stage.bridge.make_task("mail.send", [1], 0, id="a")
    claim(stage.store, "u")
    stage.bridge.make_task("mail.send", [2], "1h", id="a", if_exists="replace")
    stage.harness.insert("a")
    stage.harness.settle_down()
    assert stage.harness.row("a").message.startswith("refused: ")
    settle(stage.store, Settlement("a", "u", "succeeded"))
    found = stage.bridge.get("a")
    assert found is not None
    assert list(found.args) == [2]


# An older copy of Redis, or none


@pytest.mark.parametrize("was", ["pending", "ended", "running, moved", "running, replaced"])
def test_a_paused_task_stays_paused_in_an_older_copy_of_redis(
    stage: Stage, client: redis.Redis, was: str
) -> None:
    stage.bring("waits" if was == "pending" else "runs", "a")
    if was == "ended":
        stage.end("a", "succeeded")
    past = snapshot(client)
    if was == "running, replaced":
        replace(stage, [2])
    elif was != "pending":
        stage.ask("a", "reschedule")
    stage.harness.settle_down()
    if was.startswith("running"):
        stage.end("a", "succeeded")
    stage.bridge.pause("a")
    stage.harness.settle_down()
    paused = stage.look("a")
    assert paused.startswith("paused")
    restore(client, past)
    stage.harness.settle_down()
    if was.startswith("running"):
        lapse(stage, client)
    assert stage.look("a") == paused


@pytest.mark.parametrize("timer", ["gone", "live", "moved", "without a TTL"])
def test_a_pending_task_that_is_in_no_set_is_restored_and_holds_up_no_other(
    stage: Stage, client: redis.Redis, timer: str
) -> None:
    """As in a server that restarted with a part of its data, or where a client removed a part."""
    stage.bring("waits", "a")
    stage.bring("waits", "b")
    waits = stage.look("a")
    client.zrem("expirebridge:pending", "a")
    match timer:
        case "gone":
            client.delete(KEY)
        case "moved":
            client.pexpireat(KEY, server_ms(client) + 7 * HOUR)
        case "without a TTL":
            client.persist(KEY)
    task = stage.harness.made.task
    with stage.harness.engine.begin() as connection:
        connection.execute(update(task).values(todo=SyncState.REBUILD))
    stage.harness.settle_down()
    known = {"gone": waits, "live": waits, "moved": "pending [1] 7", "without a TTL": "paused [1]"}
    assert stage.look("a") == known[timer]
    assert stage.look("b") == waits


def lapse(stage: Stage, client: redis.Redis) -> None:
    beating(stage.store)
    age(client, "running", "a", 1)
    stage.store.run(reconciling.sweep(Settings()))
    stage.harness.settle_down()


def test_a_task_that_was_resumed_waits_in_an_older_copy_of_redis(
    stage: Stage, client: redis.Redis
) -> None:
    stage.bring("waits", "a")
    stage.bridge.pause("a")
    stage.harness.settle_down()
    past = snapshot(client)
    stage.bridge.reschedule("a", "1h")
    stage.harness.settle_down()
    restore(client, past)
    stage.harness.settle_down()
    assert stage.look("a") == "pending [1] 1"


def test_a_retry_keeps_its_time_in_an_older_copy_of_redis(
    stage: Stage, client: redis.Redis
) -> None:
    stage.bring("runs", "a")
    past = snapshot(client)
    stage.end("a", "retry")
    stage.harness.settle_down()
    assert stage.look("a") == "pending [1] 2"
    restore(client, past)
    stage.harness.settle_down()
    lapse(stage, client)
    assert stage.look("a") == "pending [1] 2"


@pytest.mark.parametrize("wish", ["reschedule", "replace"])
def test_what_ran_when_redis_was_emptied_comes_back_a_lease_later_also_if_it_was_moved(
    stage: Stage, client: redis.Redis, wish: str
) -> None:
    stage.bring("runs", "a")
    client.flushall()
    with stage.harness.engine.begin() as session:
        if wish == "reschedule":
            stage.ledger.reschedule(session, "a", 0)
        else:
            stage.ledger.make_task(session, "mail.send", [1], 0, id="a", if_exists="replace")
    stage.harness.settle_down()
    due = client.zscore("expirebridge:pending", "a")
    assert due is not None
    assert due > server_ms(client) + 9000


# An older copy of the SQL database


@pytest.mark.parametrize("wish", ["cancel", "reschedule"])
@pytest.mark.parametrize("lost", ["reschedule", "replace"])
def test_what_is_asked_of_a_restored_ledger_counts(
    stage: Stage, store: Store, lost: str, wish: str
) -> None:
    """What was lost and what is asked since have the same revision."""
    stage.bring("waits", "a")
    past = dump(stage.harness)
    stage.ask("a", lost)
    stage.harness.settle_down()
    load(stage.harness, past)
    with stage.harness.engine.begin() as session:
        if wish == "cancel":
            stage.ledger.cancel(session, "a")
        else:
            stage.ledger.reschedule(session, "a", "5h")
    stage.harness.relay().rebind()
    stage.harness.settle_down()
    assert stage.look("a") == ("cancelled [1]" if wish == "cancel" else "pending [1] 5")


def dump(harness: LedgerHarness) -> dict[Any, list[dict[str, Any]]]:
    with harness.engine.connect() as connection:
        return {
            table: [dict(row) for row in connection.execute(select(*stored(table))).mappings()]
            for table in (harness.made.task, harness.made.passes)
        }


def load(harness: LedgerHarness, past: dict[Any, list[dict[str, Any]]]) -> None:
    with harness.engine.begin() as connection:
        for table, rows in past.items():
            connection.execute(delete(table))
            connection.execute(insert(table), rows)
