"""Passes: rows go to the server, and what happens there comes back."""

from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from expirebridge import Bridge, State, TaskExists
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger import Ledger
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.binding import Addresses, place_of
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.relay import INTERRUPTED, finish
from expirebridge.ledger.rows import RowVersion, Status, SyncState
from expirebridge.ledger.sql_tables import Tables
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, looking, reconciling
from expirebridge.task.calls.claiming import Settled, Settlement
from tests.kit.ledgers import LedgerHarness, restore, snapshot
from tests.kit.steps import server_ms, settle, state_of

HOUR = 3_600_000
ELSEWHERE = Addresses(("elsewhere",), "2 expirebridge", "here")


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)


def claim(store: Store, token: str = "t", gate: int | None = 0) -> list[str]:
    call = claiming.claim(token, Settings(), places=100, idle=True, gate=gate)
    return [task.id for task in store.run(call).tasks]


def test_a_row_becomes_a_task_and_its_end_comes_back(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a")
    harness.settle_down()
    assert harness.row("a").todo == SyncState.NOTHING
    assert claim(store) == ["a"]
    settle(store, Settlement("a", "t", "succeeded"))
    assert harness.status("a") is Status.WAITING
    harness.settle_down()
    assert harness.status("a") is Status.SUCCEEDED
    number, stamp, seen = harness.numbers()
    assert number == stamp == seen == harness.row("a").stamp


def test_rows_are_carried_although_other_batches_come_before_all_but_small_ones(
    harness: LedgerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_batch, sizes = harness.rows.begin_batch, list[int]()

    def begin(*args: Any, **more: Any) -> Any:
        page = begin_batch(*args, **more)
        sizes.append(len(page.rows) if page else 0)
        return page

    monkeypatch.setattr(harness.rows, "begin_batch", begin)
    for n in range(100):
        harness.insert(f"t{n}", HOUR)
    relay, interrupted = harness.relay(), 0
    while any(row.todo for row in harness.all_rows()):
        assert interrupted < 20
        steps = relay.carry()
        while next(steps, "end") not in {"carried", "end"}:
            pass
        if sizes[-1] > 20:  # it takes so long that another listener's batch comes before its end
            harness.rows.fence(0)
        interrupted += finish(steps) == INTERRUPTED
    assert interrupted


def test_without_a_gate_no_task_of_a_ledger_is_claimed(
    harness: LedgerHarness, store: Store
) -> None:
    harness.insert("a")
    harness.settle_down()
    assert claim(store, gate=None) == []
    assert claim(store, gate=harness.numbers()[2] + 1) == []
    assert claim(store, gate=harness.numbers()[2]) == ["a"]


def test_a_delay_counts_from_its_statement(harness: LedgerHarness, client: redis.Redis) -> None:
    harness.insert("a", HOUR)
    harness.change("a", written=harness.row("a").written - 600_000)
    harness.settle_down()
    left = harness.row("a").due - server_ms(client)
    assert HOUR - 605_000 < left <= HOUR - 600_000


def test_a_wanted_cancel_cancels_what_waits(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    harness.cancel("a")
    harness.settle_down()
    assert state_of(store, "a") is State.CANCELLED
    assert harness.status("a") is Status.CANCELLED


def test_a_cancel_before_the_first_pass_is_never_run(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a")
    harness.cancel("a")
    harness.settle_down()
    assert claim(store) == []
    assert harness.status("a") is Status.CANCELLED


def test_a_cancel_of_what_runs_ends_its_attempts(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    harness.cancel("a")
    harness.settle_down()
    settle(store, Settlement("a", "t", "retry", 60))
    harness.settle_down()
    assert harness.status("a") is Status.CANCELLED


def test_a_reschedule_moves_and_does_not_undo_an_unheard_expire(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    harness.change("a", delay_ms=2 * HOUR, due=None, written=harness.row("a").written)
    harness.settle_down()
    task = store.run(looking.get("a"))
    assert task is not None
    assert client.pttl(task.key) > 1.9 * HOUR
    client.pexpire(task.key, 5 * HOUR)
    harness.change("a", ext_string="x")
    harness.settle_down()
    assert client.pttl(task.key) > 4.9 * HOUR


def test_what_failed_and_waits_again_is_written_back(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "retry", 60, "ValueError: no"))
    harness.settle_down()
    row = harness.row("a")
    assert (row.status, row.retry_times, row.message) == (1, 1, "ValueError: no")
    assert row.due > row.created + 50_000


def test_an_attempt_that_runs_when_the_one_before_is_written_back_does_not_count(
    harness: LedgerHarness, store: Store
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "retry", 0, "ValueError: no"))
    assert claim(store, "u") == ["a"]
    harness.settle_down()
    assert harness.row("a").retry_times == 1


def test_a_row_whose_id_is_taken_is_refused_and_the_rest_go_on(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [2], 3600, id="a")
    harness.insert("a")
    harness.insert("b", params="no JSON")
    harness.insert("c", func="neither")
    harness.insert("d", options="[]")
    harness.insert("e")
    harness.settle_down()
    for id in "abcd":
        assert harness.status(id) is Status.FAILED, id
        assert harness.row(id).message
    assert claim(store) == ["e"]


def test_an_id_of_the_ledger_is_not_for_others(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    harness.insert("a")
    harness.settle_down()
    with pytest.raises(TaskExists):
        bridge.make_task("mail.send", [2], 3600, id="a", if_exists="replace")
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    with pytest.raises(TaskExists):
        bridge.make_task("mail.send", [2], 3600, id="a")
    harness.settle_down()
    assert harness.status("a") is Status.SUCCEEDED


def test_what_is_run_again_by_request_lives_again_in_its_row(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    harness.settle_down()
    first = harness.row("a").generation
    bridge.run_now("a")
    harness.settle_down()
    row = harness.row("a")
    assert (row.status, row.generation) == (Status.WAITING, first + 1)
    assert claim(store, "u") == ["a"]
    settle(store, Settlement("a", "u", "failed", 0, "no"))
    harness.settle_down()
    assert harness.status("a") is Status.FAILED


def test_the_sweep_keeps_what_its_row_does_not_know(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    client.zadd("expirebridge:succeeded", {"a": 1})
    store.run(reconciling.sweep(Settings()))
    assert state_of(store, "a") is State.SUCCEEDED
    harness.settle_down()
    client.zadd("expirebridge:succeeded", {"a": 1})
    store.run(reconciling.sweep(Settings()))
    assert state_of(store, "a") is None
    assert harness.status("a") is Status.SUCCEEDED


def test_an_emptied_server_gets_everything_back(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("done")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("done", "t", "succeeded"))
    harness.insert("later", HOUR)
    harness.insert("cancelled", HOUR)
    harness.cancel("cancelled")
    harness.settle_down()
    due = harness.row("later").due
    client.flushall()
    finish(harness.relay().carry())
    harness.settle_down()
    task = store.run(looking.get("later"))
    assert task is not None
    assert round(task.due.timestamp() * 1000) == due
    assert state_of(store, "done") is State.SUCCEEDED
    assert state_of(store, "cancelled") is State.CANCELLED
    assert claim(store) == []


def test_what_may_still_run_comes_back_a_lease_later(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    client.flushall()
    harness.settle_down()
    task = store.run(looking.get("a"))
    assert task is not None
    assert task.due.timestamp() * 1000 > server_ms(client) + 9000


def test_it_comes_back_a_lease_later_although_it_is_carried_twice(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    """A listener's new connection fences out the pass that rebuilt it."""
    harness.insert("a")
    harness.settle_down()
    claim(store)
    client.flushall()
    steps = harness.relay().carry()
    while next(steps) != "carried":
        pass
    harness.rows.fence(0)
    assert finish(steps) == INTERRUPTED
    first = store.run(looking.get("a"))
    harness.settle_down()
    second = store.run(looking.get("a"))
    assert first is not None
    assert second is not None
    assert second.due == first.due
    assert second.due.timestamp() * 1000 > server_ms(client) + 9000


def test_it_comes_back_a_lease_later_to_an_older_copy_of_the_server(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("a")
    finish(harness.relay().carry())
    older: dict[Any, Any] = {name: client.dump(name) for name in client.keys("*")}
    claim(store)
    harness.change("a", ext_string="x")  # a later pass knows it
    harness.settle_down()
    client.flushall()
    for name, value in older.items():
        client.restore(name, 0, value)
    harness.settle_down()
    task = store.run(looking.get("a"))
    assert task is not None
    assert task.due.timestamp() * 1000 > server_ms(client) + 9000


def test_an_intact_server_costs_no_pass(harness: LedgerHarness) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    before = harness.numbers()
    harness.settle_down()
    assert harness.numbers() == before


def test_a_pass_that_is_about_to_end_is_not_taken_for_a_loss(
    harness: LedgerHarness, store: Store, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another listener has written to its rows, and not told the server yet."""
    harness = LedgerHarness(
        harness.engine, harness.made, store, place=place_of(with_ledger, harness.engine.url)
    )
    harness.insert("a")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    ending = harness.relay().bring_back()
    while next(ending) != "written":
        pass
    monkeypatch.setattr("expirebridge.ledger.partition.time.sleep", lambda _: finish(ending))
    ledger_engine = LedgerEngine(with_ledger)
    ours = ledger_engine.partition(lambda: store)
    ours.relay_once()
    ledger_engine.close()
    assert [each.rebuilt for each in ours.take_batches()] == []
    assert harness.status("a") is Status.SUCCEEDED


def test_another_place_sends_nothing(harness: LedgerHarness, client: redis.Redis) -> None:
    harness.insert("a")
    harness.settle_down()
    client.flushall()
    with pytest.raises(LedgerUnsuitable, match="Redis is at elsewhere, and was met at here"):
        finish(harness.relay(ELSEWHERE).carry())
    assert client.dbsize() == 0


def test_another_ledger_sends_nothing(harness: LedgerHarness, client: redis.Redis) -> None:
    harness.insert("a")
    harness.settle_down()
    client.hset("expirebridge:ledger", "nonce", "x-here")
    with pytest.raises(LedgerUnsuitable, match="another ledger"):
        finish(harness.relay().carry())


def test_a_server_that_is_ahead_stops_the_relay(
    harness: LedgerHarness, client: redis.Redis
) -> None:
    harness.insert("a")
    harness.settle_down()
    client.hset("expirebridge:ledger", "number", 99)
    with pytest.raises(LedgerUnsuitable, match="has seen pass 99"):
        finish(harness.relay().carry())


def test_the_first_pass_notes_that_there_is_a_ledger(
    harness: LedgerHarness, client: redis.Redis
) -> None:
    harness.insert("a")
    harness.settle_down()
    assert client.hget("expirebridge:meta", "features") == b"ledger"
    client.delete("expirebridge:meta")
    harness.insert("b")
    harness.settle_down()
    assert client.hget("expirebridge:meta", "features") == b"ledger"


def test_a_paused_task_comes_back_paused(
    harness: LedgerHarness, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    bridge.pause("a")
    harness.settle_down()
    client.flushall()
    harness.settle_down()
    assert state_of(store, "a") is State.PAUSED


def test_what_redis_forgot_of_a_waiting_row_is_carried_again(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("a", HOUR)
    harness.settle_down()
    client.zadd("expirebridge:dirty", {"a": 5})
    client.delete("expirebridge:task:a")
    harness.settle_down()
    assert state_of(store, "a") is State.PENDING


def test_known_numbers_are_read(store: Store) -> None:
    assert store.run(ledger_calls.read_ledger())[:2] == ("", 0)


def test_a_rebuild_binds_the_ledger_to_another_server(
    harness: LedgerHarness, store: Store, client: redis.Redis
) -> None:
    harness.insert("a")
    harness.insert("later", HOUR)
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    harness.settle_down()
    client.flushall()
    moved = LedgerHarness(harness.engine, harness.made, store, place=ELSEWHERE)
    with pytest.raises(LedgerUnsuitable):
        finish(moved.relay().carry())
    moved.relay().rebind()
    moved.settle_down()
    assert state_of(store, "later") is State.PENDING
    assert claim(store) == []


def test_a_new_life_of_an_id_takes_the_place_of_one_that_was_run_again(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    harness.settle_down()
    bridge.run_now("a")  # another generation in Redis; and in its row, before that learns of it:
    generation = harness.row("a").generation + 1
    harness.change("a", generation=generation, status=1, params="[2]", due=None, delay_ms=HOUR)
    harness.settle_down()
    task = store.run(looking.get("a"))
    assert task is not None
    assert list(task.args) == [2]
    assert claim(store) == []


def replace(harness: LedgerHarness, id: str, delay: float = 0) -> None:
    """A new task with the same call takes the id."""
    with harness.engine.begin() as connection:
        Ledger(tables=harness.made).make_task(
            connection, "mail.send", [1], delay, id=id, if_exists="replace"
        )


def run_once(harness: LedgerHarness, id: str = "a") -> None:
    harness.insert(id)
    harness.settle_down()
    assert claim(harness.store) == [id]
    settle(harness.store, Settlement(id, "t", "succeeded"))
    harness.settle_down()


def test_a_row_that_was_deleted_and_inserted_again_is_another_task(
    harness: LedgerHarness, store: Store
) -> None:
    run_once(harness)
    harness.prune("a")  # by hand: Redis still knows that it is done
    harness.insert("a")
    harness.settle_down()
    assert harness.status("a") is Status.WAITING
    assert claim(store, "u") == ["a"]


@pytest.mark.parametrize("was", ["succeeded", "pending", "running"])
def test_an_older_copy_of_redis_is_no_copy_of_a_later_task(
    harness: LedgerHarness, store: Store, client: redis.Redis, was: str
) -> None:
    """What an older copy knows of a pruned row: a new one with the same call is another task."""
    harness.insert("a")
    harness.settle_down()
    copies = {"pending": snapshot(client)}
    assert claim(store) == ["a"]
    copies["running"] = snapshot(client)
    settle(store, Settlement("a", "t", "succeeded"))
    harness.settle_down()
    copies["succeeded"] = snapshot(client)
    harness.age("a")
    assert harness.prune_old() == 1
    restore(client, copies[was])
    harness.insert("a", HOUR)
    harness.settle_down()
    settle(store, Settlement("a", "t", "succeeded"))
    harness.settle_down()
    assert claim(store, "u") == []
    row, task = harness.row("a"), store.run(looking.get("a"))
    assert row.status == Status.WAITING
    assert task is not None
    assert task.state is State.PENDING
    assert row.due > row.created + HOUR - 5000


def test_a_new_life_is_not_taken_for_one_that_was_run_again(
    harness: LedgerHarness, bridge: Bridge, store: Store
) -> None:
    run_once(harness)
    bridge.run_now("a")
    assert claim(store, "u") == ["a"]
    settle(store, Settlement("a", "u", "succeeded"))
    replace(harness, "a")  # before its row has learnt of that run
    harness.settle_down()
    assert claim(store, "v") == ["a"]


def test_what_follows_a_run_can_be_changed_until_then(harness: LedgerHarness, store: Store) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    replace(harness, "a", 3600)
    harness.settle_down()
    harness.change("a", delay_ms=0, due=None)
    harness.settle_down()
    assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.DONE]
    [task] = store.run(claiming.claim("u", Settings(), places=1, idle=True, gate=0)).tasks
    row = harness.row("a")
    assert RowVersion.read(task.ledger) == (row.generation, row.revision)
    settle(store, Settlement("a", "u", "succeeded"))
    harness.settle_down()
    assert harness.status("a") is Status.SUCCEEDED


def test_what_follows_a_run_can_be_cancelled_until_then(
    harness: LedgerHarness, store: Store
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    replace(harness, "a")
    harness.settle_down()
    harness.cancel("a")
    harness.settle_down()
    settle(store, Settlement("a", "t", "succeeded"))
    harness.settle_down()
    assert claim(store, "u") == []
    assert harness.status("a") is Status.CANCELLED


@pytest.mark.parametrize("change", ["moved", "moved in Redis", "replaced"])
def test_what_is_to_run_after_a_run_is_not_early_after_a_loss(
    harness: LedgerHarness, bridge: Bridge, store: Store, client: redis.Redis, change: str
) -> None:
    harness.insert("a")
    harness.settle_down()
    claim(store)
    if change == "moved":
        harness.change("a", delay_ms=HOUR, due=None)
    elif change == "moved in Redis":
        bridge.reschedule("a", "1h")
    else:
        replace(harness, "a", 3600)
    harness.settle_down()
    client.flushall()
    harness.settle_down()
    row = harness.row("a")
    assert row.due > row.created + HOUR - 5000
    assert client.zscore("expirebridge:pending", "a") == row.due
