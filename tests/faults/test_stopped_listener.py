"""A listener that is held still for longer than its lease, and then goes on where it was."""

import time
from pathlib import Path

import pytest

from expirebridge import AsyncBridge, Bridge, current_task
from expirebridge.hooks import Claimed, End, Event
from expirebridge.server import Server
from expirebridge.settings import Settings
from expirebridge.store import calls
from expirebridge.store.store import Store
from expirebridge.task import to_ms
from tests.faults.stage import ROUNDS, Listeners, held_still, judge, until_finished
from tests.faults.table import Fault
from tests.history import Ended, Made, Writer, read
from tests.processes import Reports
from tests.witness import Witness, listening

LEASE = 1.0
HOLD = 2.0
"""Seconds that the heir's run takes: long enough for the first listener to wake up and to raise."""

STOPPED = Fault(
    name="a listener is stopped for longer than its lease",
    injected="`SIGSTOP` while a handler runs, `SIGCONT` once another listener runs the task",
    promise="another listener runs its task, and its own late outcome is refused",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_what_a_listener_says_of_a_task_that_it_has_lost_is_not_heard(
    server: Server, bridge: Bridge, folder: Path, history: Writer, reports: Reports, round: int
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
                lapsed.extend(store.run(calls.sweep(settings)).lapsed)

    async with listening(settings, hold_up, note=note):
        task = await async_bridge.make_task("test.note", [], 0)
        await witness.until_ended(1, End.SUCCEEDED)
    assert lapsed == [task.id]
    assert lapses_at_start == [1]
    ended = [(event.end, event.duration) for event in witness.ended()]
    assert (End.REFUSED, 0.0) in ended
