"""Keys are missing, and changed, while sealed tasks are made and run."""

import time
from pathlib import Path

import pytest

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.sealing.resealing import reseal
from expirebridge.task.key_ring import KeyRing
from tests.faults.scene import LEASE
from tests.faults.stage import ROUNDS, judge, make, recorded_listener, until, until_finished
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.private_keys import K1, K2

TASKS = 300
CHANGED = Fault(
    name="keys are changed while sealed tasks run",
    injected="`reseal`, again and again, while 600 tasks that are sealed with the old and the new "
    "key become due",
    promise="each runs once",
)
MISSING = Fault(
    name="a listener lacks the key of sealed tasks",
    injected="50 tasks are due while the only listener has another key; then it is replaced",
    promise="they wait, with the reason, and run within 15 s of the new listener's start",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_keys_are_changed(binary: Path, folder: Path, history: Writer, round: int) -> None:
    both = f"{K2} {K1}"
    with (
        EmbeddedServer(binary=binary) as server,
        Bridge(server.url, keys=K1) as old,
        Bridge(server.url, keys=both) as new,
        recorded_listener(
            server.url, folder, history, lease=LEASE, env={"EXPIREBRIDGE_KEYS": both}
        ),
    ):
        for bridge in (old, new):
            for delay in (1.0, 2.0, 3.0):
                items = [("recorded.work", [0, 0])] * (TASKS // 3)
                make(bridge, history, items, delay=delay)
        walks = [new._store.run(reseal(KeyRing(both)))]
        while new.count().unfinished:
            time.sleep(0.2)  # an operator's command does not spin
            walks.append(new._store.run(reseal(KeyRing(both))))
        until_finished(new)
        verdict = judge(CHANGED, server, new, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert not verdict.twice
    assert sum(walk.resealed for walk in walks) > 0
    assert not any(walk.not_opened for walk in walks)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_listener_lacks_the_key(binary: Path, folder: Path, history: Writer, round: int) -> None:
    with EmbeddedServer(binary=binary) as server, Bridge(server.url, keys=K1) as bridge:
        with recorded_listener(
            server.url, folder, history, lease=LEASE, env={"EXPIREBRIDGE_KEYS": K2}
        ):
            tasks = make(bridge, history, [("recorded.work", [0, 0])] * 50)
            until(lambda: all(task.error for task in bridge.list(limit=100).tasks))
            listed = bridge.list(limit=100).tasks
        assert {task.id for task in listed} == {task.id for task in tasks}
        assert all("sealed with key k1" in (task.error or "") for task in listed)
        with recorded_listener(
            server.url, folder, history, lease=LEASE, env={"EXPIREBRIDGE_KEYS": K1}
        ):
            until_finished(bridge)
            verdict = judge(MISSING, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert not verdict.twice
