"""Any sequence of operations runs one of two functions, whatever else is done to the task."""

import os
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from expirebridge import Change
from expirebridge.embedded.server import EmbeddedServer
from tests.machine import machine, signal_lanes_machine
from tests.machine.machine import COLUMNS
from tests.machine.planting import has_one_place, planted
from tests.machine.signals_machine import ANSWERS, ROWS, machine_for

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "100"))
"""Sequences of operations, at least; `make machine` sets more."""
ROUNDS = 4
"""In so many parts they run: what one has met, the next need not begin with."""
LONG = EXAMPLES >= 1000

Hits = Counter[tuple[str, str]]

CELLS = [(row, state) for row in ROWS for state in COLUMNS]
OTHER_CELLS = [(row, state) for row in machine.ROWS for state in COLUMNS]


LANE_EXAMPLES = max(EXAMPLES // 10, 10)


def unmet(hits: Hits) -> list[tuple[str, str]]:
    return [cell for cell in CELLS if not hits[cell]]


def run_machine(
    server: EmbeddedServer,
    hits: Hits,
    answers: Counter[Change],
    *,
    examples: int,
    shrink: bool = True,
) -> None:
    """One round: each life in it begins with a cell that was not met before, if there is one."""
    phases = {Phase.reuse, Phase.generate} | ({Phase.shrink} if shrink else set())
    chosen = settings(
        max_examples=examples, stateful_step_count=50, deadline=None, report_multiple_bugs=False,
        phases=phases,
        # Under CI, hypothesis repeats itself by default: each round would be the same.
        derandomize=False, print_blob=True,
        # The machine draws little, but talks to a server.
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    aims = unmet(hits) or [*CELLS, *OTHER_CELLS]
    run_state_machine_as_test(machine_for(server.url, hits, aims, answers), settings=chosen)


@pytest.mark.timeout(900)
def test_of_two_functions_one_runs(
    server: EmbeddedServer, print_later: Callable[[str], None]
) -> None:
    """A signal meets each state of the table and gets each answer, or there are more rounds."""
    hits, answers = Hits(), Counter[Change]()
    for number in range(5 * ROUNDS):
        if number >= ROUNDS and not unmet(hits) and {*answers} == {*ANSWERS}:
            break
        run_machine(server, hits, answers, examples=EXAMPLES // ROUNDS)
    print_later(", ".join(f"{answer} {answers[answer]}" for answer in ANSWERS))
    assert unmet(hits) == []
    assert {*answers} == {*ANSWERS}


def run_lanes_machine(server: EmbeddedServer, *, examples: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, report_multiple_bugs=False,
        # To shrink takes minutes.
        phases={Phase.generate} | ({Phase.shrink} if LONG else set()),
        derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    run_state_machine_as_test(signal_lanes_machine.machine_for(server.url), settings=chosen)


@pytest.mark.timeout(3600)
def test_what_is_signalled_leaves_its_lanes(server: EmbeddedServer) -> None:
    run_lanes_machine(server, examples=LANE_EXAMPLES)


# For each bug: the file, what stands in it, and what is put in its place.
BUGS = {
    "both run, of what had begun, and is to run now": (
        "signal", "if passed then return BEGUN end",
        "record.on_signal = record.on_signal or record.passed",
    ),
    "none runs": (
        "include/deciding", "wait_until(id, new, now)", "wait_until(id, new, WHILE_PAUSED)"
    ),
    "a late signal after what had ended was told to run now": (
        "include/restarting", "if not on_signal then return end", "if true then return end"
    ),
    "a resend that is another signal": (
        "signal", "return known and sender == by and", "return false and"
    ),
    "the old key is adopted": (
        "include/lost_keys", "if not lost or trigger_key(id, { call = lost }) ~= name then",
        "if true then",
    ),
    "the old key stays": (
        "include/deciding", "  redis.call('DEL', trigger_key(id, record))\nend", "end"
    ),
    "a successor that no signal reaches": (
        "include/deciding", "return record.next and not record.next.ended and record.next",
        "return nil",
    ),
    "a paused one that a signal resumes": (
        "include/deciding", "if new.state ~= 'paused' then wait_until", "if true then wait_until"
    ),
    "what was decided is put off": (
        "include/extending", "if lost ~= item.call or", "if true or"
    ),
    "the lane is not left": (
        "include/lane_edits", "local function leave_for_others(id, record, new) leave_former",
        "local function leave_for_others(id, record, new) if true then return end leave_former",
    ),
}  # fmt: skip


# To find the others takes minutes each: `make machine` does.
SOUGHT = BUGS if LONG else ("the old key is adopted",)


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_has_its_place(bug: str) -> None:
    assert has_one_place(BUGS[bug])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", SOUGHT)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    with planted(BUGS[bug]) as server, pytest.raises((AssertionError, KeyError)):
        run_machine(server, Hits(), Counter(), examples=1000, shrink=False)
