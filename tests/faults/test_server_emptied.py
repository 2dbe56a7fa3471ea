"""All data of the server is gone while tasks are made and run."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.scene import Scene, staged
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.history import Forgot, Writer, now
from tests.kit.processes import until_logged

ALARM = "the database was emptied"
PROMISE = "each listener raises an alarm once, and runs what is made from then on"


def flush(scene: Scene) -> None:
    scene.client.flushdb()


def restart_empty(scene: Scene) -> None:
    scene.server.kill()
    scene.server.start()


FAULTS: dict[Callable[[Scene], None], Fault] = {
    flush: Fault(
        name="the database is flushed",
        injected="`FLUSHDB` while tasks are made and run",
        promise=PROMISE,
    ),
    restart_empty: Fault(
        name="the server comes back empty",
        injected="`kill -9` and restart of a server without any persistence",
        promise=PROMISE,
    ),
}


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize("empty", FAULTS, ids=lambda empty: empty.__name__)
def test_a_listener_raises_an_alarm_and_goes_on(
    binary: Path, folder: Path, history: Writer, empty: Callable[[Scene], None], round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, options={"appendonly": "no"}) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            empty(scene)
            # What was made until then may be noted a moment later, by the producer's thread.
            stream.until_more(1)
            history.write(Forgot(at=0, until=now()))
            until_logged(ALARM, folder)
            stream.until_more(100)
        verdict = scene.judge(FAULTS[empty])
        assert scene.listener.poll() is None, "the listener ended"
    assert verdict.sound, str(verdict)
    assert verdict.forgotten
    assert verdict.states.total() >= 100
    log = scene.log()
    assert log.count(ALARM) == 1, log
    assert "Traceback" not in log
