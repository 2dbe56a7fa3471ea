"""The server deletes keys because its memory is full."""

import time
from pathlib import Path

import pytest
import redis

from tests.faults.scene import Scene, staged
from tests.faults.stage import ROUNDS, make
from tests.faults.table import Fault
from tests.kit.history import Forgot, Started, Writer, now, read
from tests.kit.patience import PATIENCE
from tests.kit.processes import until_logged

TASKS = 1000
SOON = 5.0
"""Seconds until they are due: time to make them, and for the listener to look at its server."""
IDLE = 2.0
"""Seconds for which nobody touches a record; what a listener works with is touched each second."""
ALARM = "the server will delete tasks when memory runs out"
MISSED = "its record is missing or broken"
LOW = "`maxmemory` below what the server uses while 1,000 tasks wait, and "
KEYS = Fault(
    name="trigger keys are evicted",
    injected=f"{LOW}`volatile-lru`",
    promise="their tasks run on time, by their records; an alarm is raised once",
)
RECORDS = Fault(
    name="records are evicted",
    injected=f"{LOW}`allkeys-lru`",
    promise="their tasks are lost, each is named in the log, and no other is; an alarm is raised "
    "once",
)


def evict(scene: Scene, policy: str, size: int) -> None:
    """Leave the server so many bytes less than it uses until it has deleted keys.

    How much it uses says nothing of that: buffers, of which some do not count, come and go.
    """
    used = int(scene.client.info("memory")["used_memory"])
    scene.client.config_set("maxmemory-policy", policy)
    scene.client.config_set("maxmemory", used - size)
    deadline = time.monotonic() + PATIENCE
    while not scene.client.info("stats")["evicted_keys"]:
        assert time.monotonic() < deadline, "the server had no keys to delete"
    until_logged(ALARM, scene.folder)
    # What is left now is to stay.
    scene.client.config_set("maxmemory", 0)


def count(client: redis.Redis, pattern: str) -> int:
    return sum(1 for _ in client.scan_iter(pattern, count=1000))


@pytest.mark.parametrize("round", range(ROUNDS))
def test_trigger_keys_are_evicted(binary: Path, folder: Path, history: Writer, round: int) -> None:
    with staged(binary, folder, history) as scene:
        make(scene.bridge, history, [("recorded.work", [0, 0])] * TASKS, delay=SOON)
        evict(scene, "volatile-lru", 50_000)
        assert count(scene.client, "*:[?]*") < TASKS
        assert count(scene.client, "expirebridge:task:*") == TASKS
        verdict = scene.judge(KEYS)
    assert verdict.sound, str(verdict)
    assert not verdict.twice
    assert scene.log().count(ALARM) == 1


def ids_left(client: redis.Redis) -> set[str]:
    """Tasks of which a record is left, or a key: adopted, as another client's would be."""
    records = {name.split(b":")[2] for name in client.scan_iter("expirebridge:task:*", count=1000)}
    keys = {name.partition(b":?")[0] for name in client.scan_iter("*:[?]*", count=1000)}
    return {id.decode() for id in records | keys}


def until_begun(ids: set[str], history: Writer) -> None:
    """Wait until each has begun: while nothing is pending, some may not be adopted yet."""
    deadline = time.monotonic() + PATIENCE
    missing = ids
    while missing:
        assert time.monotonic() < deadline, f"{len(missing)} of {len(ids)} have not begun"
        time.sleep(0.1)
        begun = {event.id for event in read(history.folder) if isinstance(event, Started)}
        missing = ids - begun


@pytest.mark.skipif(ROUNDS == 1, reason="for want of time, in `make faults` only")
@pytest.mark.parametrize("round", range(ROUNDS))
def test_records_are_evicted(binary: Path, folder: Path, history: Writer, round: int) -> None:
    with staged(binary, folder, history) as scene:
        make(scene.bridge, history, [("recorded.work", [0, 0])] * TASKS, delay=IDLE + SOON)
        time.sleep(IDLE)
        evict(scene, "allkeys-lru", 100_000)
        left = count(scene.client, "expirebridge:task:*")
        known = ids_left(scene.client)
        history.write(Forgot(at=0, until=now()))
        until_begun(known, history)
        verdict = scene.judge(RECORDS)
    assert verdict.sound, str(verdict)
    assert verdict.forgotten == TASKS - len(known) > 0
    log = scene.log()
    assert log.count(ALARM) == 1
    assert verdict.forgotten <= log.count(MISSED) <= TASKS - left
