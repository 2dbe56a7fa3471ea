"""Any sequence of operations leaves lanes as the tasks in them say, and no free slot unused."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from expirebridge.embedded.server import EmbeddedServer
from tests.machine.limits_machine import machine_for

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "10"))
"""Sequences of operations; `make machine` sets more."""
LONG = EXAMPLES >= 1000


def run_machine(server: EmbeddedServer, *, examples: int) -> None:
    chosen = settings(
        max_examples=examples, stateful_step_count=30, deadline=None, report_multiple_bugs=False,
        # To shrink takes minutes.
        phases={Phase.generate} | ({Phase.shrink} if LONG else set()),
        derandomize=False, print_blob=True,
        # The machine draws little, but talks to a server.
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    run_state_machine_as_test(machine_for(server.url), settings=chosen)


@pytest.mark.timeout(3600)
def test_lanes_agree_with_their_tasks(server: EmbeddedServer) -> None:
    run_machine(server, examples=EXAMPLES)
