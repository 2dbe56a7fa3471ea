"""A steady stream of tasks, and a listener killed in its midst: each task is accounted for."""

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, Change
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import ROUNDS, Listeners, judge, kill, until_finished
from tests.faults.table import Fault
from tests.kit.history import Cancelled, Made, Writer
from tests.kit.processes import Reports

TASKS = 2000
SECONDS = 4.0
LEAD = 1.0
"""Seconds in which the stream is made before it begins."""
LEASE = 2.0
BAIT = 0.1
"""Seconds that the handler runs in whose midst its listener is killed."""
RETRY = [0.2]

# What becomes of each hundred tasks.
CANCELLED = {99}
RAISES = {20: 1, 70: 1, 45: 2}
BAITED = 50

INJECTED = "`kill -9` of a listener in a stream of 2,000 tasks, while a handler runs"
RESTARTED = Fault(
    name="a listener is killed under load, and restarted",
    injected=INJECTED,
    promise="its tasks run again one lease after the new one finds that no heartbeat was sent",
)
SURVIVED = Fault(
    name="a listener is killed under load, and another lives",
    injected=INJECTED,
    promise="its tasks run again within a lease and a second",
)


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("heirs", [0, 1], ids=["restarted", "survived"])
def test_a_listener_is_killed_in_a_stream_of_tasks(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    heirs: int,
    round: int,
) -> None:
    """Without an heir that lives on, the listener is started again."""
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        for _ in range(1 + heirs):
            listeners.start()
        make_stream(bridge, history, chance)
        victim = listeners.by_pid[reports.next().pid]
        # The moment of the kill is what differs from round to round.
        time.sleep(chance.uniform(0, BAIT / 2))
        kill(victim, history)
        if not heirs:
            listeners.start()
        until_finished(bridge)
    fault = SURVIVED if heirs else RESTARTED
    verdict = judge(fault, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.recoveries, "the kill hit no running handler"


def make_stream(bridge: Bridge, history: Writer, chance: random.Random) -> None:
    """Make the tasks, one of them the bait, and cancel a few."""
    begin = datetime.now(UTC) + timedelta(seconds=LEAD)
    items: list[dict[str, Any]] = [
        {
            "func": "recorded.work",
            "args": [chance.uniform(0.005, 0.05), RAISES.get(n % 100, 0)],
            "at": begin + timedelta(seconds=SECONDS * n / TASKS),
            "retry": RETRY,
        }
        for n in range(TASKS)
    ]
    hundreds = TASKS // 100
    bait = 100 * chance.randrange(hundreds // 4, hundreds * 3 // 4) + BAITED
    items[bait] |= {"func": "recorded.bait", "args": [BAIT]}
    tasks = bridge.make_tasks(items)
    attempts = len(RETRY) + 1
    history.write(*(Made(id=t.id, due=to_ms(t.due), attempts=attempts) for t in tasks))
    for n, task in enumerate(tasks):
        if n % 100 in CANCELLED:
            answer = bridge.cancel(task.id)
            if answer in {Change.CANCELLED, Change.RUNNING}:
                history.write(Cancelled(id=task.id, answer=answer))
