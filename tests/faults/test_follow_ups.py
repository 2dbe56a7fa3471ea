"""Listeners and the server are killed while handlers return follow-ups.

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
from expirebridge.model.task import to_ms
from tests.faults.stage import ROUNDS, Listeners, judge, kill, make, until_finished
from tests.faults.table import Fault
from tests.kit.history import Made, Writer

pytestmark = pytest.mark.timeout(1200)

KILLS = int(os.environ.get("FOLLOW_UP_KILLS", "10" if ROUNDS > 1 else "3"))
LEASE = 1.0
TASKS = 20
"""Between two kills."""
WORK = 0.1

FOLLOWED = Fault(
    name="a listener is killed while handlers return follow-ups",
    injected=f"`kill -9` of one of three listeners, again and again, with {TASKS} tasks each time, "
    "a tenth of which raise once",
    promise="each task that succeeded has one follow-up, which runs; no other has one",
)


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
            items = [("recorded.charge", [WORK, int(number % 10 == 0)]) for number in range(TASKS)]
            made += make(bridge, history, items, retry=[0.05, 0.05, 0.05])
            # They are then in their midst, returning, or recorded.
            time.sleep(chance.uniform(0, 2 * WORK))
            kill(alive.pop(0), history)
        listeners.start()
        until_finished(bridge)
    follow_ups = [task for task in bridge.list(limit=10 * len(made)).tasks if task.after]
    history.write(*(Made(id=t.id, due=to_ms(t.due), attempts=16, timeout=None) for t in follow_ups))
    verdict = judge(FOLLOWED, server, bridge, history, lease=LEASE, times=KILLS)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 2 * len(made)}
    assert Counter(task.after for task in follow_ups) == Counter(task.id for task in made)
