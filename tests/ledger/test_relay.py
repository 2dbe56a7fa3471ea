"""Passes: rows go to the server, and what happens there comes back."""

from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from expirebridge import Bridge, State, TaskExists
from expirebridge.errors import LedgerUnsuitable
from expirebridge.ledger import Ledger
from expirebridge.ledger.addresses import place_of
from expirebridge.ledger.binding import Addresses
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.ledger.relay import INTERRUPTED, finish
from expirebridge.ledger.tables import Tables
from expirebridge.model.row_state import RowVersion, Status, SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.commands import claiming, producing, reconciling
from expirebridge.store.commands import ledger as ledger_calls
from expirebridge.store.commands.claiming import Settled, Settlement
from tests.kit.ledgers import Books, restore, snapshot
from tests.kit.steps import server_ms, settle, state_of

HOUR = 3_600_000
ELSEWHERE = Addresses(("elsewhere",), "2 expirebridge", "here")


@pytest.fixture
def books(engine: Engine, made: Tables, store: Store) -> Books:
    return Books(engine, made, store)


def claim(store: Store, token: str = "t", gate: int | None = 0) -> list[str]:
    call = claiming.claim(token, Settings(), places=100, idle=True, gate=gate)
    return [task.id for task in store.run(call).tasks]


def test_a_row_becomes_a_task_and_its_end_comes_back(books: Books, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    assert books.row("a").todo == SyncState.NOTHING
    assert claim(store) == ["a"]
    settle(store, Settlement("a", "t", "succeeded"))
    assert books.status("a") is Status.WAITING
    books.settle_down()
    assert books.status("a") is Status.SUCCEEDED
    number, stamp, seen = books.numbers()
    assert number == stamp == seen == books.row("a").stamp


def test_without_a_gate_no_task_of_a_ledger_is_claimed(books: Books, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    assert claim(store, gate=None) == []
    assert claim(store, gate=books.numbers()[2] + 1) == []
    assert claim(store, gate=books.numbers()[2]) == ["a"]


def test_a_delay_counts_from_its_statement(books: Books, client: redis.Redis) -> None:
    books.insert("a", HOUR)
    books.change("a", written=books.row("a").written - 600_000)
    books.settle_down()
    left = books.row("a").due - server_ms(client)
    assert HOUR - 605_000 < left <= HOUR - 600_000


def test_a_wanted_cancel_cancels_what_waits(books: Books, store: Store) -> None:
    books.insert("a", HOUR)
    books.settle_down()
    books.cancel("a")
    books.settle_down()
    assert state_of(store, "a") is State.CANCELLED
    assert books.status("a") is Status.CANCELLED


def test_a_cancel_before_the_first_pass_is_never_run(books: Books, store: Store) -> None:
    books.insert("a")
    books.cancel("a")
    books.settle_down()
    assert claim(store) == []
    assert books.status("a") is Status.CANCELLED


def test_a_cancel_of_what_runs_ends_its_attempts(books: Books, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    books.cancel("a")
    books.settle_down()
    settle(store, Settlement("a", "t", "retry", 60))
    books.settle_down()
    assert books.status("a") is Status.CANCELLED


def test_a_reschedule_moves_and_does_not_undo_an_unheard_expire(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("a", HOUR)
    books.settle_down()
    books.change("a", delay_ms=2 * HOUR, due=None, written=books.row("a").written)
    books.settle_down()
    task = store.run(producing.get("a"))
    assert task is not None
    assert client.pttl(task.key) > 1.9 * HOUR
    client.pexpire(task.key, 5 * HOUR)
    books.change("a", ext_string="x")
    books.settle_down()
    assert client.pttl(task.key) > 4.9 * HOUR


def test_what_failed_and_waits_again_is_written_back(books: Books, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "retry", 60, "ValueError: no"))
    books.settle_down()
    row = books.row("a")
    assert (row.status, row.retry_times, row.message) == (1, 1, "ValueError: no")
    assert row.due > row.created + 50_000


def test_an_attempt_that_runs_when_the_one_before_is_written_back_does_not_count(
    books: Books, store: Store
) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "retry", 0, "ValueError: no"))
    assert claim(store, "u") == ["a"]
    books.settle_down()
    assert books.row("a").retry_times == 1


def test_a_row_whose_id_is_taken_is_refused_and_the_rest_go_on(
    books: Books, bridge: Bridge, store: Store
) -> None:
    bridge.make_task("mail.send", [2], 3600, id="a")
    books.insert("a")
    books.insert("b", params="no JSON")
    books.insert("c", func="neither")
    books.insert("d", options="[]")
    books.insert("e")
    books.settle_down()
    for id in "abcd":
        assert books.status(id) is Status.FAILED, id
        assert books.row(id).message
    assert claim(store) == ["e"]


def test_an_id_of_the_ledger_is_not_for_others(books: Books, bridge: Bridge, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    with pytest.raises(TaskExists):
        bridge.make_task("mail.send", [2], 3600, id="a", if_exists="replace")
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    with pytest.raises(TaskExists):
        bridge.make_task("mail.send", [2], 3600, id="a")
    books.settle_down()
    assert books.status("a") is Status.SUCCEEDED


def test_what_is_run_again_by_request_lives_again_in_its_row(
    books: Books, bridge: Bridge, store: Store
) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    first = books.row("a").generation
    bridge.run_now("a")
    books.settle_down()
    row = books.row("a")
    assert (row.status, row.generation) == (Status.WAITING, first + 1)
    assert claim(store, "u") == ["a"]
    settle(store, Settlement("a", "u", "failed", 0, "no"))
    books.settle_down()
    assert books.status("a") is Status.FAILED


def test_the_sweep_keeps_what_its_row_does_not_know(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    client.zadd("expirebridge:succeeded", {"a": 1})
    store.run(reconciling.sweep(Settings()))
    assert state_of(store, "a") is State.SUCCEEDED
    books.settle_down()
    client.zadd("expirebridge:succeeded", {"a": 1})
    store.run(reconciling.sweep(Settings()))
    assert state_of(store, "a") is None
    assert books.status("a") is Status.SUCCEEDED


def test_an_emptied_server_gets_everything_back(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("done")
    books.settle_down()
    claim(store)
    settle(store, Settlement("done", "t", "succeeded"))
    books.insert("later", HOUR)
    books.insert("cancelled", HOUR)
    books.cancel("cancelled")
    books.settle_down()
    due = books.row("later").due
    client.flushall()
    finish(books.relay().carry())
    books.settle_down()
    task = store.run(producing.get("later"))
    assert task is not None
    assert round(task.due.timestamp() * 1000) == due
    assert state_of(store, "done") is State.SUCCEEDED
    assert state_of(store, "cancelled") is State.CANCELLED
    assert claim(store) == []


def test_what_may_still_run_comes_back_a_lease_later(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    client.flushall()
    books.settle_down()
    task = store.run(producing.get("a"))
    assert task is not None
    assert task.due.timestamp() * 1000 > server_ms(client) + 9000


def test_it_comes_back_a_lease_later_although_it_is_carried_twice(
    books: Books, store: Store, client: redis.Redis
) -> None:
    """A listener's new connection fences out the pass that rebuilt it."""
    books.insert("a")
    books.settle_down()
    claim(store)
    client.flushall()
    steps = books.relay().carry()
    while next(steps) != "carried":
        pass
    books.rows.fence(0)
    assert finish(steps) == INTERRUPTED
    first = store.run(producing.get("a"))
    books.settle_down()
    second = store.run(producing.get("a"))
    assert first is not None
    assert second is not None
    assert second.due == first.due
    assert second.due.timestamp() * 1000 > server_ms(client) + 9000


def test_it_comes_back_a_lease_later_to_an_older_copy_of_the_server(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("a")
    finish(books.relay().carry())
    older: dict[Any, Any] = {name: client.dump(name) for name in client.keys("*")}
    claim(store)
    books.change("a", ext_string="x")  # a later pass knows it
    books.settle_down()
    client.flushall()
    for name, value in older.items():
        client.restore(name, 0, value)
    books.settle_down()
    task = store.run(producing.get("a"))
    assert task is not None
    assert task.due.timestamp() * 1000 > server_ms(client) + 9000


def test_an_intact_server_costs_no_pass(books: Books) -> None:
    books.insert("a", HOUR)
    books.settle_down()
    before = books.numbers()
    books.settle_down()
    assert books.numbers() == before


def test_a_pass_that_is_about_to_end_is_not_taken_for_a_loss(
    books: Books, store: Store, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another listener has written to its rows, and not told the server yet."""
    books = Books(books.engine, books.made, store, place=place_of(with_ledger, books.engine.url))
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    ending = books.relay().bring_back()
    while next(ending) != "written":
        pass
    monkeypatch.setattr("expirebridge.ledger.partition.time.sleep", lambda _: finish(ending))
    ledger_engine = LedgerEngine(with_ledger)
    ours = ledger_engine.partition(lambda: store)
    ours.relay_once()
    ledger_engine.close()
    assert [each.rebuilt for each in ours.take_batches()] == []
    assert books.status("a") is Status.SUCCEEDED


def test_another_place_sends_nothing(books: Books, client: redis.Redis) -> None:
    books.insert("a")
    books.settle_down()
    client.flushall()
    with pytest.raises(LedgerUnsuitable, match="Redis is at elsewhere, and was met at here"):
        finish(books.relay(ELSEWHERE).carry())
    assert client.dbsize() == 0


def test_another_ledger_sends_nothing(books: Books, client: redis.Redis) -> None:
    books.insert("a")
    books.settle_down()
    client.hset("expirebridge:ledger", "nonce", "x-here")
    with pytest.raises(LedgerUnsuitable, match="another ledger"):
        finish(books.relay().carry())


def test_a_server_that_is_ahead_stops_the_relay(books: Books, client: redis.Redis) -> None:
    books.insert("a")
    books.settle_down()
    client.hset("expirebridge:ledger", "number", 99)
    with pytest.raises(LedgerUnsuitable, match="has seen pass 99"):
        finish(books.relay().carry())


def test_the_first_pass_notes_that_there_is_a_ledger(books: Books, client: redis.Redis) -> None:
    books.insert("a")
    books.settle_down()
    assert client.hget("expirebridge:meta", "features") == b"ledger"
    client.delete("expirebridge:meta")
    books.insert("b")
    books.settle_down()
    assert client.hget("expirebridge:meta", "features") == b"ledger"


def test_a_paused_task_comes_back_paused(
    books: Books, bridge: Bridge, store: Store, client: redis.Redis
) -> None:
    books.insert("a", HOUR)
    books.settle_down()
    bridge.pause("a")
    books.settle_down()
    client.flushall()
    books.settle_down()
    assert state_of(store, "a") is State.PAUSED


def test_what_redis_forgot_of_a_waiting_row_is_carried_again(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("a", HOUR)
    books.settle_down()
    client.zadd("expirebridge:dirty", {"a": 5})
    client.delete("expirebridge:task:a")
    books.settle_down()
    assert state_of(store, "a") is State.PENDING


def test_known_numbers_are_read(store: Store) -> None:
    assert store.run(ledger_calls.read_ledger())[:2] == ("", 0)


def test_a_rebuild_binds_the_ledger_to_another_server(
    books: Books, store: Store, client: redis.Redis
) -> None:
    books.insert("a")
    books.insert("later", HOUR)
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    client.flushall()
    moved = Books(books.engine, books.made, store, place=ELSEWHERE)
    with pytest.raises(LedgerUnsuitable):
        finish(moved.relay().carry())
    moved.relay().rebind()
    moved.settle_down()
    assert state_of(store, "later") is State.PENDING
    assert claim(store) == []


def test_a_new_life_of_an_id_takes_the_place_of_one_that_was_run_again(
    books: Books, bridge: Bridge, store: Store
) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    bridge.run_now("a")  # another generation in Redis; and in its row, before that learns of it:
    generation = books.row("a").generation + 1
    books.change("a", generation=generation, status=1, params="[2]", due=None, delay_ms=HOUR)
    books.settle_down()
    task = store.run(producing.get("a"))
    assert task is not None
    assert list(task.args) == [2]
    assert claim(store) == []


def replace(books: Books, id: str, delay: float = 0) -> None:
    """A new task with the same call takes the id."""
    with books.engine.begin() as connection:
        Ledger(tables=books.made).make_task(
            connection, "mail.send", [1], delay, id=id, if_exists="replace"
        )


def run_once(books: Books, id: str = "a") -> None:
    books.insert(id)
    books.settle_down()
    assert claim(books.store) == [id]
    settle(books.store, Settlement(id, "t", "succeeded"))
    books.settle_down()


def test_a_row_that_was_deleted_and_inserted_again_is_another_task(
    books: Books, store: Store
) -> None:
    run_once(books)
    books.prune("a")  # by hand: Redis still knows that it is done
    books.insert("a")
    books.settle_down()
    assert books.status("a") is Status.WAITING
    assert claim(store, "u") == ["a"]


@pytest.mark.parametrize("was", ["succeeded", "pending", "running"])
def test_an_older_copy_of_redis_is_no_copy_of_a_later_task(
    books: Books, store: Store, client: redis.Redis, was: str
) -> None:
    """What an older copy knows of a pruned row: a new one with the same call is another task."""
    books.insert("a")
    books.settle_down()
    copies = {"pending": snapshot(client)}
    assert claim(store) == ["a"]
    copies["running"] = snapshot(client)
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    copies["succeeded"] = snapshot(client)
    books.age("a")
    assert books.prune_old() == 1
    restore(client, copies[was])
    books.insert("a", HOUR)
    books.settle_down()
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    assert claim(store, "u") == []
    row, task = books.row("a"), store.run(producing.get("a"))
    assert row.status == Status.WAITING
    assert task is not None
    assert task.state is State.PENDING
    assert row.due > row.created + HOUR - 5000


def test_a_new_life_is_not_taken_for_one_that_was_run_again(
    books: Books, bridge: Bridge, store: Store
) -> None:
    run_once(books)
    bridge.run_now("a")
    assert claim(store, "u") == ["a"]
    settle(store, Settlement("a", "u", "succeeded"))
    replace(books, "a")  # before its row has learnt of that run
    books.settle_down()
    assert claim(store, "v") == ["a"]


def test_what_follows_a_run_can_be_changed_until_then(books: Books, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    replace(books, "a", 3600)
    books.settle_down()
    books.change("a", delay_ms=0, due=None)
    books.settle_down()
    assert settle(store, Settlement("a", "t", "succeeded")) == [Settled.DONE]
    [task] = store.run(claiming.claim("u", Settings(), places=1, idle=True, gate=0)).tasks
    row = books.row("a")
    assert RowVersion.read(task.ledger) == (row.generation, row.revision)
    settle(store, Settlement("a", "u", "succeeded"))
    books.settle_down()
    assert books.status("a") is Status.SUCCEEDED


def test_what_follows_a_run_can_be_cancelled_until_then(books: Books, store: Store) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    replace(books, "a")
    books.settle_down()
    books.cancel("a")
    books.settle_down()
    settle(store, Settlement("a", "t", "succeeded"))
    books.settle_down()
    assert claim(store, "u") == []
    assert books.status("a") is Status.CANCELLED


@pytest.mark.parametrize("change", ["moved", "moved in Redis", "replaced"])
def test_what_is_to_run_after_a_run_is_not_early_after_a_loss(
    books: Books, bridge: Bridge, store: Store, client: redis.Redis, change: str
) -> None:
    books.insert("a")
    books.settle_down()
    claim(store)
    if change == "moved":
        books.change("a", delay_ms=HOUR, due=None)
    elif change == "moved in Redis":
        bridge.reschedule("a", "1h")
    else:
        replace(books, "a", 3600)
    books.settle_down()
    client.flushall()
    books.settle_down()
    row = books.row("a")
    assert row.due > row.created + HOUR - 5000
    assert client.zscore("expirebridge:pending", "a") == row.due
