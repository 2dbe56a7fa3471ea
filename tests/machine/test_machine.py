"""Any sequence of operations keeps the invariant and the promise, and does what the table says."""

import os
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from expirebridge.embedded.server import EmbeddedServer
from tests.machine.machine import COLUMNS, ROWS, machine_for
from tests.machine.planting import has_one_place, planted

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "100"))
"""Sequences of operations, at least; `make machine` sets more."""
ROUNDS = 4
"""In so many parts they run: what one has met, the next need not begin with."""
LONG = EXAMPLES >= 1000

Hits = Counter[tuple[str, str]]

CELLS = [(row, state) for row in ROWS for state in COLUMNS]


def unmet(hits: Hits) -> list[tuple[str, str]]:
    return [cell for cell in CELLS if not hits[cell]]


def run_machine(server: EmbeddedServer, hits: Hits, *, examples: int, shrink: bool = True) -> None:
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
    machine = machine_for(server.url, hits, unmet(hits) or CELLS)
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.timeout(900)
def test_any_sequence_of_operations_keeps_the_promise(
    server: EmbeddedServer, print_later: Callable[[str], None]
) -> None:
    """Each cell of the table in docs/reference/states.md is met, or there are more rounds."""
    hits: Hits = Counter()
    for number in range(5 * ROUNDS):
        if number >= ROUNDS and not unmet(hits):
            break
        run_machine(server, hits, examples=EXAMPLES // ROUNDS)
    print_later(table_of(hits))
    assert unmet(hits) == []


def table_of(hits: Hits) -> str:
    lines = [f"{'cells met':<18}" + "".join(f"{state:>10}" for state in COLUMNS)]
    lines += [
        f"{row:<18}" + "".join(f"{hits[row, state]:>10}" for state in COLUMNS) for row in ROWS
    ]
    return "\n".join(lines)


# For each bug: the file, what stands in it, and what is put in its place.
BUGS = {
    "no fence": (
        "include/settlement",
        "record.state == 'running' and record.token == token", "record.state == 'running'",
    ),
    "no sweep": ("sweep", "if not is_long_ago(last_beat(), lease) then", "if false then"),
    "a claim before due, where the timer is gone": (
        "claim", "state_set('pending'), '-inf', now,", "state_set('pending'), '-inf', '+inf',"
    ),
    "a dropped put-off": (
        "include/claims", "not none_has_timer and read_timer(id, record)", "nil"
    ),
    "a dropped re-arm": (
        "include/rearm", "if not timer and not record.rearm then", "if true then"
    ),
    "a dropped replacement": (
        "include/rearm", "if record.next then\n    become", "if false then\n    become"
    ),
    "a make that knows no resend": (
        "include/making", "if before then return", "if false then return"
    ),
    "a follow-up of a run that is over": (
        "settle_then", "if item[5] and is_claimed(item[5], item[2]) then", "if item[5] then"
    ),
    "a follow-up that forgets what its task is to do next": (
        "settle_then", "if id == item[1] then item = read_item(at) end", ""
    ),
    "no follow-up": (
        "settle_then", "local code, _, state = make_one(id, new, '')", "local code, state"
    ),
    "a claim that knows no resend": ("claim", "if resend then find_claimed() end", ""),
}  # fmt: skip


# To find the others takes minutes each: `make machine` does.
SOUGHT = BUGS if LONG else ("a dropped put-off",)


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_has_its_place(bug: str) -> None:
    assert has_one_place(BUGS[bug])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", SOUGHT)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    with planted(BUGS[bug]) as server, pytest.raises((AssertionError, KeyError)):
        run_machine(server, Counter(), examples=1000, shrink=False)
