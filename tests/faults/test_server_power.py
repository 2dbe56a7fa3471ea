"""The server's machine loses its power while tasks are made and run."""

import random
from pathlib import Path

import pytest

from tests.faults.power import FSYNC_WITHIN, Power
from tests.faults.scene import Scene, staged
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.history import Writer, now
from tests.kit.snapshot import check_invariant, read

ALWAYS = Fault(
    name="the server loses its power, `appendfsync always`",
    injected="`kill -9`, and its append-only file is cut to its length at the last answer",
    promise="nothing that was acknowledged is lost",
)
EVERYSEC = Fault(
    name="the server loses its power, `appendfsync everysec`",
    injected="`kill -9`, and its append-only file is cut within what it wrote in two seconds",
    promise="only what was acknowledged in the last two seconds may be lost, "
    "and each task as a whole",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_with_fsync_always_nothing_that_was_acknowledged_is_lost(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, options={"appendfsync": "always"}) as scene:
        with scene.stream(chance) as stream, Power(scene.server) as power:
            stream.until_more(100 + chance.randrange(100))
            stream.stop()
            power.lose_at_once(power.length(), history)
        restart(scene)
        verdict = scene.judge(ALWAYS)
    assert verdict.sound, str(verdict)
    assert verdict.acknowledged == stream.acknowledged
    assert not verdict.forgotten


@pytest.mark.parametrize("round", range(ROUNDS))
def test_with_fsync_everysec_two_seconds_may_be_lost_and_what_remains_is_whole(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history) as scene:
        with Power(scene.server) as power, scene.stream(chance) as stream:
            begun = now()
            while now() < begun + FSYNC_WITHIN + 500:
                stream.until_more(1)
            power.lose_unsynced(chance, history)
            restart(scene)
            stream.until_more(50)
        verdict = scene.judge(EVERYSEC)
    assert verdict.sound, str(verdict)
    assert verdict.acknowledged > verdict.forgotten


def restart(scene: Scene) -> None:
    """Start the server again: no task may be there by half, whatever its listener does by now."""
    scene.server.start()
    check_invariant(read(scene.client), edited=set())
