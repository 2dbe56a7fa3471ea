"""The server is away while tasks become due: they run when it is back, each once."""

import random
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from expirebridge.task.task import to_ms
from tests.faults.scene import Scene, staged
from tests.faults.stage import ROUNDS, until_finished
from tests.faults.table import Fault
from tests.kit.history import Forgot, Made, Writer, now
from tests.kit.processes import until_logged

TASKS = 200
FIRST_DUE, LAST_DUE = 4.0, 5.0
"""Seconds until the first and the last task are due. The server is gone well before that, on a
machine that stands still for a moment, too: a claim whose answer it took along counts as a start.
"""
INJECTED = "`kill -9` of the server before tasks are due, a restart after the last was due"
AOF = Fault(
    name="the server is down across due times, with an append-only file",
    injected=INJECTED,
    promise="every task runs late, once",
)
RDB = Fault(
    name="the server is down across due times, with a snapshot only",
    injected=INJECTED + "; it drops the timers that ended",
    promise="every task of the snapshot runs late, once; what was made after it is lost",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_became_due_without_a_server_runs_late(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    with staged(binary, folder, history) as scene:
        make_tasks(scene)
        scene.server.kill()
        let_due_times_pass(round)
        scene.server.start()
        verdict = scene.judge(AOF)
    assert verdict.sound, str(verdict)
    assert not verdict.twice
    assert verdict.longest_delay > 0


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_a_snapshot_holds_runs_late(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    with staged(binary, folder, history, options={"appendonly": "no"}) as scene:
        make_tasks(scene)
        saved = now()
        scene.client.save()
        # Tasks that nobody ran yet, as claims after the snapshot are forgotten, too.
        make_tasks(scene)
        scene.server.kill()
        let_due_times_pass(round)
        history.write(Forgot(at=saved, until=now()))
        scene.server.start()
        verdict = scene.judge(RDB)
    assert verdict.sound, str(verdict)
    assert verdict.forgotten == TASKS
    assert verdict.states.total() == TASKS


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_outage_is_told_once_and_its_end_too(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    with staged(binary, folder, history) as scene:
        make_tasks(scene)
        until_finished(scene.bridge)
        scene.server.kill()
        let_due_times_pass(round)
        scene.server.start()
        until_logged("everything works again", folder)
        # A busy machine may hold up the event loop, and that is logged, too.
        found = re.findall(r"WARNING +(.*(?:no answer|works again).*)", scene.log())
    assert len(found) == 2, found
    assert "no answer from the server" in found[0]
    [seconds] = re.findall(r"everything works again, after ([\d.]+) s", found[1])
    assert float(seconds) >= LAST_DUE


def make_tasks(scene: Scene) -> None:
    """Make the tasks, their due times evenly spread."""
    begin = datetime.now(UTC) + timedelta(seconds=FIRST_DUE)
    spread = timedelta(seconds=(LAST_DUE - FIRST_DUE) / TASKS)
    items = [
        {"func": "recorded.work", "args": [0, 0], "at": begin + spread * n, "retry": []}
        for n in range(TASKS)
    ]
    tasks = scene.bridge.make_tasks(items)
    scene.history.write(*(Made(id=t.id, due=to_ms(t.due), attempts=1) for t in tasks))


def let_due_times_pass(round: int) -> None:
    """Leave the server away until the last task is due, and a bit longer in each round."""
    time.sleep(LAST_DUE + random.Random(round).uniform(0, 0.5))  # noqa: S311
