"""Signals of a ledger: its row decides which of two functions runs, in the caller's transaction."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
import redis
from sqlalchemy import Connection, Engine, event, text

from expirebridge import Bridge, Change, InvalidTask, State, current_task
from expirebridge.hooks import End
from expirebridge.ledger import Ledger
from expirebridge.ledger.partition import LedgerPartition
from expirebridge.ledger.rows import RowState, RowVersion, Status, SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.task.calls.claiming import Settlement
from tests.kit.ledgers import LedgerHarness, restore, snapshot, until
from tests.kit.patience import PATIENCE
from tests.kit.private_keys import K1
from tests.kit.steps import settle, state_of
from tests.kit.witness import Witness, listening

Ran = list[tuple[str, int, Any]]
"""Which function ran, for which order, and what the signal said."""


@pytest.fixture
def ran() -> Ran:
    return []


@pytest.fixture
def handlers(ran: Ran) -> Mapping[str, Callable[[int], None]]:
    def ship(order: int) -> None:
        signal = current_task().signal
        assert signal is not None
        ran.append(("ship", order, (signal.payload, signal.by, signal.instead_of)))

    def cancel(order: int) -> None:
        ran.append(("cancel", order, current_task().signal))

    return {"ship": ship, "cancel": cancel}


def make(
    ledger: Ledger, session: Connection, id: str = "pay-42", delay: str = "15m", **options: Any
) -> None:
    ledger.make_task(
        session, "test.cancel", [42], delay, id=id, **{"on_signal": "test.ship", **options}
    )


def signal(engine: Engine, ledger: Ledger, id: str = "pay-42", *said: Any, by: str = "") -> Change:
    with engine.begin() as session:
        return ledger.signal(session, id, *said, by=by)


def taken(store: Store, harness: LedgerHarness) -> dict[str, tuple[str, Any]]:
    """What a claim takes: the function of each, and what its signal says."""
    claim = claiming.claim("t", Settings(), places=100, idle=True, gate=harness.numbers()[2])
    return {task.id: (task.func, task.told.get("signal")) for task in store.run(claim).tasks}


@pytest.fixture
def awaited(engine: Engine, ledger: Ledger, harness: LedgerHarness) -> str:
    """A task that waits for a signal, and that Redis has."""
    with engine.begin() as session:
        make(ledger, session)
    harness.settle_down()
    return "pay-42"


class Holder:
    """Holds a method of a listener's ledger, in its thread, until it may go on."""

    def __init__(self) -> None:
        self.called, self.may_go_on = threading.Event(), threading.Event()

    async def until_called(self) -> None:
        assert await asyncio.to_thread(self.called.wait, PATIENCE)

    def wait(self) -> None:
        self.called.set()
        self.may_go_on.wait(PATIENCE)


@pytest.fixture
def before_asking(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    """Between a claim and the look at its row."""
    holder, ask = Holder(), LedgerPartition.ask

    def held(self: LedgerPartition, ids: Iterable[str]) -> dict[str, RowState]:
        holder.wait()
        return ask(self, ids)

    monkeypatch.setattr(LedgerPartition, "ask", held)
    yield holder
    holder.may_go_on.set()


@pytest.fixture
def before_deciding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holder]:
    """Between the look at a row, which nothing has decided, and the decision."""
    holder, decide = Holder(), LedgerPartition.decide

    def held(self: LedgerPartition, versions: Mapping[str, RowVersion]) -> dict[str, RowState]:
        holder.wait()
        return decide(self, versions)

    monkeypatch.setattr(LedgerPartition, "decide", held)
    yield holder
    holder.may_go_on.set()


async def test_a_signal_before_the_deadline(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, with_ledger: Settings, ran: Ran,
    handlers: Mapping[str, Callable[[int], None]],
) -> None:  # fmt: skip
    witness = Witness()
    async with listening(with_ledger, witness, **handlers):
        with engine.begin() as session:
            make(ledger, session)
        await until(lambda: harness.row("pay-42").due)
        generation = harness.row("pay-42").generation
        assert signal(engine, ledger, "pay-42", {"ref": 7}, by="psp") is Change.SIGNALLED
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("pay-42") is Status.SUCCEEDED)
    assert ran == [("ship", 42, ({"ref": 7}, "psp", "test.cancel"))]
    row = harness.row("pay-42")
    assert (row.decided, row.func, row.generation) == ("signal", "test.ship", generation)


async def test_a_signal_after_the_deadline(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, with_ledger: Settings, ran: Ran,
    handlers: Mapping[str, Callable[[int], None]],
) -> None:  # fmt: skip
    witness = Witness()
    async with listening(with_ledger, witness, **handlers):
        with engine.begin() as session:
            make(ledger, session, delay="0s")
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("pay-42") is Status.SUCCEEDED)
    assert signal(engine, ledger) is Change.FINISHED
    assert ran == [("cancel", 42, None)]
    assert harness.row("pay-42").decided == "deadline"


@pytest.mark.parametrize("point", ["before_asking", "before_deciding"])
async def test_a_signal_between_the_claim_and_the_decision(
    point: str, engine: Engine, ledger: Ledger, harness: LedgerHarness, with_ledger: Settings,
    ran: Ran, handlers: Mapping[str, Callable[[int], None]], request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    holder: Holder = request.getfixturevalue(point)
    witness = Witness()
    with engine.begin() as session:
        make(ledger, session, delay="0s")
    async with listening(with_ledger, witness, **handlers):
        await holder.until_called()
        assert signal(engine, ledger, "pay-42", 7) is Change.SIGNALLED
        holder.may_go_on.set()
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("pay-42") is Status.SUCCEEDED)
    assert ran == [("ship", 42, (7, "", "test.cancel"))]
    assert harness.row("pay-42").decided == "signal"


async def test_one_that_is_moved_before_the_decision_waits_on(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, with_ledger: Settings,
    before_deciding: Holder, handlers: Mapping[str, Callable[[int], None]],
) -> None:  # fmt: skip
    witness = Witness()
    with engine.begin() as session:
        make(ledger, session, delay="0s")
    async with listening(with_ledger, witness, **handlers):
        await before_deciding.until_called()
        with engine.begin() as session:
            assert ledger.reschedule(session, "pay-42", "1h") == 1
        await until(lambda: harness.row("pay-42").todo != SyncState.RELAY)
        generation = harness.row("pay-42").generation
        before_deciding.may_go_on.set()
        await witness.until_ended(1, End.DROPPED)
        await until(lambda: harness.row("pay-42").generation > generation)
    assert signal(engine, ledger) is Change.SIGNALLED


async def test_once_its_deadline_has_decided_it_has_begun(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, with_ledger: Settings, ran: Ran,
) -> None:  # fmt: skip
    began, may_end = threading.Event(), threading.Event()

    def cancel(order: int) -> None:
        ran.append(("cancel", order, current_task().signal))
        began.set()
        may_end.wait(PATIENCE)
        if current_task().attempt == 1:
            raise RuntimeError("again")

    with engine.begin() as session:
        make(ledger, session, delay="0s", retry=[0.01])
    witness = Witness()
    async with listening(with_ledger, witness, cancel=cancel):
        assert await asyncio.to_thread(began.wait, PATIENCE)
        assert signal(engine, ledger) is Change.BEGUN
        may_end.set()
        await witness.until_ended(1, End.SUCCEEDED)
        await until(lambda: harness.status("pay-42") is Status.SUCCEEDED)
    assert ran == [("cancel", 42, None)] * 2


async def test_an_open_transaction_puts_off_this_task_and_no_other(
    engine: Engine, ledger: Ledger, with_ledger: Settings, ran: Ran,
    handlers: Mapping[str, Callable[[int], None]],
) -> None:  # fmt: skip
    if engine.dialect.name == "sqlite":
        pytest.skip("its transactions lock the whole database")
    ids = [f"pay-{number}" for number in range(5)]
    with engine.begin() as session:
        for id in ids:
            make(ledger, session, id, delay="0s")
    witness = Witness()
    with engine.connect() as session:
        assert ledger.signal(session, "pay-3") is Change.SIGNALLED
        async with listening(with_ledger, witness, **handlers):
            await witness.until_ended(4, End.SUCCEEDED)
            [put_off, *_] = await witness.until_ended(1, End.DROPPED)
            assert put_off.task.id == "pay-3"
            assert "another transaction" in put_off.reason
            assert "ship" not in {name for name, *_ in ran}
            session.rollback()
            await witness.until_ended(5, End.SUCCEEDED)
    assert [name for name, *_ in ran] == ["cancel"] * 5


def test_a_rollback_leaves_all_as_it_was(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, awaited: str
) -> None:
    before = harness.row(awaited)
    with engine.connect() as session:
        assert ledger.signal(session, awaited) is Change.SIGNALLED
        session.rollback()
    assert harness.row(awaited) == before


def test_of_two_that_signal_at_once_one_decides(
    engine: Engine, ledger: Ledger, awaited: str
) -> None:
    answers: dict[str, Change] = {}
    begun = threading.Barrier(2)

    def send(by: str) -> None:
        begun.wait(PATIENCE)
        answers[by] = signal(engine, ledger, awaited, 7, by=by)

    threads = [threading.Thread(target=send, args=(by,)) for by in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(answers.values()) == [Change.SIGNALLED, Change.SIGNALLED_BEFORE]


def test_one_that_waits_for_the_other_is_told_so(
    engine: Engine, ledger: Ledger, awaited: str
) -> None:
    """The second one waits for the lock of the first, and then sees what that did."""
    if engine.dialect.name == "sqlite":
        pytest.skip("its transactions lock the whole database")
    answers: list[Change] = []
    asks = threading.Event()

    def send() -> None:
        with engine.begin() as second:
            event.listen(second, "before_cursor_execute", lambda *_: asks.set())
            answers.append(ledger.signal(second, awaited, 2))

    with engine.connect() as first:
        ledger.signal(first, awaited, 1)
        thread = threading.Thread(target=send)
        thread.start()
        assert asks.wait(PATIENCE)
        first.commit()
    thread.join(PATIENCE)
    assert answers == [Change.SIGNALLED_BEFORE]


def test_the_same_signal_has_its_first_answer(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, awaited: str
) -> None:
    def again() -> list[Change]:
        return [
            signal(engine, ledger, awaited, {"ref": 7}, by="psp"),
            signal(engine, ledger, awaited, {"ref": 8}, by="psp"),
            signal(engine, ledger, awaited, {"ref": 7}, by="else"),
        ]

    first = [Change.SIGNALLED, Change.SIGNALLED_BEFORE, Change.SIGNALLED_BEFORE]
    assert again() == first
    harness.settle_down()
    assert again() == first
    assert taken(store, harness) == {awaited: ("test.ship", b'{"ref":7}')}
    settle(store, Settlement(awaited, "t", "succeeded"))
    harness.settle_down()
    assert harness.status(awaited) is Status.SUCCEEDED
    assert again() == first


def test_what_is_not_awaited_is_refused(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, bridge: Bridge, awaited: str
) -> None:
    with engine.begin() as session:
        ledger.make_task(session, "test.cancel", [1], "1h", id="plain")
    assert signal(engine, ledger, "plain") is Change.NOT_AWAITED
    assert signal(engine, ledger, "nobody") is Change.NOT_FOUND
    assert bridge.signal(awaited) is Change.OF_LEDGER
    with engine.begin() as session:
        ledger.cancel(session, awaited)
    assert signal(engine, ledger, awaited) is Change.FINISHED
    harness.settle_down()
    assert signal(engine, ledger, awaited) is Change.FINISHED
    with engine.begin() as session:
        for options, fault in (
            ({"on_signal": "test.cancel"}, "runs at the deadline"), ({"on_signal": 7}, "on_signal"),
        ):  # fmt: skip
            with pytest.raises(InvalidTask, match=fault):
                make(ledger, session, "x", **options)
        with pytest.raises(InvalidTask, match="payload"):
            ledger.signal(session, awaited, {1, 2})


def test_a_row_tells_what_it_waits_for_and_what_came(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, bridge: Bridge, awaited: str
) -> None:
    def read() -> tuple[Any, ...]:
        with engine.begin() as session:
            task, there = ledger.get(session, awaited), bridge.get(awaited)
        assert task is not None
        assert there is not None
        both = (task.func, task.on_signal, task.signal)
        harness.settle_down()
        there = bridge.get(awaited)
        assert there is not None
        assert (there.func, there.on_signal, there.signal, there.args) == (*both, [42])
        return both

    assert read() == ("test.cancel", "test.ship", None)
    signal(engine, ledger, awaited, [1], by="psp")
    func, on_signal, came = read()
    assert (func, on_signal) == ("test.ship", None)
    assert (came.payload, came.by, came.instead_of) == ([1], "psp", "test.cancel")


def test_the_old_key_is_gone_and_stays_so(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, client: redis.Redis, awaited: str
) -> None:
    assert client.keys("pay-42:*") == [b"pay-42:?test.cancel?[42]"]
    signal(engine, ledger, awaited)
    harness.settle_down()
    assert client.keys("pay-42:*") == []
    assert client.hget("expirebridge:task:pay-42", "lost") == b"test.cancel?[42]"


def test_it_is_carried_once_although_the_batch_is_repeated(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, awaited: str
) -> None:
    signal(engine, ledger, awaited, 7)
    for point in harness.relay().carry():
        if point == "carried":
            break
    assert taken(store, harness) == {awaited: ("test.ship", b"7")}
    harness.settle_down()
    assert taken(store, harness) == {}
    settle(store, Settlement(awaited, "t", "succeeded"))
    harness.settle_down()
    assert (harness.status(awaited), taken(store, harness)) == (Status.SUCCEEDED, {})


def test_a_paused_one_stays_paused(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, bridge: Bridge,
    client: redis.Redis, awaited: str,
) -> None:  # fmt: skip
    with engine.begin() as session:
        make(ledger, session, "written")
        make(ledger, session, "persisted")
    harness.settle_down()
    bridge.pause("written")
    harness.settle_down()
    bridge.pause(awaited)  # and its row has not heard of it
    client.persist("persisted:?test.cancel?[42]")  # nobody has
    ids = (awaited, "written", "persisted")
    for id in ids:
        assert signal(engine, ledger, id) is Change.SIGNALLED
    harness.settle_down()
    assert [state_of(store, id) for id in ids] == [State.PAUSED] * 3
    client.flushall()
    harness.settle_down()
    assert [state_of(store, id) for id in ids] == [State.PAUSED] * 3
    for id in ids:
        bridge.resume(id)
    assert {func for func, _ in taken(store, harness).values()} == {"test.ship"}


def test_a_paused_one_stays_paused_although_redis_forgets_it(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, bridge: Bridge,
    client: redis.Redis, awaited: str,
) -> None:  # fmt: skip
    bridge.pause(awaited)
    harness.settle_down()
    signal(engine, ledger, awaited)
    client.flushall()
    harness.settle_down()
    assert state_of(store, awaited) is State.PAUSED


def test_what_is_written_after_the_signal_resumes_a_paused_one(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, bridge: Bridge,
    awaited: str,
) -> None:  # fmt: skip
    bridge.pause(awaited)
    signal(engine, ledger, awaited)
    with engine.begin() as session:
        session.execute(text("UPDATE expirebridge_task SET written = written - 1"))
        ledger.reschedule(session, awaited, "0s")
    harness.settle_down()
    assert taken(store, harness) == {awaited: ("test.ship", b"null")}


@pytest.mark.parametrize("decided", ["by nothing", "deadline", "signal"])
def test_an_emptied_server_gets_back_what_was_decided(
    decided: str, engine: Engine, ledger: Ledger, harness: LedgerHarness, bridge: Bridge,
    client: redis.Redis, store: Store, awaited: str,
) -> None:  # fmt: skip
    if decided == "deadline":
        row = harness.row(awaited)
        harness.rows.decide({awaited: RowVersion(row.generation, row.revision)})
    if decided == "signal":
        signal(engine, ledger, awaited, 7)
    client.flushall()
    harness.settle_down()
    task = bridge.get(awaited)
    assert task is not None
    assert (task.func, task.on_signal, task.signal and task.signal.payload) == {
        "by nothing": ("test.cancel", "test.ship", None),
        "deadline": ("test.cancel", None, None),
        "signal": ("test.ship", None, 7),
    }[decided]
    assert signal(engine, ledger, awaited, 7) is {
        "by nothing": Change.SIGNALLED, "deadline": Change.BEGUN, "signal": Change.SIGNALLED
    }[decided]  # fmt: skip


def test_redis_went_back_to_before_the_signal(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, client: redis.Redis, store: Store,
    awaited: str,
) -> None:  # fmt: skip
    past = snapshot(client)
    signal(engine, ledger, awaited, 7)
    harness.settle_down()
    restore(client, past)
    harness.settle_down()
    bridge = Bridge(client=client)
    bridge.run_now(awaited)
    assert taken(store, harness) == {awaited: ("test.ship", b"7")}


def test_a_new_life_begins_anew(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, awaited: str
) -> None:
    signal(engine, ledger, awaited, 7)
    with engine.begin() as session:
        make(ledger, session, if_exists="replace")
    assert harness.row(awaited).decided is None
    harness.settle_down()
    assert taken(store, harness) == {}
    assert signal(engine, ledger, awaited, 8) is Change.SIGNALLED
    harness.settle_down()
    assert taken(store, harness) == {awaited: ("test.ship", b"8")}


def test_what_restarts_it_restarts_what_was_decided(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, bridge: Bridge,
    awaited: str,
) -> None:  # fmt: skip
    with engine.begin() as session:
        make(ledger, session, "cancelled")
    harness.settle_down()
    signal(engine, ledger, awaited, 7)
    bridge.cancel("cancelled")
    harness.settle_down()
    assert signal(engine, ledger, "cancelled") is Change.FINISHED
    assert taken(store, harness) == {awaited: ("test.ship", b"7")}
    settle(store, Settlement(awaited, "t", "succeeded"))
    harness.settle_down()
    for id in (awaited, "cancelled"):
        bridge.run_now(id)
    harness.settle_down()
    assert signal(engine, ledger, "cancelled") is Change.BEGUN
    assert signal(engine, ledger, awaited, 8) is Change.SIGNALLED_BEFORE
    assert taken(store, harness) == {
        awaited: ("test.ship", b"7"), "cancelled": ("test.cancel", None)
    }  # fmt: skip


def test_a_signal_for_one_that_waits_to_be_moved(
    engine: Engine, ledger: Ledger, harness: LedgerHarness, store: Store, awaited: str
) -> None:
    with engine.begin() as session:
        ledger.reschedule(session, awaited, "1h")
        assert ledger.signal(session, awaited, 7) is Change.SIGNALLED
    harness.settle_down()
    assert taken(store, harness) == {awaited: ("test.ship", b"7")}


async def test_plain_rows_cost_no_write(
    engine: Engine, ledger: Ledger, with_ledger: Settings, ran: Ran,
    handlers: Mapping[str, Callable[[int], None]], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And one that waits costs one, however many attempts it takes."""
    decided: list[str] = []
    decide = LedgerPartition.decide

    def noted(self: LedgerPartition, versions: Mapping[str, RowVersion]) -> dict[str, RowState]:
        decided.extend(versions)
        return decide(self, versions)

    monkeypatch.setattr(LedgerPartition, "decide", noted)

    def fail(order: int) -> None:
        ran.append(("cancel", order, None))
        if current_task().attempt < 3:
            raise RuntimeError("again")

    with engine.begin() as session:
        for number in range(3):
            ledger.make_task(
                session, "test.fail", [number], 0, id=f"plain-{number}", retry=[0.01, 0.01]
            )
        ledger.make_task(
            session, "test.fail", [3], 0, id="waits", on_signal="test.ship", retry=[0.01, 0.01]
        )
    witness = Witness()
    async with listening(with_ledger, witness, fail=fail, **handlers):
        await witness.until_ended(4, End.SUCCEEDED)
    assert len(ran) == 12
    assert decided == ["waits"]


def test_sealed_arguments_and_payloads(
    engine: Engine, harness: LedgerHarness, url: str, store: Store
) -> None:
    ledger = Ledger(engine.url, keys=K1)
    with engine.begin() as session:
        make(ledger, session)
        assert ledger.get(session, "pay-42").args == [42]  # type: ignore[union-attr]
    harness.settle_down()
    assert signal(engine, ledger, "pay-42", {"ref": 7}, by="psp") is Change.SIGNALLED
    assert signal(engine, ledger, "pay-42", {"ref": 7}, by="psp") is Change.SIGNALLED
    assert signal(engine, ledger, "pay-42", {"ref": 8}, by="psp") is Change.SIGNALLED_BEFORE
    assert "ref" not in harness.row("pay-42").options
    harness.settle_down()
    with engine.begin() as session:
        task, there = ledger.get(session, "pay-42"), Bridge(url, keys=K1).get("pay-42")
    for one in (task, there):
        assert one is not None
        assert one.signal is not None
        assert (one.func, one.args, one.signal.payload) == ("test.ship", [42], {"ref": 7})
