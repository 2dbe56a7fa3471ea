"""Rows that were just committed are sent before the batch that brings them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import redis
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from expirebridge import State
from expirebridge.hooks import End
from expirebridge.ledger import Ledger
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.early_sends import EarlySends
from expirebridge.ledger.partition import LedgerEngine, LedgerPartition
from expirebridge.ledger.relay import finish
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.roles import RelayLoop
from expirebridge.ledger.rows import RowVersion, Status, SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, producing
from expirebridge.task.calls.call import When
from expirebridge.task.calls.claiming import Settlement
from tests.kit.ledgers import LedgerHarness, restore, snapshot, until
from tests.kit.patience import PATIENCE
from tests.kit.steps import new, settle, state_of
from tests.kit.witness import Witness, listening
from tests.ledger.planted import planted

HOUR = 3_600_000
RECORD = "expirebridge:task:b"


def test_a_new_row_is_there_before_its_batch_and_stays_as_it_is(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    before = harness.numbers()
    harness.insert("b", HOUR)
    assert ours.send_early(["b"], 0)
    assert state_of(store, "b") is State.PENDING
    row, due = harness.row("b"), client.zscore("expirebridge:pending", "b")
    assert (row.todo, row.stamp, harness.numbers()) == (SyncState.RELAY, 0, before)
    record = client.hgetall(RECORD)
    assert int(record.pop(b"early")) > 0
    assert ours.relay_once() == 1
    row = harness.row("b")
    assert (row.todo, row.stamp, row.due) == (SyncState.NOTHING, harness.numbers()[0], due)
    assert client.hgetall(RECORD) == record
    assert ours.relay_once() == 0


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "with options": {"options": '{"tags":["x"],"timeout":3}'},
    "tick": {"id": "s@1760000000000", "options": '{"tick":"1"}'},
    "signal": {"options": '{"on_signal":"mail.other"}'},
    "sealed": {"params": "sealed:k1:AAAA"},
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_its_record_is_as_its_batch_would_make_it(
    harness: LedgerHarness, ours: LedgerPartition, client: redis.Redis, kind: str
) -> None:
    values: dict[str, Any] = {"id": "b", "at_ms": 4_000_000_000_000} | OPTIONS[kind]
    id = str(values.pop("id"))
    before = snapshot(client)
    harness.insert(id, **values)
    assert ours.send_early([id], 0)
    client.hdel(f"expirebridge:task:{id}", "early", "made")
    early = {name: value for name, value in snapshot(client).items() if name not in before}
    records = client.hgetall(f"expirebridge:task:{id}")
    restore(client, before)
    assert ours.relay_once() == 1
    client.hdel(f"expirebridge:task:{id}", "made")
    assert client.hgetall(f"expirebridge:task:{id}") == records
    assert early.keys() == snapshot(client).keys() - before.keys()


def test_what_is_not_new_is_left_to_its_batch(
    harness: LedgerHarness, ours: LedgerPartition, store: Store
) -> None:
    assert ours.send_early(["nowhere"], 0)  # its row may be not there yet, or was relayed
    harness.change("a", ext_string="x")
    harness.insert("b")
    harness.cancel("b")
    harness.insert("c", params="no JSON")
    for id in "abc":
        assert not ours.send_early([id], 0)
    assert state_of(store, "b") is state_of(store, "c") is None


def test_an_id_that_has_a_record_is_left_to_its_batch(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    store.run(producing.make([new("b", HOUR)]))
    record = client.hgetall(RECORD)
    harness.insert("b", params="[2]")
    assert ours.send_early(["b"], 0)
    assert client.hgetall(RECORD) == record
    assert ours.relay_once() == 1
    assert harness.status("b") is Status.FAILED


def test_what_is_kept_back_is_not_sent(
    harness: LedgerHarness, ours: LedgerPartition, with_ledger: Settings, store: Store
) -> None:
    with closing(LedgerEngine(replace(with_ledger, ledger_horizon=600.0))) as far:
        theirs = far.partition(lambda: store)
        assert theirs.relay_once() == 0  # it notes its horizon
        harness.insert("near", HOUR // 10)
        assert theirs.relay_once() == 1
        harness.insert("b", HOUR)
        harness.insert("c", HOUR // 10)
        assert theirs.send_early(["b", "c"], 0)
        assert state_of(store, "b") is None
        assert state_of(store, "c") is State.PENDING
    assert ours.send_early(["b"], 0)


def test_nothing_is_sent_before_the_first_batch(
    harness: LedgerHarness, ledger_engine: LedgerEngine, store: Store
) -> None:
    harness.insert("b")
    assert not ledger_engine.partition(lambda: store).send_early(["b"], 0)
    assert state_of(store, "b") is None


def loses_a_batch(harness: LedgerHarness, ours: LedgerPartition, client: redis.Redis) -> None:
    before = snapshot(client)
    harness.insert("c", HOUR)
    assert ours.relay_once() == 1
    restore(client, before)


def is_emptied(_: LedgerHarness, __: LedgerPartition, client: redis.Redis) -> None:
    client.flushdb()


def is_bound_anew(harness: LedgerHarness, _: LedgerPartition, __: redis.Redis) -> None:
    harness.relay().rebind()


@pytest.mark.parametrize("lost", [loses_a_batch, is_emptied, is_bound_anew])
def test_a_server_that_lost_something_gets_nothing(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis, lost: object
) -> None:
    assert callable(lost)
    lost(harness, ours, client)
    harness.insert("b")
    assert not ours.send_early(["b"], 0)
    assert state_of(store, "b") is None


def test_one_that_has_not_seen_the_batch_of_the_gate_gets_nothing(
    harness: LedgerHarness, ours: LedgerPartition, store: Store
) -> None:
    number = harness.numbers()[2]
    harness.insert("b")
    assert not ours.send_early(["b"], number + 1)
    assert state_of(store, "b") is None
    assert ours.send_early(["b"], number)


def sends_of(ours: LedgerPartition) -> EarlySends:
    return ours._early_sends


@pytest.mark.parametrize("wish", ["cancel", "reschedule"])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_wanted_since_the_row_was_read_counts(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis, wish: str,
    is_first: bool,
) -> None:  # fmt: skip
    """`is_first`: its batch comes before the record is sent."""
    harness.insert("b")
    steps = sends_of(ours).send(["b"], least=0)
    assert next(steps) == "read"
    if wish == "cancel":
        harness.cancel("b")
    else:
        harness.change("b", delay_ms=HOUR, due=None)
    if is_first:
        assert ours.relay_once() == 1
    finish(steps)
    while ours.relay_once():
        pass
    version = RowVersion(harness.row("b").generation, 2)
    assert client.hget(RECORD, "ledger") == str(version).encode()
    assert store.run(claiming.claim("t", Settings(), places=9, idle=True, gate=0)).tasks == []
    wanted = State.CANCELLED if wish == "cancel" else State.PENDING
    assert state_of(store, "b") is wanted


def test_what_ran_before_its_batch_is_not_run_again(
    harness: LedgerHarness, ours: LedgerPartition, store: Store
) -> None:
    harness.insert("b")
    assert ours.send_early(["b"], 0)
    store.run(claiming.claim("t", Settings(), places=1, idle=True, gate=0))
    settle(store, Settlement("b", "t", "succeeded"))
    while ours.relay_once():
        pass
    assert harness.status("b") is Status.SUCCEEDED
    assert harness.row("b").todo == SyncState.NOTHING
    assert state_of(store, "b") is State.SUCCEEDED


def test_what_the_server_lost_of_it_is_made_by_its_batch(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    before = snapshot(client)
    harness.insert("b")
    assert ours.send_early(["b"], 0)
    restore(client, before)
    assert ours.relay_once() == 1
    assert state_of(store, "b") is State.PENDING


# Without its row


def claimed(store: Store) -> str:
    token = "t"
    [task] = store.run(claiming.claim(token, Settings(), places=1, idle=True, gate=0)).tasks
    assert task.id == "b"
    return token


def judged(store: Store, token: str) -> ledger_calls.EarlyVerdict:
    return store.run(ledger_calls.judge_early("b", token, "no row", Settings()))


def age(client: redis.Redis) -> None:
    """Have it been sent half a minute ago."""
    client.hset(RECORD, "early", int(client.hget(RECORD, "early") or 0) - 30_001)


def test_one_without_a_row_is_put_off_and_at_last_forgotten(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    harness.insert("b")
    assert ours.send_early(["b"], 0)
    token = claimed(store)
    assert judged(store, token) is ledger_calls.EarlyVerdict.WAITS
    age(client)
    assert judged(store, "another") is ledger_calls.EarlyVerdict.WAITS
    assert judged(store, token) is ledger_calls.EarlyVerdict.OVER
    settle(store, Settlement("b", token, "cancelled"))
    assert state_of(store, "b") is State.CANCELLED
    assert client.hget(RECORD, "ledger") is None
    while ours.relay_once():  # its row is there again
        pass
    assert state_of(store, "b") is State.PENDING
    assert harness.status("b") is Status.WAITING


def test_without_that_rule_it_would_be_cancelled(
    harness: LedgerHarness, ours: LedgerPartition, store: Store
) -> None:
    harness.insert("b")
    assert ours.send_early(["b"], 0)
    token = claimed(store)
    with planted("early without a row"):
        assert judged(store, token) is ledger_calls.EarlyVerdict.NOT_EARLY


def test_one_that_a_batch_has_brought_is_not_early(
    harness: LedgerHarness, ours: LedgerPartition, store: Store
) -> None:
    harness.insert("b")
    assert ours.send_early(["b"], 0)
    assert ours.relay_once() == 1
    assert judged(store, claimed(store)) is ledger_calls.EarlyVerdict.NOT_EARLY


def test_one_that_is_to_run_once_more_is_not_forgotten(
    harness: LedgerHarness, ours: LedgerPartition, store: Store, client: redis.Redis
) -> None:
    harness.insert("b")
    assert ours.send_early(["b"], 0)
    token = claimed(store)
    age(client)
    store.run(producing.reschedule("b", When(HOUR, relative=True)))
    assert judged(store, token) is ledger_calls.EarlyVerdict.WAITS


# In a listener


def into(ran: list[int]) -> Callable[[int], None]:
    """A handler that notes its argument."""

    def run(number: int) -> None:
        ran.append(number)

    return run


class Held:
    """Holds batches from rows to the server, from the second one on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go_on, self.is_on = threading.Event(), False
        begin = RelayStore.begin_batch

        def held(store: RelayStore, *found: object, **more: object) -> object:
            if self.is_on:
                self.may_go_on.wait(PATIENCE)
            return begin(store, *found, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(RelayStore, "begin_batch", held)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.may_go_on.set()


async def test_a_listener_runs_what_was_committed_before_its_batch(
    harness: LedgerHarness, engine: Engine, with_ledger: Settings, held: Held
) -> None:
    ran: list[int] = []
    witness = Witness()
    harness.insert("a", func="test.run", params="[1]")
    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
        held.is_on = True
        ledger = Ledger(engine.url, redis=with_ledger.url)
        with Session(engine) as session, session.begin():
            ledger.make_tasks(session, [{"func": "test.run", "args": [2], "delay": 0, "id": "b"}])
        await witness.until_ended(2, End.SUCCEEDED)
        assert harness.row("b").stamp == 0
        held.may_go_on.set()
        await until(lambda: harness.status("b") is Status.SUCCEEDED)
        await until(lambda: harness.row("b").todo == SyncState.NOTHING)
    assert ran == [1, 2]


async def test_one_whose_row_is_gone_does_not_run_and_is_not_cancelled_in_sql(
    harness: LedgerHarness, engine: Engine, with_ledger: Settings, held: Held,
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Its database fails over to a copy, which has the row later."""
    monkeypatch.setattr(RelayLoop, "interval", 3600.0)
    ran: list[int] = []
    witness = Witness()
    harness.insert("a", func="test.run", params="[1]")
    send = LedgerPartition.send_early

    def and_lose(self: LedgerPartition, *found: object) -> bool:
        steps = self._early_sends.send(found[0], least=found[1])  # type: ignore[arg-type]
        assert next(steps) == "read"
        harness.prune("b")
        return finish(steps)

    async with listening(with_ledger, witness, run=into(ran)):
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
        held.is_on = True
        monkeypatch.setattr(LedgerPartition, "send_early", and_lose)
        ledger = Ledger(engine.url, redis=with_ledger.url)
        with Session(engine) as session, session.begin():
            made = ledger.make_task(session, "test.run", [2], 0, id="b")
        await witness.until_ended(1, End.DROPPED)
        assert client.hget(RECORD, "ledger") is not None
        monkeypatch.setattr(LedgerPartition, "send_early", send)
        harness.insert("b", func="test.run", params="[2]", ext_string="again")
        held.may_go_on.set()
        ledger.notify()
        await until(lambda: harness.status("b") is Status.SUCCEEDED)
    assert made.id == "b"
    assert ran == [1, 2]
