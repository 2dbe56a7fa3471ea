"""The network between a listener and the server goes away, and does not say so."""

import random
import time
from pathlib import Path

import pytest

from tests.faults.link import Link
from tests.faults.scene import LEASE, staged_behind
from tests.faults.stage import ROUNDS, Listeners
from tests.faults.table import Fault
from tests.kit.history import CutOff, Writer, now

AWAY = 3.0
LONG_AWAY = 30.0
"""Seconds of a partition; the first of many rounds has the long one."""
BAIT, LONG_BAIT = 2.5, 5.0
"""Seconds that a task runs that was begun before; the long one is cut off although the test itself
may be held up by a busy machine before it begins the partition."""
PARTITION = "nothing passes between a listener and the server for 3 s, once 30 s; then all arrives"
ALONE = Fault(
    name="a partition, and no other listener",
    injected=PARTITION,
    promise="tasks wait, and run when it is over; what ran is recorded",
)
SURVIVED = Fault(
    name="a partition, and another listener",
    injected=PARTITION,
    promise="the other listener runs its tasks within a lease and a second",
)
HALF_OPEN = Fault(
    name="half-open connections",
    injected="every connection of a listener stays open, and carries nothing any longer",
    promise="it gives them up by itself (after 5 s, or half a lease if that is shorter, but not "
    "under a second), and goes on",
)


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("heirs", [0, 1], ids=["alone", "survived"])
def test_a_partition(binary: Path, folder: Path, history: Writer, heirs: int, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        staged_behind(Link, binary, folder, history) as (scene, link),
        Listeners(scene.server.url, folder, history, lease=LEASE) as others,
    ):
        for _ in range(heirs):
            others.start()
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            scene.start_bait(LONG_BAIT if heirs else BAIT)
            at = now()
            with link.partitioned():
                time.sleep(LONG_AWAY if ROUNDS > 1 and not round else AWAY)
            history.write(CutOff(pid=scene.listener.pid, at=at, until=now()))
            stream.until_more(50)
        verdict = scene.judge(SURVIVED if heirs else ALONE)
    assert verdict.sound, str(verdict)
    again = verdict.twice.total() - verdict.twice["retry"]
    assert again > 0 if heirs else again == 0, str(verdict)
    assert scene.log().count("no answer from the server") == 1


@pytest.mark.parametrize("round", range(ROUNDS))
def test_half_open_connections(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged_behind(Link, binary, folder, history) as (scene, link):
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            link.half_open()
            stream.until_more(200)
            if ROUNDS > 1:  # a dead subscription shows its silence only after seconds
                scene.make_foreign()
        verdict = scene.judge(HALF_OPEN)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}
