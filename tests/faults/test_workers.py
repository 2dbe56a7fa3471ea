"""Workers of one parent are killed, and are replaced."""

import random
import re
import signal
import time
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import (
    ROUNDS,
    judge,
    kill_worker,
    make,
    recorded_workers,
    until_finished,
)
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.processes import Reports, children_of, log_of, until_ended, until_logged

LEASE = 2.0
WORKERS = 3

KILLED = Fault(
    name="a worker is killed while a handler runs",
    injected="`kill -9` of one of three workers of a parent, again and again, with 20 other tasks",
    promise="it is restarted, every task it ran is run again, and none is lost or failed",
)
KILLS = 10 if ROUNDS > 1 else 4
"""In each round."""
HOLD = 5.0
"""Seconds that the handler would run in whose midst its worker is killed."""
OTHERS = 20
WORK = 0.2


@pytest.mark.parametrize("round", range(ROUNDS))
def test_no_task_is_lost_however_often_a_worker_is_killed(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with recorded_workers(server.url, folder, history, WORKERS, lease=LEASE) as parent:
        for _ in range(KILLS):
            make(bridge, history, [("recorded.work", [WORK, 0])] * OTHERS)
            make(bridge, history, [("recorded.bait", [HOLD])])
            victim = reports.next().pid
            # The others are then at their beginning, in their midst or recorded.
            time.sleep(chance.uniform(0, 1.5 * WORK))
            kill_worker(victim, history)
        until_logged("is ready\n", folder, times=WORKERS + KILLS, process=parent)
        until_finished(bridge)
        assert len(children_of(parent.pid)) == WORKERS
        with until_ended(children_of(parent.pid)):
            parent.send_signal(signal.SIGTERM)
            assert parent.wait(30) == 0
    verdict = judge(KILLED, server, bridge, history, lease=LEASE, times=KILLS)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: KILLS * (1 + OTHERS)}
    # A kill counts only if it cut a run short: a start without an end.
    assert len(verdict.recoveries) == KILLS


REPLACED = Fault(
    name="workers are replaced one by one",
    injected="`SIGHUP` to the parent of three workers, with tasks due all the time",
    promise="nothing is lost or run twice, and two workers are ready at any time",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_workers_are_replaced_under_load(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with recorded_workers(server.url, folder, history, WORKERS, lease=LEASE) as parent:
        before = children_of(parent.pid)
        with Stream(server.url, history, chance=chance):
            parent.send_signal(signal.SIGHUP)
            until_logged("all workers are replaced", folder, process=parent)
        after = children_of(parent.pid)
        until_finished(bridge)
    assert len(after) == WORKERS
    assert not set(before) & set(after)
    assert min(ready_in(log_of(folder))) == WORKERS - 1
    verdict = judge(REPLACED, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert not verdict.twice.total() - verdict.twice["retry"] - verdict.twice["timeout"]


def ready_in(log: str) -> list[int]:
    """How many workers were ready, after each line that changed it, once all had been."""
    changes = re.findall(r"worker \d is (ready)|worker \d: (stopping)", log)
    numbers, ready = [], 0
    for is_ready, _ in changes:
        ready += 1 if is_ready else -1
        numbers.append(ready)
    return numbers[numbers.index(WORKERS) :]
