"""A listener is killed at the moments that matter most."""

import random
import time
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import (
    ROUNDS,
    Listeners,
    ended_itself,
    judge,
    kill,
    make,
    until_finished,
)
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.processes import Reports

LEASE = 2.0

KILLED = Fault(
    name="a listener is killed while a handler runs",
    injected="`kill -9` of one of three listeners, again and again, with 20 other tasks",
    promise="every task it ran is run again, and none is lost or failed",
)
KILLS = 10 if ROUNDS > 1 else 2
"""In each round."""
HOLD = 5.0
"""Seconds that the handler would run in whose midst its listener is killed."""
OTHERS = 20
WORK = 0.2


@pytest.mark.parametrize("round", range(ROUNDS))
def test_no_task_is_lost_however_often_a_listener_is_killed(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        listeners.start()
        listeners.start()
        for _ in range(KILLS):
            listeners.start()
            make(bridge, history, [("recorded.work", [WORK, 0])] * OTHERS)
            make(bridge, history, [("recorded.bait", [HOLD])])
            victim = listeners.by_pid[reports.next().pid]
            # The others are then at their beginning, in their midst or recorded.
            time.sleep(chance.uniform(0, 1.5 * WORK))
            kill(victim, history)
        listeners.start()
        until_finished(bridge)
    verdict = judge(KILLED, server, bridge, history, lease=LEASE, times=KILLS)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: KILLS * (1 + OTHERS)}
    # A kill counts only if it cut a run short: a start without an end.
    assert len(verdict.recoveries) == KILLS


UNSETTLED = Fault(
    name="a listener is killed between a handler's success and its record",
    injected="`SIGKILL` in the step of the event loop after the handler's return",
    promise="the task runs once more, and that run is recorded",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_succeeded_but_was_not_recorded_runs_again(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        listeners.start()
        listeners.start()
        make(bridge, history, [("misbehaving.return_and_fall", [])])
        dying = reports.next()
        ended_itself(listeners.by_pid[dying.pid], dying, history)
        until_finished(bridge)
    verdict = judge(UNSETTLED, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 1}
    # The handler ended in the millisecond of the kill, or before it.
    assert sum(verdict.twice.values()) == 1
