"""Any sequence of operations leaves the numbers of a group right, and its follow-up is due once."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from expirebridge.embedded.server import EmbeddedServer
from tests.machine.groups_machine import machine_for
from tests.machine.planting import has_one_place, planted

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "15"))
"""Sequences of operations; `make machine` sets more."""
LONG = EXAMPLES >= 1000


def run_machine(server: EmbeddedServer, *, examples: int, shrink: bool = LONG) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, report_multiple_bugs=False,
        # To shrink takes minutes.
        phases={Phase.generate} | ({Phase.shrink} if shrink else set()),
        derandomize=False, print_blob=True,
        # The machine draws little, but talks to a server.
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    run_state_machine_as_test(machine_for(server.url), settings=chosen)


@pytest.mark.timeout(3600)
def test_a_group_agrees_with_its_members(server: EmbeddedServer) -> None:
    run_machine(server, examples=EXAMPLES)


# For each bug: the file, what stands in it, and what is put in its place.
BUGS = {
    "a follow-up that runs again": (
        "include/members", "if not record or record.state ~= 'paused' then", "if not record then"
    ),
    "a second end": (
        "include/members", "left == 0 and group[2] and not group[3]", "left == 0 and group[2]"
    ),
    "a follow-up before the group is closed": (
        "include/members", "left == 0 and group[2] and not group[3]", "left == 0 and not group[3]"
    ),
    "a follow-up before failed members have run again": (
        "include/members", "else is = MEMBER.FAILED end", "else is = MEMBER.ENDED end"
    ),
    "no follow-up, if members end": (
        "include/members",
        "elseif left == 0 and group[2] and not group[3] then", "elseif false then",
    ),
    "no follow-up, if the group is closed last": (
        "close_group", "if group[2] == '0' and not group[3] then", "if false then"
    ),
    "a follow-up although members lack": (
        "close_group", "if missing > 0 then return -missing end", ""
    ),
    "a follow-up of a cancelled group": (
        "include/members",
        "local record = paused_follow_up(known[1])\n  if record then", "if false then"
    ),
    "a count that is not taken back": (
        "include/members", "FINISHED[before] or FINISHED[state]", "FINISHED[state]"
    ),
    "a member that has ended is made again": (
        "include/new_members", "if was == MEMBER.ENDED then", "if false then"
    ),
    "a make that knows no resend": (
        "include/new_members", "if not answered(old, nonce) then", "if true then"
    ),
    "a purged member that is waited for": (
        "purge", "for i = 1, #on_give_up do on_give_up[i](id) end", ""
    ),
    "a failed member that a cancelled group waits for": (
        "cancel_group", "if bits == MEMBER.FAILED then give_up(id) end", ""
    ),
    "an interrupted cancel that skips a member": (
        "cancel_group", "'cancelled_to', to)", "'cancelled_to', to + 1)"
    ),
    "a member without its record that is waited for": (
        "include/state_sets",
        "on_move[i](id, { state = state }, state, 'cancelled', now)", "local _ = i",
    ),
}  # fmt: skip
# To find the others takes up to a minute each: `make machine` does.
SOUGHT = BUGS if LONG else ("a count that is not taken back",)


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_has_its_place(bug: str) -> None:
    assert has_one_place(BUGS[bug])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", SOUGHT)
def test_the_machine_finds_a_planted_bug(bug: str) -> None:
    with planted(BUGS[bug]) as server, pytest.raises(AssertionError):
        run_machine(server, examples=1000, shrink=False)
