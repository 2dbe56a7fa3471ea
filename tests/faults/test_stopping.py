"""A listener is asked to stop while it is full of work, as at each deploy."""

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import ROUNDS, judge, make, recorded_listener, until_finished
from tests.faults.table import Fault
from tests.kit.history import Ended, Started, Writer, now, read
from tests.kit.processes import Reports, until_logged

LEASE = 2.0
RUNNING = 50
LATE = 10

TERMINATED = Fault(
    name="a listener is asked to stop with 50 tasks running",
    injected="`SIGTERM`; half of the handlers are plain functions; 10 tasks come due after it",
    promise="the 50 end within the grace time, none runs twice, the exit code is 0; the 10 run "
    "elsewhere",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_runs_at_sigterm_ends_and_is_recorded(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    """Handlers take longer than a lease, so the heartbeat has to go on while the listener stops."""
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    low, high = 2 * LEASE, 3 * LEASE
    calls: list[tuple[str, list[Any]]] = [
        (func, [chance.uniform(low, high)])
        for func in ("recorded.bait", "recorded.toil")
        for _ in range(RUNNING // 2)
    ]
    with recorded_listener(server.url, folder, history, lease=LEASE) as first:
        make(bridge, history, calls)
        for _ in range(RUNNING):
            reports.next()
        at = now()
        first.send_signal(signal.SIGTERM)
        until_logged("claiming no more", folder)
        late = make(bridge, history, [("recorded.work", [0, 0])] * LATE)
        with recorded_listener(server.url, folder, history, lease=LEASE) as heir:
            assert first.wait(10 * LEASE) == 0
            until_finished(bridge)
    verdict = judge(TERMINATED, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: RUNNING + LATE}
    assert not verdict.twice
    events = read(history.folder)
    assert all(event.at >= at for event in events if isinstance(event, Ended))
    elsewhere = {e.id for e in events if isinstance(e, Started) and e.pid == heir.pid}
    assert elsewhere == {task.id for task in late}
