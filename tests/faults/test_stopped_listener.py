"""A listener that is held still for longer than its lease, and then goes on where it was."""

import os
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from expirebridge import AsyncBridge, Bridge, current_task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import Claimed, End, Event
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import reconciling
from expirebridge.task.task import to_ms
from tests.faults.stage import (
    ROUNDS,
    Listeners,
    held_still,
    judge,
    make,
    recorded_listener,
    until_finished,
)
from tests.faults.table import Fault
from tests.kit.history import Ended, Made, Started, Stopped, Writer, now, read
from tests.kit.patience import PATIENCE
from tests.kit.processes import Reports
from tests.kit.witness import Witness, listening

LEASE = 1.0
HOLD = 2.0
"""Seconds that the heir's run takes: long enough for the first listener to wake up and to raise."""

SHORT_LEASE = 0.5
LISTENER = "expirebridge.listener"
ON_THE_LOOP = (
    f"{LISTENER}.execution.executor:Executor.start",
    f"{LISTENER}.execution.in_flight:PendingStarts.check",
    f"{LISTENER}.execution.steps:AttemptSteps.misfire",
    f"{LISTENER}.execution.invoke:Invoker.call",
)
IN_A_THREAD = (
    f"{LISTENER}.execution.thread_pool:ThreadPool.call",
    f"{LISTENER}.execution.thread_pool:ThreadPool._take",
    f"{LISTENER}.execution.thread_pool:ThreadCall.__call__",
)
BEGIN = f"{LISTENER}.execution.in_flight:PendingStarts.begin"
STEPS = [("work", step) for step in (*ON_THE_LOOP, BEGIN)] + [
    ("labour", step) for step in (*ON_THE_LOOP, *IN_A_THREAD, BEGIN)
]
"""Each step between the answer to a claim and the call of a handler, async or plain."""

HALTED = Fault(
    name="a listener is stopped between a claim and the handler's call",
    injected="`SIGSTOP` right before a step, by the step itself; `SIGCONT` once another listener "
    "has run the tasks",
    promise="no handler is called in the listener that lost its task",
)
STOPPED = Fault(
    name="a listener is stopped for longer than its lease",
    injected="`SIGSTOP` while a handler runs, `SIGCONT` once another listener runs the task",
    promise="another listener runs its task, and its own late outcome is refused",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_a_listener_says_of_a_task_that_it_has_lost_is_not_heard(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    """Its run raises; if that counted, the task would run a third time."""
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        listeners.start()
        listeners.start()
        task = bridge.make_task("recorded.falter", [HOLD], 0, retry=[0.2])
        history.write(Made(id=task.id, due=to_ms(task.due), attempts=2))
        first = reports.next()
        with held_still(listeners.by_pid[first.pid], history):
            second = reports.next()
            # Its last heartbeat was up to a third of a lease before the stop, which must be longer
            # than a whole one to be a reason.
            time.sleep(LEASE / 2)
        until_finished(bridge)
    assert first.pid != second.pid
    verdict = judge(STOPPED, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.twice == {"stopped": 1}
    ends = [event for event in read(history.folder) if isinstance(event, Ended)]
    ends.sort(key=lambda end: end.at)
    assert [end.how for end in ends] == ["raised", "returned"]


@pytest.mark.parametrize("round", range(ROUNDS))
@pytest.mark.parametrize(
    ("function", "step"), STEPS, ids=[f"{name}-{step.partition(':')[2]}" for name, step in STEPS]
)
def test_no_handler_is_called_once_its_lease_has_lapsed(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, function: str, step: str,
    round: int,
) -> None:  # fmt: skip
    def listener(**env: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return recorded_listener(server.url, folder, history, lease=SHORT_LEASE, env=env)

    with listener(HALT_AT=step) as halted:
        make(bridge, history, [(f"recorded.{function}", [0, 0])] * 5)
        os.waitid(os.P_PID, halted.pid, os.WSTOPPED)
        at = now()
        with listener():
            until_finished(bridge)
            history.write(Stopped(pid=halted.pid, at=at, until=now()))
            halted.send_signal(signal.SIGCONT)
            # It records what it has, and ends.
            halted.terminate()
            assert halted.wait(PATIENCE) == 0
    verdict = judge(HALTED, server, bridge, history, lease=SHORT_LEASE)
    assert verdict.sound, str(verdict)
    starts = [event.pid for event in read(history.folder) if isinstance(event, Started)]
    assert len(starts) == 5
    assert halted.pid not in starts


async def test_what_a_listener_claimed_and_lost_before_it_began_is_not_begun(
    url: str, async_bridge: AsyncBridge, store: Store
) -> None:
    """It stands still between the two, here by a hook that holds up its event loop; meanwhile
    another listener's sweep takes the task back."""
    settings = Settings(url=url, lease=0.5)
    witness = Witness()
    lapses_at_start: list[int] = []
    lapsed: list[str] = []

    async def note() -> None:
        lapses_at_start.append(current_task().lapses)

    def hold_up(event: Event) -> None:
        witness(event)
        if isinstance(event, Claimed) and event.count and not lapsed:
            while not lapsed:
                lapsed.extend(store.run(reconciling.sweep(settings)).lapsed)

    async with listening(settings, hold_up, note=note):
        task = await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(1, End.SUCCEEDED)
    assert lapsed == [task.id]
    assert lapses_at_start == [1]
    ended = [(event.end, event.duration) for event in witness.ended()]
    assert (End.REFUSED, 0.0) in ended
