"""The ledger's own calls, on rows that are kept back."""

from typing import Any

import pytest
from sqlalchemy import Engine, update

from expirebridge import Bridge, Change, State, TaskExists
from expirebridge.errors import CompletionRefused
from expirebridge.ledger import Ledger, Tables, complete
from expirebridge.ledger.roles import RelayLoop
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.series_ticks import make_ticks
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.ledgers import LedgerHarness
from tests.kit.steps import state_of
from tests.kit.witness import Witness, listening

HOUR = 3_600_000
HORIZON = 3600.0


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    """A ledger of which the row `a`, which is due in three hours, is kept back."""
    harness = LedgerHarness(engine, made, store, horizon=HORIZON)
    harness.insert("a", 3 * HOUR, ext_string="order-1")
    harness.settle_down()
    assert is_kept_back(harness, "a")
    return harness


def is_kept_back(harness: LedgerHarness, id: str) -> bool:
    row = harness.row(id)
    return bool(row.todo == SyncState.RELAY and row.stamp == 0 and row.planned > 0)


def age(harness: LedgerHarness, ms: int) -> None:
    """Let so much time pass for each row that waits."""
    task = harness.made.task
    passed = {"written": task.c.written - ms, "at_ms": task.c.at_ms - ms}
    with harness.engine.begin() as connection:
        connection.execute(update(task).where(task.c.todo == SyncState.RELAY).values(passed))


@pytest.mark.parametrize("which", [{"id": "a"}, {"ext": "order-1"}], ids=["id", "ext"])
def test_it_is_cancelled_at_once(
    which: dict[str, Any], harness: LedgerHarness, ledger: Ledger, engine: Engine, bridge: Bridge
) -> None:
    with engine.begin() as connection:
        assert ledger.cancel(connection, **which) == (Change.CANCELLED if "id" in which else 1)
    harness.settle_down()
    assert harness.status("a") is Status.CANCELLED
    assert bridge.count().pending == 0
    with engine.begin() as connection:
        assert ledger.erase(connection, **which) == 1
    harness.settle_down()
    assert "[1]" not in harness.row("a").params
    age(harness, 4 * HOUR)
    harness.settle_down()
    assert harness.status("a") is Status.CANCELLED
    assert bridge.count().pending == 0


def test_nothing_of_it_is_erased_before_it_has_ended(
    harness: LedgerHarness, ledger: Ledger, engine: Engine
) -> None:
    with engine.begin() as connection:
        assert ledger.erase(connection, "a") == 0
    assert is_kept_back(harness, "a")


@pytest.mark.parametrize("which", [{"id": "a"}, {"ext": "order-1"}], ids=["id", "ext"])
def test_moved_nearer_it_is_relayed_at_once(
    which: dict[str, Any], harness: LedgerHarness, ledger: Ledger, engine: Engine, bridge: Bridge
) -> None:
    with engine.begin() as connection:
        assert ledger.reschedule(connection, delay="30m", **which) == 1
    harness.settle_down()
    found = bridge.get("a")
    assert found is not None
    assert harness.row("a").due == round(found.due.timestamp() * 1000)
    with engine.begin() as connection:  # and back: what Redis has had is not kept back again
        assert ledger.reschedule(connection, delay="5h", **which) == 1
    harness.settle_down()
    moved = bridge.get("a")
    assert moved is not None
    assert (moved.due - found.due).total_seconds() > 4 * 3600


def test_moved_further_it_comes_near_at_its_new_time_only(
    harness: LedgerHarness, ledger: Ledger, engine: Engine, store: Store
) -> None:
    with engine.begin() as connection:
        assert ledger.reschedule(connection, "a", "9h") == 1
    harness.settle_down()
    age(harness, 3 * HOUR)
    harness.settle_down()
    assert is_kept_back(harness, "a")
    age(harness, 5 * HOUR + HOUR // 2)
    harness.settle_down()
    assert state_of(store, "a") is State.PENDING


@pytest.mark.parametrize("delay", ["30m", "5h"])
def test_a_new_task_takes_its_place(
    delay: str, harness: LedgerHarness, ledger: Ledger, engine: Engine, bridge: Bridge
) -> None:
    before = harness.row("a")
    with engine.begin() as connection:
        with pytest.raises(TaskExists):
            ledger.make_task(connection, "mail.send", [2], delay, id="a")
        ledger.make_task(connection, "mail.send", [2], delay, id="a", if_exists="replace")
    harness.settle_down()
    row, found = harness.row("a"), bridge.get("a")
    assert row.generation > before.generation
    if delay == "5h":
        assert found is None
        assert is_kept_back(harness, "a")
        age(harness, 4 * HOUR + HOUR // 2)
        harness.settle_down()
        found = bridge.get("a")
    assert found is not None
    assert found.args == [2]


def test_a_new_task_in_the_place_of_one_that_was_cancelled_before_it_came_near(
    harness: LedgerHarness, ledger: Ledger, engine: Engine, bridge: Bridge
) -> None:
    """Its row has a stamp then, so it is not kept back."""
    with engine.begin() as connection:
        ledger.cancel(connection, "a")
    harness.settle_down()
    with engine.begin() as connection:
        ledger.make_task(connection, "mail.send", [2], "5h", id="a")
    harness.settle_down()
    found = bridge.get("a")
    assert found is not None
    assert found.args == [2]


def test_what_never_began_is_completed_by_nobody(
    harness: LedgerHarness, engine: Engine, made: Tables
) -> None:
    def completed(generation: int, revision: int) -> None:
        with engine.begin() as connection:
            complete(
                connection, made, ledger="default", id="a", generation=generation,
                revision=revision, attempt=1,
            )  # fmt: skip

    row = harness.row("a")
    with pytest.raises(CompletionRefused):
        completed(row.generation - 1, row.revision)
    assert is_kept_back(harness, "a")
    completed(row.generation, row.revision)  # an attempt that Redis has lost
    harness.settle_down()
    assert harness.status("a") is Status.SUCCEEDED
    assert harness.row("a").todo == SyncState.NOTHING


def test_a_row_is_read_wherever_its_task_is(ledger: Ledger, harness: LedgerHarness) -> None:
    with harness.engine.connect() as connection:
        found = ledger.get(connection, "a")
        assert found is not None
        assert found.status is Status.WAITING
        assert [task.id for task in ledger.find(connection, ext="order-1")] == ["a"]


def test_a_tick_is_kept_back_like_any_row(
    harness: LedgerHarness, ledger: Ledger, engine: Engine, made: Tables, bridge: Bridge
) -> None:
    with engine.begin() as connection:
        ledger.schedule(connection, "weekly", "mail.send", [2], every="7d")
    make_ticks(engine, made, "default")
    harness.settle_down()
    assert bridge.count().pending == 0
    [tick] = [row.id for row in harness.all_rows() if row.id != "a"]
    assert is_kept_back(harness, tick)
    with engine.begin() as connection:
        assert ledger.unschedule(connection, "weekly") is Change.REMOVED
    harness.settle_down()
    assert harness.status(tick) is Status.CANCELLED


async def test_what_is_moved_to_now_runs_after_the_notification_of_its_commit(
    with_ledger: Settings, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first look finds the first; the next without a notification comes in an hour."""
    settings = Settings(url=with_ledger.url, ledger=with_ledger.ledger, ledger_horizon=HORIZON)
    ledger, witness, ran = Ledger(engine.url, redis=with_ledger.url), Witness(), list[int]()

    def run(number: int) -> None:
        ran.append(number)

    with engine.begin() as connection:
        for number, delay in enumerate(["0s", "3h", "3h"]):
            ledger.make_task(connection, "test.run", [number], delay, id=f"a{number}")
    async with listening(settings, witness, run=run):
        await witness.until_ended(1)
        monkeypatch.setattr(RelayLoop, "interval", 3600.0)
        for number in (1, 2):
            with engine.begin() as connection:
                assert ledger.reschedule(connection, f"a{number}", "0s") == 1
            await witness.until_ended(number + 1)
    assert ran == [0, 1, 2]
