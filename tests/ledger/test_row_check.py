"""While a row is asked: its task is cancelled, or its listener stops."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from expirebridge import Bridge, State
from expirebridge.errors import LedgerUnreachable
from expirebridge.hooks import End
from expirebridge.ledger.partition import LedgerEngine, LedgerPartition
from expirebridge.ledger.row_check import LedgerGate, RowCheck
from expirebridge.ledger.rows import RowState
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.listener.listener import Listener
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.ledgers import LedgerHarness
from tests.kit.patience import PATIENCE
from tests.kit.steps import state_of
from tests.kit.witness import GATE_CLOSED, Witness, listening

# The database is only asked as everywhere.
pytestmark = pytest.mark.one_database

Handler = Callable[[int], Awaitable[None] | None]


def into(ran: list[int]) -> Callable[[int], None]:
    """A plain handler that notes its argument."""

    def run(number: int) -> None:
        ran.append(number)

    return run


class Question:
    """Holds what asks rows, in its thread, until it may go on."""

    def __init__(self) -> None:
        self.asked, self.may_go_on = threading.Event(), threading.Event()

    async def until_asked(self) -> None:
        assert await asyncio.to_thread(self.asked.wait, PATIENCE)


@pytest.fixture
def question(monkeypatch: pytest.MonkeyPatch) -> Iterator[Question]:
    question, ask = Question(), LedgerPartition.ask

    def held(self: LedgerPartition, ids: Iterable[str]) -> dict[str, RowState]:
        question.asked.set()
        question.may_go_on.wait(PATIENCE)
        return ask(self, ids)

    monkeypatch.setattr(LedgerPartition, "ask", held)
    yield question
    question.may_go_on.set()


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture(params=["async", "plain"])
def run(request: pytest.FixtureRequest, ran: list[int]) -> Handler:
    """A handler of each kind, which notes its argument."""

    async def run(number: int) -> None:
        ran.append(number)

    return run if request.param == "async" else into(ran)


@pytest.fixture
def one_row(harness: LedgerHarness, with_ledger: Settings) -> Settings:
    """The settings of a listener for one waiting row, and one place."""
    harness.insert("a", func="test.run", params="[1]")
    return replace(with_ledger, concurrency=1)


@pytest.fixture
def beats_fast(one_row: Settings) -> Settings:
    """The same of one that soon hears that a task was cancelled.

    If its event loop is held up for a third of the lease, its heart gives back what has not begun.
    """
    return replace(one_row, lease=3.0)


def has_no_traces(listener: Listener) -> bool:
    """Whether nothing of an attempt is left in it."""
    executor = listener._executor
    leases = sum(len(consumer.leases) for consumer in listener._servers.consumers)
    return not (leases or executor.in_flight or list(executor._running) or executor.withdraw())


async def is_given_back_and_runs(
    settings: Settings, run: Handler, ran: list[int], look: Callable[[Listener], object] = id
) -> None:
    """The first attempt is cancelled. Nobody cancelled the task, so another attempt runs it.

    `look` is given the listener once it is up.
    """
    witness = Witness()
    async with listening(settings, witness, run=run) as listener:
        look(listener)
        [first, second] = await witness.until_ended(2)
        assert (first.end, first.reason) == (End.RELEASED, "it was cancelled")
        assert second.end is End.SUCCEEDED
        assert has_no_traces(listener)
    assert ran == [1]


async def test_a_task_that_is_cancelled_meanwhile_ends(
    beats_fast: Settings, store: Store, bridge: Bridge, question: Question, run: Handler,
    ran: list[int],
) -> None:  # fmt: skip
    witness = Witness()
    async with listening(beats_fast, witness, run=run) as listener:
        await question.until_asked()
        await asyncio.to_thread(bridge.cancel, "a")
        [ended] = await witness.until_ended()
        assert not question.may_go_on.is_set()
        assert (ended.end, ended.reason) == (End.RELEASED, "it was cancelled")
        assert state_of(store, "a") is State.CANCELLED
        assert has_no_traces(listener)
    assert ran == []


async def test_a_stop_meanwhile_gives_it_back_at_once(
    one_row: Settings, store: Store, question: Question, run: Handler, ran: list[int]
) -> None:
    witness = Witness()
    async with listening(one_row, witness, run=run) as listener:
        await question.until_asked()
        listener.stop()
        [ended] = await witness.until_ended()
        assert not question.may_go_on.is_set()  # it did not wait for the answer
        question.may_go_on.set()
    assert (ended.end, ended.reason) == (End.RELEASED, "its listener stopped")
    assert state_of(store, "a") is State.PENDING
    assert has_no_traces(listener)
    assert ran == []


async def test_a_cancellation_between_the_answer_and_the_next_step(
    one_row: Settings, run: Handler, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners: list[Listener] = []
    answer = RowCheck._answer

    async def answer_and_cancel(self: RowCheck, asked: dict[str, Any]) -> None:
        await answer(self, asked)
        executor = listeners[0]._executor
        executor.cancel([(each.claimed.id, each.claimed.token) for each in executor._running])
        monkeypatch.undo()

    monkeypatch.setattr(RowCheck, "_answer", answer_and_cancel)
    await is_given_back_and_runs(one_row, run, ran, listeners.append)


async def test_a_cancellation_that_was_lost_on_its_way_counts(
    one_row: Settings, run: Handler, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = RowCheck.look_up

    async def lose(self: RowCheck, attempt: Attempt) -> AttemptOutcome | None:
        """Look up as the real one does; what was waited for swallows a cancellation."""
        attempt.stopped = "it was cancelled"
        monkeypatch.undo()
        return await look_up(self, attempt)

    monkeypatch.setattr(RowCheck, "look_up", lose)
    await is_given_back_and_runs(one_row, run, ran)


async def test_a_cancellation_before_the_first_step(
    one_row: Settings, run: Handler, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Executor.start

    def start_and_cancel(self: Executor, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        self.cancel([(each.claimed.id, each.claimed.token) for each in self._running])
        monkeypatch.undo()

    monkeypatch.setattr(Executor, "start", start_and_cancel)
    await is_given_back_and_runs(one_row, run, ran)


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), asyncio.CancelledError()], ids=str
)
async def test_an_error_that_nobody_foresaw_gives_it_back(
    error: BaseException, one_row: Settings, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: RowCheck, attempt: Attempt) -> AttemptOutcome | None:
        monkeypatch.undo()
        raise error

    monkeypatch.setattr(RowCheck, "look_up", fail)
    witness = Witness()
    async with listening(one_row, witness, run=into(ran)) as listener:
        [first, second] = await witness.until_ended(2)
        assert first.end is End.RELEASED
        assert type(error).__name__ in first.reason
        assert (second.end, second.task.attempt) == (End.SUCCEEDED, 1)
        assert has_no_traces(listener)
    assert ran == [1]


async def test_a_gate_that_closes_meanwhile_gives_it_back(
    one_row: Settings, question: Question, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = Witness()
    async with listening(one_row, witness, run=into(ran)) as listener:
        await question.until_asked()
        with monkeypatch.context() as closed:
            closed.setattr(LedgerGate, "number", None)
            question.may_go_on.set()
            [first] = await witness.until_ended(1, End.RELEASED)
        assert GATE_CLOSED in first.reason
        await witness.until_ended(1, End.SUCCEEDED)
        assert has_no_traces(listener)
    assert ran == [1]


async def test_a_ledger_that_takes_too_long_is_told_from_a_cancellation(
    harness: LedgerHarness, with_ledger: Settings, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    """Also in a task that was cancelled before, where Python 3.11.2 takes one for the other."""
    monkeypatch.setattr("expirebridge.ledger.engine.PATIENCE", 0.05)
    ledger_engine, go_on = LedgerEngine(with_ledger), threading.Event()
    real = ledger_engine.partition(lambda: store)

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            with pytest.raises(LedgerUnreachable):
                await real.run(go_on.wait, 20)
            return

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    await task
    go_on.set()
    ledger_engine.close()
