"""A task that is claimed, and that its row does not want now, has not failed.

And a claim is no beginning: what never ran is not taken for what was interrupted.
"""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from expirebridge import Bridge, State
from expirebridge.hooks import End, Started
from expirebridge.ledger import Ledger
from expirebridge.ledger.partition import LedgerPartition
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import looking
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.steps import state_of
from tests.kit.witness import Witness, listening

# The database is only asked as everywhere.
pytestmark = pytest.mark.one_database

HOUR = 3_600_000


def note(number: int) -> None:
    """A handler."""


@pytest.fixture
def unrelayed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """What rows ask for is not relayed before their tasks are due: as in the last second."""
    monkeypatch.setattr(LedgerPartition, "relay_once", lambda *_, **__: 0)
    return monkeypatch


def is_quiet(caplog: pytest.LogCaptureFixture) -> bool:
    """Whether nothing was logged that asks for attention."""
    return not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("how", ["cancelled", "deleted"])
async def test_a_task_that_was_cancelled_a_moment_ago_has_not_failed(
    how: str, harness: LedgerHarness, with_ledger: Settings, store: Store,
    unrelayed: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    witness = Witness()
    for id in ("a", "b"):
        harness.insert(id, func="test.note", params="[1]")
    harness.settle_down()
    if how == "cancelled":
        harness.cancel("a")
    else:
        harness.prune("a")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(2)
        assert {(one.task.id, one.end) for one in witness.ended()} == {
            ("a", End.DROPPED), ("b", End.SUCCEEDED),
        }  # fmt: skip
        assert state_of(store, "a") is State.CANCELLED
        unrelayed.undo()
    assert [one.task.id for one in witness.seen(Started)] == ["b"]
    assert is_quiet(caplog)


async def test_a_task_that_was_moved_a_moment_ago_waits_for_its_new_time(
    harness: LedgerHarness, with_ledger: Settings, ledger: Ledger, store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    harness.settle_down()
    with harness.engine.begin() as connection:
        ledger.reschedule(connection, "a", "1h")
    async with listening(with_ledger, witness, note=note):
        await until(lambda: harness.row("a").todo == SyncState.NOTHING)
        await until(lambda: state_of(store, "a") is State.PENDING)
        due = store.run(looking.get("a"))
        assert due is not None
        assert due.state is State.PENDING
    assert not witness.seen(Started)
    assert is_quiet(caplog)
    assert harness.row("a").message is None


async def test_an_attempt_that_failed_is_no_less_a_failure_if_its_row_was_cancelled(
    harness: LedgerHarness, with_ledger: Settings, store: Store, unrelayed: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def fail() -> None:
        harness.cancel("a")
        raise ValueError("bad")

    witness = Witness()
    harness.insert("a", func="test.fail", params="[]")
    harness.settle_down()
    async with listening(with_ledger, witness, fail=fail):
        [ended] = await witness.until_ended(1)
        unrelayed.undo()
    assert ended.end in {End.RETRY, End.FAILED}
    assert isinstance(ended.error, ValueError)
    assert state_of(store, "a") is State.CANCELLED


async def test_run_now_of_a_finished_task_starts_at_once_and_leaves_no_message(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(1)
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
        await asyncio.to_thread(bridge.run_now, "a")
        await witness.until_ended(2)
        assert [one.end for one in witness.ended()] == [End.SUCCEEDED] * 2
        await until(lambda: harness.status("a") is Status.SUCCEEDED)
        await until(lambda: harness.row("a").generation > harness.row("a").created)
    assert harness.row("a").message is None
    assert is_quiet(caplog)


async def test_a_tick_that_never_ran_is_missed_and_the_next_one_runs(
    harness: LedgerHarness, with_ledger: Settings, ledger: Ledger, store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The database is away when a tick is claimed, and until the next one is due."""
    witness, asked = Witness(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def away(*_: Any, **__: Any) -> Any:
        loop.call_soon_threadsafe(asked.set)
        raise RuntimeError("away")

    with harness.engine.begin() as connection:
        ledger.schedule(connection, "s", "test.note", [1], every="4s")
    async with listening(replace(with_ledger, lease=3.0), witness, note=note):
        await until(lambda: store.client.zcard("expirebridge:pending"))
        [row] = harness.all_rows()
        first = row.id
        with monkeypatch.context() as broken:
            broken.setattr(RelayStore, "ask", away)
            await asked.wait()
            for name in ("read", "fence"):
                broken.setattr(RelayStore, name, away)
            await asyncio.sleep(4.2)  # time passes: until the next one is due
        await witness.until_ended(1, End.SUCCEEDED)
        task = store.run(looking.get(first))
        assert task is not None
        assert (task.state, task.error) == (State.CANCELLED, "missed: the next tick was due")
        assert store.client.hget("expirebridge:series:s", "overlapped") is None
    assert first not in {one.task.id for one in witness.seen(Started)}
