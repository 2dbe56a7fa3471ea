"""Old rows are deleted, and what finished tasks were given is erased."""

import json
from typing import Any

import pytest
import redis
from typer.testing import CliRunner

from expirebridge import Bridge, State
from expirebridge.errors import InvalidSetting, InvalidTask, LedgerUnsuitable
from expirebridge.ledger import Ledger
from expirebridge.ledger.roles import RetentionLoop
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settlement
from tests.kit.invoked import app
from tests.kit.ledgers import LedgerHarness
from tests.kit.steps import settle, state_of
from tests.kit.witness import listening, until_logged

HOUR = 3_600_000


def end(store: Store, outcome: str = "succeeded") -> list[str]:
    """Claim what is due, and end it."""
    claimed = store.run(claiming.claim("t", Settings(), places=100, idle=True, gate=0)).tasks
    for task in claimed:
        settle(store, Settlement(task.id, "t", outcome, 0, "ValueError: a secret"))
    return [task.id for task in claimed]


def ids(harness: LedgerHarness) -> list[str]:
    return [row.id for row in harness.all_rows()]


def test_old_finished_rows_are_deleted_and_no_others(harness: LedgerHarness, store: Store) -> None:
    for id in ("old", "young"):
        harness.insert(id)
    harness.insert("waits", HOUR)
    harness.settle_down()
    assert sorted(end(store)) == ["old", "young"]
    harness.settle_down()
    harness.age("old", "waits")
    before = harness.numbers()
    assert harness.prune_old() == 1
    assert ids(harness) == ["waits", "young"]
    assert state_of(store, "old") is None  # so nobody can run it once more
    assert state_of(store, "young") is State.SUCCEEDED
    assert harness.numbers() == before


def test_a_round_has_many_batches_and_every_status(
    harness: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("expirebridge.ledger.retention.BATCH", 3)
    harness.insert("first", HOUR)
    harness.settle_down()
    for number in range(20):
        status = (10, 20, 30)[number % 3]
        harness.insert(f"r{number}", status=status, todo=0, modified=number // 7)
    assert harness.prune_old() == 20
    assert ids(harness) == ["first"]


def test_a_row_stays_while_its_task_has_not_ended_in_redis(
    harness: LedgerHarness, store: Store
) -> None:
    harness.insert("runs")
    harness.settle_down()
    store.run(claiming.claim("t", Settings(), places=100, idle=True, gate=0))
    with harness.engine.begin() as connection:  # as complete_in does
        connection.exec_driver_sql("UPDATE expirebridge_task SET status = 10, modified = 1")
    assert harness.prune_old() == 0
    settle(store, Settlement("runs", "t", "succeeded"))
    harness.age("runs")
    assert harness.prune_old() == 0  # its row is to learn of it first
    harness.settle_down()
    harness.age("runs")
    assert harness.prune_old() == 1


def test_a_row_whose_task_was_revived_stays(
    harness: LedgerHarness, store: Store, bridge: Bridge
) -> None:
    harness.insert("a")
    harness.settle_down()
    end(store)
    harness.settle_down()
    harness.age("a")
    bridge.run_now("a")
    assert harness.prune_old() == 0
    harness.settle_down()
    assert harness.status("a") is Status.WAITING
    assert end(store) == ["a"]


def test_a_row_that_is_to_be_carried_stays(harness: LedgerHarness) -> None:
    harness.insert("other", HOUR)
    harness.settle_down()
    for id, todo in (("a", SyncState.RELAY), ("b", SyncState.REBUILD)):
        harness.insert(id, status=10, todo=todo, modified=1)
    harness.insert("c", status=10, todo=0, modified=1)  # nothing goes during a rebuild
    assert harness.prune_old() == 0
    harness.settle_down()
    harness.age("a", "b")
    assert harness.prune_old() == 3


def test_nothing_is_deleted_while_redis_has_lost_something(
    harness: LedgerHarness, client: redis.Redis
) -> None:
    harness.insert("a")
    harness.insert("old", status=10, todo=0, modified=1)
    harness.settle_down()
    client.flushall()
    assert harness.prune_old() == 0
    harness.settle_down()
    assert harness.prune_old() == 1


def test_another_ledgers_redis_is_left_alone(harness: LedgerHarness, client: redis.Redis) -> None:
    harness.insert("old", status=10, todo=0, modified=1)
    harness.insert("a")
    harness.settle_down()
    client.hset("expirebridge:ledger", "nonce", "x-here")
    with pytest.raises(LedgerUnsuitable, match="another ledger"):
        harness.prune_old()
    assert ids(harness) == ["a", "old"]


def test_an_older_copy_in_redis_of_a_deleted_row_never_runs(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    """Redis comes back from a snapshot in which the task still waits: without a row it ends."""
    harness.insert("a")
    harness.settle_down()
    names: list[Any] = client.keys("*")
    older = {name: client.dump(name) for name in names}
    end(store)
    harness.settle_down()
    harness.age("a")
    assert harness.prune_old() == 1
    client.flushdb()
    for name, value in older.items():
        client.restore(name, 0, value or b"")
    harness.settle_down()
    assert harness.numbers()[2] >= harness.numbers()[1]  # the gate can open
    assert harness.rows.ask(["a"]) == {}  # and a listener that asks finds no row: it cancels


async def test_a_listener_deletes_old_rows(
    harness: LedgerHarness, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(RetentionLoop, "interval", 0.1)
    caplog.set_level("INFO")
    harness.insert("young", HOUR)
    harness.settle_down()
    harness.insert("old", status=10, todo=0, modified=1)
    async with listening(with_ledger, run=end):
        await until_logged(lambda: "deleted 1 row of the ledger" in caplog.text)
    assert ids(harness) == ["young"]


def run(*words: str, settings: Settings, code: int = 0) -> str:
    env = {"EXPIREBRIDGE_LEDGER": settings.ledger, "EXPIREBRIDGE_URL": settings.url}
    result = CliRunner().invoke(app, ["ledger", *words], env=env, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_command_prunes(harness: LedgerHarness, with_ledger: Settings) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    for id in ("old", "older"):
        harness.insert(id, status=20, todo=0, modified=1)
    harness.insert("young", status=20, todo=0)
    assert run("prune", settings=with_ledger) == "deleted 2 rows\n"
    assert json.loads(run("prune", "--json", settings=with_ledger)) == {"deleted": 0}
    with pytest.raises(InvalidSetting, match="--older-than 3y"):
        run("prune", "--older-than", "3y", settings=with_ledger)
    assert ids(harness) == ["a", "young"]


# Erasing


SECRET: dict[str, Any] = {"params": '["a secret"]', "ext_string": "ann"}


def everything_in(client: redis.Redis) -> bytes:
    """Every name, and every value as the server would store it."""
    names: list[Any] = client.keys("*")
    return b"".join(name + (client.dump(name) or b"") for name in names)


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_what_finished_tasks_were_given_is_erased(
    harness: LedgerHarness, store: Store, client: redis.Redis, ledger: Ledger, outcome: str
) -> None:
    harness.insert("a", **SECRET, options='{"tags":["secret"],"retry":"[]"}')
    harness.insert("waits", HOUR, **SECRET)
    harness.settle_down()
    end(store, outcome)
    harness.settle_down()
    assert b"secret" in everything_in(client)
    with harness.engine.begin() as connection:
        assert ledger.erase(connection, ext="ann") == 1
        assert ledger.erase(connection, ext="ann") == 0
    harness.settle_down()
    row = harness.row("a")
    assert (row.params, row.options, row.message) == ('{"erased":true}', None, None)
    assert (row.status, row.ext_string, row.todo) == (
        Status[outcome.upper()],
        "ann",
        SyncState.NOTHING,
    )
    assert state_of(store, "a") is State[outcome.upper()]
    assert client.zcard("expirebridge:dirty") == 0
    client.delete('waits:?mail.send?["a secret"]', "expirebridge:task:waits")
    assert b"secret" not in everything_in(client)


def test_of_an_unfinished_task_nothing_is_erased(harness: LedgerHarness, ledger: Ledger) -> None:
    harness.insert("waits", HOUR, **SECRET)
    with harness.engine.begin() as connection:
        assert ledger.erase(connection, "waits") == 0
    assert "secret" in harness.row("waits").params
    with pytest.raises(InvalidTask, match="either id or ext"), harness.engine.begin() as connection:
        ledger.erase(connection)


def test_the_command_erases(harness: LedgerHarness, with_ledger: Settings) -> None:
    harness.insert("a", status=10, **SECRET)
    harness.insert("b", status=20, **SECRET)
    assert run("erase", "--ext", "nobody", settings=with_ledger) == "erased 0 tasks\n"
    assert run("erase", "--id", "a", settings=with_ledger) == "erased 1 task\n"
    assert json.loads(run("erase", "--ext", "ann", "--json", settings=with_ledger)) == {"erased": 1}
    with pytest.raises(InvalidTask, match="either id or ext"):
        run("erase", settings=with_ledger)
