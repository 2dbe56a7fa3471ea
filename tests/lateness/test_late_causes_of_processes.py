"""Why tasks began late, after listener processes were killed."""

import time
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, LateCause, Task
from tests.kit.invoked import run
from tests.kit.processes import Reports, listener
from tests.kit.steps import PREFIX, age, server_ms

BLOCKS_ONCE = """
from pathlib import Path

HAS_RUN = Path(__file__).with_name("has_run")

def block_once():
    if HAS_RUN.exists():
        report("again")
    else:
        HAS_RUN.touch()
        block()
"""


def settled(bridge: Bridge, id: str) -> Task:
    """The task once its end is recorded; the test's own timeout is the limit."""
    while (task := bridge.get(id)) is None or not task.state.finished:
        time.sleep(0.01)
    return task


def test_after_a_kill_nobody_listened_until_the_next_listener_began(
    url: str, bridge: Bridge, client: redis.Redis, folder: Path, reports: Reports
) -> None:
    with listener(url, folder) as killed:
        killed.kill()
        killed.wait()
    bridge.make_task("acts.note", [], 0, id="a")
    client.hset(f"{PREFIX}:task:a", "made", server_ms(client) // 1000 - 9)
    age(client, "pending", "a", 1)
    with listener(url, folder):
        assert reports.next().id == "a"
        task = settled(bridge, "a")
    assert task.late is not None
    assert task.late.cause is LateCause.NOBODY
    assert "it began " in run("why", "a", "--url", url).stdout
    assert "nobody listened" in run("show", "a", "--url", url).stdout


@pytest.mark.rest
def test_what_a_killed_listener_ran_is_taken_over(
    url: str, bridge: Bridge, client: redis.Redis, folder: Path, reports: Reports
) -> None:
    with (folder / "acts.py").open("a") as handlers:
        handlers.write(BLOCKS_ONCE)
    bridge.make_task("acts.block_once", [], 0, id="a")
    with listener(url, folder) as killed:
        assert reports.next().word == "started"
        with listener(url, folder):
            killed.kill()
            killed.wait()
            client.hincrby(f"{PREFIX}:task:a", "made", -60)
            client.hincrby(f"{PREFIX}:task:a", "due", -60_000)
            age(client, "running", "a", 1)
            assert reports.next().word == "again"
            task = settled(bridge, "a")
    assert task.late is not None
    assert task.late.cause is LateCause.TAKEN_OVER
