"""A listener is killed at the moments that matter most."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.server import Server
from tests.faults.stage import ROUNDS, ended_itself, judge, make, recorded_listener, until_finished
from tests.faults.table import Fault
from tests.history import Writer
from tests.processes import Reports

LEASE = 1.0

UNSETTLED = Fault(
    name="a listener is killed between a handler's success and its record",
    injected="`SIGKILL` in the step of the event loop after the handler's return",
    promise="the task runs once more, and that run is recorded",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_succeeded_but_was_not_recorded_runs_again(
    server: Server, bridge: Bridge, folder: Path, history: Writer, reports: Reports, round: int
) -> None:
    with ExitStack() as stack:
        pair = [recorded_listener(server.url, folder, history, lease=LEASE) for _ in range(2)]
        listeners = {process.pid: process for process in map(stack.enter_context, pair)}
        make(bridge, history, [("misbehaving.return_and_fall", [])])
        dying = reports.next()
        ended_itself(listeners[dying.pid], dying, history)
        until_finished(bridge)
    verdict = judge(UNSETTLED, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: 1}
    # The handler ended in the millisecond of the kill, or before it.
    assert sum(verdict.twice.values()) == 1
