"""Processes for handlers are killed, in the midst of tasks, and with their listener."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, HistoryEntry, State
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import (
    ROUNDS,
    Listeners,
    gave_up,
    judge,
    kill,
    make,
    recorded_listener,
    until_finished,
)
from tests.faults.table import Fault
from tests.kit.handler_processes import processes_below
from tests.kit.history import Ended, Killed, Started, Writer, now, read
from tests.kit.processes import Reports, until_ended

LEASE = 2.0
PROCESSES = 3
HOLD = 60.0
"""Seconds that the handler would run in whose midst its process is killed."""
OTHERS = 10
"""Of each kind."""
WORK = 0.1

KILLED = Fault(
    name="a process for handlers is killed while a handler runs",
    injected="`kill -9` of one of three processes of a listener, again and again, with 10 other "
    "tasks in processes and 10 on the event loop",
    promise="that attempt fails with the reason and is retried; nothing else is lost or run again, "
    "and no process is left",
)
KILLS = 10 if ROUNDS > 1 else 4
"""In each round."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_killed_process_costs_its_own_attempt_only(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    baits = []
    options = ("--processes", str(PROCESSES))
    with recorded_listener(server.url, folder, history, *options, lease=LEASE) as listener:
        for _ in range(KILLS):
            others: list[tuple[str, list[Any]]] = [
                *[("apart.labour", [WORK])] * OTHERS,
                *[("recorded.work", [WORK, 0])] * OTHERS,
            ]
            place = chance.randrange(len(others))
            make(bridge, history, others[:place])
            baits += make(bridge, history, [("apart.bait", [HOLD])], retry=[0.1])
            make(bridge, history, others[place:])
            kill_process(reports.next().pid, history)
        until_finished(bridge)
        left = processes_below(listener.pid)
        assert len(left) <= PROCESSES
        with until_ended(left):
            listener.send_signal(signal.SIGTERM)
            assert listener.wait(30) == 0
    verdict = judge(KILLED, server, bridge, history, lease=LEASE, times=KILLS)
    assert verdict.sound, str(verdict)
    assert verdict.states == {State.SUCCEEDED: KILLS * (1 + 2 * OTHERS)}
    assert verdict.twice == {"process killed": KILLS}
    errors = {entry.error for bait in baits for entry in shown(bridge, bait.id)}
    assert "its process was killed by SIGKILL" in "".join(errors)


def shown(bridge: Bridge, id: str) -> list[HistoryEntry]:
    """What happened to a task, as users see it."""
    task = bridge.get(id)
    assert task is not None
    return list(task.history)


def kill_process(pid: int, history: Writer) -> None:
    """Kill a process in which a handler runs, and write down how its run ended."""
    with until_ended([pid]):
        os.kill(pid, signal.SIGKILL)
    events = read(history.folder)
    ended = {event.run for event in events if isinstance(event, Ended)}
    [run] = [
        event
        for event in events
        if isinstance(event, Started) and event.pid == pid and event.run not in ended
    ]
    words = "its process was killed by SIGKILL"
    history.write(Ended(id=run.id, run=run.run, how="killed", error=words, at=now()))


WITH_LISTENER = Fault(
    name="a listener with processes for handlers is killed",
    injected="`kill -9` of a listener while handlers run in its three processes",
    promise="its processes end with it, and its tasks run again in another listener",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_processes_end_with_their_listener(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    reports: Reports,
    round: int,
) -> None:
    options = ("--processes", str(PROCESSES))
    with recorded_listener(server.url, folder, history, *options, lease=LEASE) as first:
        make(bridge, history, [("apart.bait", [HOLD])] * PROCESSES)
        pids = {reports.next().pid for _ in range(PROCESSES)}
        assert pids == set(processes_below(first.pid))
        with recorded_listener(server.url, folder, history, *options, lease=LEASE):
            at = now()
            with until_ended(pids):
                kill(first, history)
            history.write(*(Killed(pid=pid, at=at, until=now()) for pid in pids))
            until_finished(bridge)
    verdict = judge(WITH_LISTENER, server, bridge, history, lease=LEASE)
    assert verdict.sound, str(verdict)
    assert verdict.twice == {"killed": PROCESSES}
    assert verdict.states == {State.SUCCEEDED: PROCESSES}


LONG = 4.0
"""Seconds that those in processes take: they still run when the listener gives up."""


def test_processes_end_before_a_blocked_listener_gives_their_tasks_back(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, reports: Reports
) -> None:
    """An async handler never gives way; the answers of the processes would need the loop."""
    options = ("--processes", str(PROCESSES), "--grace", "0.3")
    with Listeners(server.url, folder, history, *options, lease=LEASE) as listeners:
        first = listeners.start()
        apart = make(bridge, history, [("apart.labour", [LONG])] * PROCESSES)
        while not {task.id for task in apart} <= {run.id for run in starts(history)}:
            time.sleep(0.01)
        pids = {run.pid for run in starts(history)}
        make(bridge, history, [("misbehaving.never_give_way", [])], retry=[0.1], timeout=0.5)
        with until_ended(pids):
            gave_up(listeners, reports.next(), history)
        assert processes_below(first.pid) == []
        assert bridge.count().running == 0
        listeners.start()
        until_finished(bridge)
    found = [bridge.get(task.id) for task in apart]
    ends = [(task.state, task.attempt, task.lapses) for task in found if task]
    assert ends == [(State.SUCCEEDED, 1, 0)] * PROCESSES
    assert len(starts(history)) == 2 * PROCESSES + 2


def starts(history: Writer) -> list[Started]:
    """The runs that have begun."""
    return [event for event in read(history.folder) if isinstance(event, Started)]
