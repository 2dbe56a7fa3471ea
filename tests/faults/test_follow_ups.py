"""Listeners and the server are killed or emptied while handlers return follow-ups.

`FOLLOW_UP_KILLS=200` kills so many listeners in each round.
"""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from expirebridge import Bridge, State, Task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.scene import staged
from tests.faults.stage import ROUNDS, Listeners, judge, kill, make, until_finished
from tests.faults.table import Fault
from tests.kit.checker import Verdict
from tests.kit.history import Forgot, Made, Writer, now
from tests.kit.processes import until_logged

pytestmark = pytest.mark.timeout(1200)

KILLS = int(os.environ.get("FOLLOW_UP_KILLS", "10" if ROUNDS > 1 else "3"))
LEASE = 2.0
SERVER_KILLS = 3
TASKS = 20
"""Between two kills."""
WORK = 0.1
PROMISE = "each task that succeeded has one follow-up, which runs; no other has one"

FOLLOWED = Fault(
    name="a listener is killed while handlers return follow-ups",
    injected=f"`kill -9` of one of three listeners, again and again, with {TASKS} tasks each time, "
    "a tenth of which raise once",
    promise=PROMISE,
)
SERVER = Fault(
    name="the server is killed while handlers return follow-ups",
    injected=f"`kill -9` of the server, and a restart, again and again, with {TASKS} tasks each "
    "time, a tenth of which raise once",
    promise=PROMISE,
)
FLUSHED = Fault(
    name="the database is flushed while handlers return follow-ups",
    injected=f"`FLUSHALL` while {TASKS} handlers run, before {TASKS} more tasks are made",
    promise=f"{PROMISE}: of what was flushed, neither is there",
)


def some(bridge: Bridge, history: Writer) -> list[Task]:
    """Tasks whose handlers return follow-ups; a tenth raise once."""
    items = [("recorded.charge", [WORK, int(number % 10 == 0)]) for number in range(TASKS)]
    return make(bridge, history, items, retry=[0.05, 0.05, 0.05])


def judge_all(
    fault: Fault,
    server: EmbeddedServer,
    bridge: Bridge,
    history: Writer,
    made: list[Task],
    *,
    times: int,
) -> Verdict:
    """The verdict over these tasks, and exactly one follow-up of each."""
    until_finished(bridge)
    follow_ups = [task for task in bridge.list(limit=10 * len(made)).tasks if task.after]
    history.write(*(Made(id=t.id, due=to_ms(t.due), attempts=16, timeout=None) for t in follow_ups))
    verdict = judge(fault, server, bridge, history, lease=LEASE, times=times)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 2 * len(made)}
    assert Counter(task.after for task in follow_ups) == Counter(task.id for task in made)
    return verdict


@pytest.mark.parametrize("round", range(ROUNDS))
def test_each_success_has_one_follow_up_whichever_listener_is_killed(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    made: list[Task] = []
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        alive = [listeners.start(), listeners.start()]
        for _ in range(KILLS):
            alive.append(listeners.start())
            made += some(bridge, history)
            # They are then in their midst, returning, or recorded.
            time.sleep(chance.uniform(0, 2 * WORK))
            kill(alive.pop(0), history)
        listeners.start()
        judge_all(FOLLOWED, server, bridge, history, made, times=KILLS)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_each_success_has_one_follow_up_whenever_the_server_is_killed(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    made: list[Task] = []
    with staged(binary, folder, history, options={"appendfsync": "always"}) as scene:
        for _ in range(SERVER_KILLS):
            made += some(scene.bridge, history)
            time.sleep(chance.uniform(0, 2 * WORK))
            scene.server.kill()
            scene.server.start()
        verdict = judge_all(
            SERVER, scene.server, scene.bridge, history, made, times=SERVER_KILLS
        )  # fmt: skip
    assert set(verdict.twice) == {"retry"}


@pytest.mark.parametrize("round", range(ROUNDS))
def test_no_success_or_follow_up_is_left_alone_when_the_database_is_flushed(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history) as scene:
        some(scene.bridge, history)
        time.sleep(chance.uniform(WORK / 2, 2 * WORK))
        scene.client.flushall()
        history.write(Forgot(at=0, until=now()))
        until_logged("the database was emptied", folder)
        made = some(scene.bridge, history)
        judge_all(FLUSHED, scene.server, scene.bridge, history, made, times=1)
