"""The server is killed while tasks are made and run: what it acknowledged is there afterwards."""

import random
from pathlib import Path

import pytest

from tests.faults.scene import staged
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.history import Writer


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_a_killed_server_has_what_it_acknowledged(
    binary: Path, folder: Path, history: Writer, fsync: str, round: int
) -> None:
    """Its answers leave after its writes, so that even `everysec` needs no luck: the machine lives.

    Nor does anything run twice: a claim and an outcome are as good as a task.
    """
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, options={"appendfsync": fsync}) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(100 + chance.randrange(100))
            scene.server.kill()
            scene.server.start()
            stream.until_more(100)
        verdict = scene.judge(
            Fault(
                name=f"the server is killed, `appendfsync {fsync}`",
                injected="`kill -9` of the server while tasks are made and run, and a restart",
                promise="nothing is lost, and nothing runs twice because of it",
            )
        )
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}
