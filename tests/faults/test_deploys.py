"""A deploy in which listeners are killed."""

import time
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import ROUNDS, Listeners, copy_handlers, judge, kill, make, until_finished
from tests.faults.table import Fault
from tests.kit.history import Writer

LEASE = 2.0
TASKS = 40
"""Of each kind, in each of two waves."""
SPREAD = 60.0
"""Seconds that the tasks have to end: what nobody knew for a moment is tried again after 15 s."""

DEPLOY = Fault(
    name="listeners with newer code come and are killed",
    injected="two listeners run older code; one with newer code, which knows more, is started and "
    "killed under load, and started again",
    promise="each task runs where it is known, and none is lost or failed",
)


@pytest.fixture
def newer(tmp_path: Path, folder: Path) -> Path:
    """A handlers' folder with the same functions, and one module more."""
    copied = copy_handlers(tmp_path / "newer" / folder.name)
    (copied / "fresh.py").write_text((folder / "recorded.py").read_text())
    return copied


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_deploy_in_which_listeners_are_killed_loses_nothing(
    server: EmbeddedServer, bridge: Bridge, folder: Path, newer: Path, history: Writer, round: int
) -> None:
    del round
    with (
        Listeners(server.url, folder, history, lease=LEASE) as older_ones,
        Listeners(server.url, newer, history, lease=LEASE) as newer_ones,
    ):
        older_ones.start()
        older_ones.start()
        for victim in (newer_ones.start(), None):
            for kind in ("recorded", "fresh"):
                make(bridge, history, [(f"{kind}.work", [0.1, 0])] * TASKS, delay=0.1)
                make(bridge, history, [(f"{kind}.labour", [0.1, 0])] * TASKS, delay=0.1)
            if victim:
                time.sleep(0.3)  # in the midst of them
                kill(victim, history)
        newer_ones.start()
        until_finished(bridge, within=SPREAD)
    verdict = judge(DEPLOY, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 8 * TASKS}
