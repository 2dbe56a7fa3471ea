"""Any sequence of operations leaves rates exact in every window, and no lane stands still."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from expirebridge.embedded.server import EmbeddedServer
from tests.machine.budgets_machine import machine_for
from tests.machine.planting import has_one_place, planted

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "10"))
"""Sequences of operations; `make machine` sets more."""
LONG = EXAMPLES >= 1000


def run_machine(server: EmbeddedServer, *, examples: int, shrink: bool = LONG) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, report_multiple_bugs=False,
        print_blob=True, phases={Phase.generate} | ({Phase.shrink} if shrink else set()),
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    run_state_machine_as_test(machine_for(server.url), settings=chosen)


@pytest.mark.timeout(3600)
def test_rates_are_exact_and_no_lane_stands_still(server: EmbeddedServer) -> None:
    run_machine(server, examples=EXAMPLES)


CHARGE = "charge(rate.lane, record, rate.takes), rate.takes"
# For each bug: the file, what stands in it, and what is put in its place.
BUGS = {
    "a turn that is dropped when the next lane lacks": (
        "include/admission", "return lane, taken, rates end", "return lane, taken, NONE end"
    ),
    "a reservation that is not kept": (
        "include/admission", "taken[#taken + 1] = rate.lane", ""
    ),
    "reservations that nobody counts": (
        "include/limits", "if not limit.of then return count_slots(lane) * limit.interval end",
        "do return 0 end"
    ),
    "a charge that is given back although another was charged since": (
        "include/settling", "if arrival and tonumber(arrival) == rate_score(lane) then",
        "if arrival then",
    ),
    "a start that is charged in one rate only": (
        "include/admission", CHARGE, f"i > 1 and '1' or {CHARGE}"
    ),
    "a start that is charged twice": (
        "include/admission", CHARGE, f"{CHARGE.removesuffix(', rate.takes')} and {CHARGE}"
    ),
    "a lane that is not looked at again while its members wait elsewhere": (
        "include/limits", "if counted.granted[lane] then return true end", "do return true end"
    ),
    "a start that is brought before what others have reserved": (
        "include/lane_repair", "reserved_in(lane, limit) - takes", "0"
    ),
    "one that is not in a line, and does not look whether others are": (
        "include/admission", "or count_slots(lane) == 0 and count_queue(lane) == 0", "or true"
    ),
    "a turn that is paid for twice": (
        "include/admission", "paid and tonumber(paid) == rate_score(lane) and", "paid == 0 and"
    ),
    "spending that is charged again when it is told late": (
        "include/settling", "== token then return end", "== '' then return end"
    ),
    "a cost of nothing that starts while the lane rests": (
        "include/limits", "if takes < limit.interval and rests(lane) then", "if false then"
    ),
}  # fmt: skip
# To find the others takes up to a minute each: `make machine` does.
SOUGHT = (
    BUGS if LONG else ("a start that is charged in one rate only", "a start that is charged twice")
)


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_has_its_place(bug: str) -> None:
    assert has_one_place(BUGS[bug])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", SOUGHT)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    with planted(BUGS[bug]) as server, pytest.raises(AssertionError):
        run_machine(server, examples=1000, shrink=False)
