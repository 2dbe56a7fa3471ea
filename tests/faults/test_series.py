"""Series while listeners are killed: each tick is made once, and each gap has its reason."""

import os
import time
from itertools import count, pairwise
from pathlib import Path
from subprocess import Popen

import pytest

from expirebridge import Bridge, State, Task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import ROUNDS, Listeners, judge, kill, until_finished
from tests.faults.table import Fault
from tests.kit.history import Ended, Killed, Made, Started, Writer, read

LEASE = 2.0
SECONDS = float(os.environ.get("SERIES_SECONDS", "8" if ROUNDS == 1 else "60"))
LISTENERS, KILL_EVERY = (3, 2.0) if SECONDS < 30 else (10, 5.0)
SECOND = 1000
TAKES = 0.2
"""Seconds that a tick runs: some of them are killed."""

KILLED = Fault(
    name="listeners are killed while series have a tick each second",
    injected=f"`kill -9` of a listener in which a tick runs, every {KILL_EVERY:g} s, and another "
    'in its place; two series have a tick each second, one with `overlap="allow"`, one with '
    '`"skip"`',
    promise="each tick is made once, at a whole number of seconds after the first; each that runs "
    "twice was killed, and each that does not run has its reason",
)


@pytest.mark.timeout(SECONDS + 300)
def test_listeners_are_killed_while_series_have_their_ticks(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer
) -> None:
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        living = [listeners.start() for _ in range(LISTENERS)]
        for overlap in ("allow", "skip"):
            bridge.schedule(
                overlap, "recorded.work", [TAKES, 0], every="1s", retry=[], overlap=overlap
            )
        deadline = time.monotonic() + SECONDS
        kills = 0
        while time.monotonic() + KILL_EVERY < deadline:
            time.sleep(KILL_EVERY)
            victim = at_work(living, history)
            living.remove(victim)
            kill(victim, history)
            living.append(listeners.start())
            kills += 1
        for overlap in ("allow", "skip"):
            bridge.unschedule(overlap)
        until_finished(bridge)
    tasks = list(tasks_of(bridge))
    for overlap in ("allow", "skip"):
        check_ticks([task for task in tasks if task.id.startswith(f"{overlap}@")], history)
    ran = [task for task in tasks if task.state is State.SUCCEEDED]
    history.write(
        *(Made(id=t.id, due=to_ms(t.due), attempts=1, at=to_ms(t.due) - SECOND) for t in ran)
    )
    assert len(ran) > SECONDS / 2
    verdict = judge(KILLED, server, bridge, history, lease=LEASE, times=kills)
    assert verdict.sound, str(verdict)


def at_work(living: list[Popen[bytes]], history: Writer) -> Popen[bytes]:
    """The first of these listeners in which a tick runs."""
    while True:
        events = read(history.folder)
        ended = {event.run for event in events if isinstance(event, Ended)}
        begun = [event for event in events if isinstance(event, Started)]
        running = {event.pid for event in begun if event.run not in ended}
        for process in living:
            if process.pid in running:
                return process


def tasks_of(bridge: Bridge) -> list[Task]:
    tasks: list[Task] = []
    cursor = None
    for _ in count():
        listing = bridge.list(limit=1000, cursor=cursor)
        tasks += listing.tasks
        cursor = listing.cursor
        if cursor is None:
            break
    return tasks


def check_ticks(tasks: list[Task], history: Writer) -> None:
    """Each tick stands where it should, and each that is absent, or did not run, has a reason."""
    events = read(history.folder)
    runs = {event.id for event in events if isinstance(event, Started)}
    killed = {event.pid for event in events if isinstance(event, Killed)}
    pids = {event.id: event.pid for event in events if isinstance(event, Started)}
    ticks = sorted(tasks, key=lambda task: task.id)
    times = [int(task.id.partition("@")[2]) for task in ticks]
    assert times
    assert all((at - times[0]) % SECOND == 0 for at in times)  # no drift
    for (before, after), task in zip(pairwise(times), ticks[1:], strict=True):
        if after - before > SECOND:
            # What lies between was left out: nobody made the next tick before its own time.
            assert task.created is not None
            assert to_ms(task.created) + SECOND > after, task
    for task in ticks:
        match task.state:
            case State.SUCCEEDED:
                assert task.id in runs, task
            case State.CANCELLED:
                assert task.error is not None, task
                assert task.error.startswith(("missed: ", "skipped: ")), task
            case State.FAILED:
                assert task.error is not None
                assert task.error.endswith("not attempted again: the next tick is due"), task
                assert pids.get(task.id) in killed or task.id not in runs, task
            case _:
                raise AssertionError(task)
