"""The table in docs/reference/states.md of what a row can ask for, cell by cell."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final

import pytest
import redis
from sqlalchemy import Engine

from expirebridge import Bridge
from expirebridge.ledger import Tables
from expirebridge.ledger.relay import finish
from expirebridge.store.client import Store
from tests.kit.ledgers import LedgerHarness
from tests.kit.row_states import RUNNING, STATES, Stage

PAGE: Final = Path(__file__).parents[2] / "docs/reference/states.md"
WISHES: Final = ("cancel", "reschedule", "replace", "make", "erase")
# What a task is at rest: its state, its arguments, and in how many hours it is due.
LEFT_ALONE: Final = dict(
    zip(
        STATES,
        (
            "pending [1] 3", "pending [1] 3", "succeeded [1]", "pending [1] 2", "pending [7] 2",
            "succeeded [1]", "succeeded [1]", "succeeded [1]", "pending [1] 0", "pending [1] 0",
        ),
        strict=True,
    )
)  # fmt: skip
"""What becomes of it if nothing is asked; a handler that runs succeeds."""


@pytest.fixture
def stage(harness: LedgerHarness, bridge: Bridge, client: redis.Redis) -> Stage:
    return Stage(harness, bridge, client)


def cells() -> dict[tuple[str, str], str]:
    """The table of the page: for each state and each wish, what becomes of it."""
    part = PAGE.read_text().split("## What a row can ask for")[1].split("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in part.splitlines()
        if line.startswith("|")
    ]
    head, _, *rows = lines[: len(STATES) + 2]
    assert [re.sub("`", "", word) for word in head[1:]] == list(WISHES)
    assert [row[0] for row in rows] == list(STATES)
    return {
        (row[0], wish): cell for row in rows for wish, cell in zip(WISHES, row[1:], strict=True)
    }


CELLS: Final = cells()
A_FEW: Final = [
    state if state in {"waits", "runs", "ended; written back"}
    else pytest.param(state, marks=pytest.mark.rest)
    for state in STATES
]  # fmt: skip
"""Those that go through different code; the others take the same ways."""
A_RUN: Final = [
    state if state == "runs" else pytest.param(state, marks=pytest.mark.rest) for state in STATES
]
"""The same with one, in which most can go wrong."""
MEANING: Final[dict[str, tuple[object, Callable[[str], str]]]] = {
    "cancelled": (1, lambda before: re.sub(r"\w+ (\S+).*", r"cancelled \1", before)),
    "its last attempt": (1, lambda _: "succeeded [1]"),
    "as it ended": (1, lambda _: "succeeded [1]"),
    "moved": (1, lambda before: re.sub(r"\w+ (\S+).*", r"pending \1 1", before)),
    "restarted": (1, lambda _: "pending [1] 1"),
    "new task": (1, lambda _: "pending [2] 1"),
    "TaskExists": ("TaskExists", lambda before: before),
    "0": (0, lambda before: before),
    "erased": (1, lambda _: 'succeeded {"erased":true}'),
}
"""What each word of the table means: what is answered, and what the task is once at rest."""


@pytest.mark.parametrize("state", STATES)
def test_a_wish_is_done_whatever_its_task_is(stage: Stage, state: str) -> None:
    stage.bring(state, *WISHES)
    answers = {wish: stage.ask(wish, wish)[0] for wish in WISHES}
    stage.harness.settle_down()
    if state in RUNNING:
        for wish in WISHES:
            stage.end(wish, "succeeded")  # it ran until now, and no other run began
    stage.harness.settle_down()
    for wish in WISHES:
        answer, become = MEANING[CELLS[state, wish]]
        assert (answers[wish], stage.look(wish)) == (answer, become(LEFT_ALONE[state])), wish


@pytest.mark.parametrize("state", A_FEW)
def test_it_is_done_as_well_while_another_one_waits_to_be_carried(stage: Stage, state: str) -> None:
    """The record has followed an older revision: the row was moved, to two hours from now."""
    stage.bring(state, *WISHES)
    before, moved, answers = LEFT_ALONE[state], 0, {}
    for wish in WISHES:
        with stage.harness.engine.begin() as session:
            moved = stage.ledger.reschedule(session, wish, "2h")
        answers[wish] = stage.ask(wish, wish)[0]
        if state in RUNNING:
            stage.end(wish, "succeeded")  # before anything is carried
    if moved:
        before = re.sub(r"\w+ (\S+).*", r"pending \1 2", before)
    stage.harness.settle_down()
    for wish in WISHES:
        cell = CELLS[state, wish]
        if (state, wish) == ("runs, and is to run again", "cancel"):
            cell = "cancelled"  # what it was to run again is what waits by then
        answer, become = MEANING[cell]
        assert (answers[wish], stage.look(wish)) == (answer, become(before)), wish


@pytest.mark.parametrize("wish", WISHES)
def test_a_run_that_is_to_be_retried_ends_as_its_row_asks(stage: Stage, wish: str) -> None:
    stage.bring("runs", "a")
    stage.ask("a", wish)
    stage.harness.settle_down()
    stage.end("a", "retry")
    stage.harness.settle_down()
    expected = {
        "cancel": "cancelled [1]",
        "reschedule": "pending [1] 1",
        "replace": "pending [2] 1",
    }
    assert stage.look("a") == expected.get(wish, "pending [1] 2")


@pytest.mark.one_database
@pytest.mark.parametrize("state", A_RUN)
def test_two_wishes_in_one_transaction_do_what_two_transactions_do(
    stage: Stage, state: str
) -> None:
    pairs = list(product(WISHES, WISHES))
    ids = [f"{one}-{other}" for one, other in pairs]
    stage.bring(state, *ids, *(f"{id}-apart" for id in ids))
    for id, pair in zip(ids, pairs, strict=True):
        together = stage.ask(id, *pair)
        apart = stage.ask(f"{id}-apart", pair[0])
        finish(stage.harness.relay().carry())
        apart += stage.ask(f"{id}-apart", pair[1])
        assert together == apart, id
    stage.harness.settle_down()
    if state in RUNNING:
        for id in ids:
            stage.end(id, "succeeded")
            stage.end(f"{id}-apart", "succeeded")
        stage.harness.settle_down()
    for id in ids:
        apart_it_is = stage.look(f"{id}-apart")
        if (state, id) == ("ended", "reschedule-cancel"):
            assert apart_it_is == "cancelled [1]"  # it waited to begin anew
            apart_it_is = "succeeded [1]"
        assert stage.look(id) == apart_it_is, id


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store) -> LedgerHarness:
    return LedgerHarness(engine, made, store)
