"""Clocks that are wrong, or jump: only the server's counts, and no jump is a listener's death."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, reconciling
from expirebridge.task.task import to_ms
from tests.faults.stage import ROUNDS, held_still, recorded_listener
from tests.kit.history import Started, Writer, now, read
from tests.kit.processes import listener
from tests.kit.wrong_clock import LIBRARIES, need_servers_clock, needs_faketime, started_with

LEASE = 1.0
HOUR = 3600
BAIT = 2.0
"""Seconds that a task runs across the jump."""
SLACK = 5
"""Milliseconds for the library's own error: it counts from the process's start."""


@needs_faketime
@pytest.mark.parametrize("hours", [2, -3] if ROUNDS > 1 else [2])
def test_the_servers_clock_jumps(
    binary: Path, folder: Path, history: Writer, tmp_path: Path, hours: int
) -> None:
    need_servers_clock(binary)
    offset = tmp_path / "offset"
    offset.write_text("+0")
    with (
        started_with_clock(binary, offset) as server,
        Bridge(server.url) as bridge,
        recorded_listener(server.url, folder, history, lease=LEASE) as process,
    ):
        bait = bridge.make_task("recorded.work", [BAIT, 0], 0)
        in_an_hour = bridge.make_task("recorded.work", [0, 0], HOUR)
        until(bridge, bait.id, State.RUNNING)
        # Held still, so that others are the first to look after the jump.
        with held_still(process, history):
            turn_clock(server, offset, hours * HOUR)
            assert not lapsed_for_others(server.url)
        soon = bridge.make_task("recorded.work", [0, 0], 0.5)
        until(bridge, soon.id, State.SUCCEEDED)
        until(bridge, bait.id, State.SUCCEEDED)
        if hours > 0:
            until(bridge, in_an_hour.id, State.SUCCEEDED)
        else:
            until(bridge, in_an_hour.id, State.PENDING)
        jumped = bridge.make_task("recorded.work", [0, 0], 0)
        assert abs(to_ms(jumped.due) - now() - hours * HOUR * 1000) < 60_000, "no jump was seen"
        until(bridge, jumped.id, State.SUCCEEDED)
    runs = Counter(event.id for event in read(history.folder) if isinstance(event, Started))
    assert set(runs.values()) == {1}


@needs_faketime
@pytest.mark.parametrize("steps", [[2], [2, 0, 4]], ids=["ahead", "to and fro"])
def test_a_series_goes_on_when_the_servers_clock_jumps(
    binary: Path, folder: Path, history: Writer, tmp_path: Path, steps: list[int]
) -> None:
    """An hour passes between its ticks: one that is made by the time before a jump comes too late
    for this test."""
    need_servers_clock(binary)
    offset = tmp_path / "offset"
    offset.write_text("+0")
    with started_with_clock(binary, offset) as server, Bridge(server.url) as bridge:
        # Before the listener starts, so that it knows the first tick's time before the jump.
        bridge.schedule("hourly", "recorded.work", [0, 0], every="1h")
        with recorded_listener(server.url, folder, history, lease=LEASE):
            until(bridge, bridge.make_task("recorded.work", [0, 0], 0).id, State.SUCCEEDED)
            for hours in steps:
                turn_clock(server, offset, hours * HOUR)
                until_one_waits(bridge, after=now() + hours * HOUR * 1000)


@needs_faketime
@pytest.mark.parametrize("hours", [5, -5], ids=["ahead", "behind"])
def test_the_clocks_of_a_producer_and_a_listener_are_wrong(
    binary: Path, folder: Path, history: Writer, hours: int
) -> None:
    """Nothing runs early or hours late for it, but what a producer asks for by its wrong clock."""
    wrong = {"LD_PRELOAD": LIBRARIES[0], "FAKETIME": f"{hours:+d}h"}
    with (
        EmbeddedServer(binary=binary) as server,
        Bridge(server.url) as bridge,
        listener(server.url, folder, "--lease", f"{LEASE:g}", HISTORY=str(history.folder), **wrong),
    ):
        at = datetime.now(timezone(timedelta(hours=-7, minutes=-30))) + timedelta(seconds=1.5)
        before = now()
        made = made_by_producer(server.url, at, wrong | {"TZ": "Asia/Kolkata"})
        after = now()
        for id in (*made.delayed, made.at_moment):
            until(bridge, id, State.SUCCEEDED)
        until(bridge, made.at_own_now, State.PENDING if hours > 0 else State.SUCCEEDED)
    for place, due in enumerate(made.delayed.values()):
        assert before <= due - place * 100 <= after
    assert made.dues[made.at_moment] == to_ms(at)
    assert made.dues[made.at_own_now] == made.own_now
    assert abs(made.own_now - before) > (abs(hours) - 1) * HOUR * 1000, "no wrong clock was seen"
    starts = [event for event in read(history.folder) if isinstance(event, Started)]
    expected = set(made.dues) - ({made.at_own_now} if hours > 0 else set())
    assert sorted(event.id for event in starts) == sorted(expected)
    for event in starts:
        assert made.dues[event.id] - SLACK <= event.at - hours * HOUR * 1000, event


PRODUCER = """
import json, sys
from datetime import UTC, datetime
from expirebridge import Bridge
from expirebridge.task.task import to_ms

own_now = datetime.now(UTC)
with Bridge(sys.argv[1]) as bridge:
    delayed = [bridge.make_task("recorded.work", [0, 0], delay / 10) for delay in range(15)]
    at_moment = bridge.make_task("recorded.work", [0, 0], at=datetime.fromisoformat(sys.argv[2]))
    at_own_now = bridge.make_task("recorded.work", [0, 0], at=own_now)
dues = {task.id: to_ms(task.due) for task in (*delayed, at_moment, at_own_now)}
print(json.dumps([dues, at_moment.id, at_own_now.id, to_ms(own_now)]))
"""


@dataclass(frozen=True, slots=True)
class MadeElsewhere:
    """What a producer made whose clock is wrong."""

    dues: dict[str, int]
    """When each task is due, as it was told."""
    at_moment: str
    """The task whose `at` the test gave."""
    at_own_now: str
    """The task whose `at` is the producer's own time."""
    own_now: int

    @property
    def delayed(self) -> dict[str, int]:
        """Those made with a `delay`: each a tenth of a second longer than the one before."""
        others = {self.at_moment, self.at_own_now}
        return {id: due for id, due in self.dues.items() if id not in others}


def made_by_producer(url: str, at: datetime, env: dict[str, str]) -> MadeElsewhere:
    """Let a producer of its own process make tasks."""
    words = [sys.executable, "-c", PRODUCER, url, at.isoformat()]
    done = subprocess.run(words, env=os.environ | env, capture_output=True, timeout=60, check=True)
    return MadeElsewhere(*json.loads(done.stdout))


@contextmanager
def started_with_clock(binary: Path, offset: Path) -> Iterator[EmbeddedServer]:
    """Start a server whose clock is off by the seconds that the file names at each moment."""
    server = EmbeddedServer(binary=binary, directory=offset.with_name("server"))
    with started_with(FAKETIME_TIMESTAMP_FILE=str(offset), FAKETIME_NO_CACHE="1"):
        server.start()
    try:
        yield server
    finally:
        server.stop()


def turn_clock(server: EmbeddedServer, offset: Path, seconds: int) -> None:
    """Let a server's clock jump, and wait until it has: the library may read the file only after
    the next question, and a task that was made by the old clock would be hours away by the new."""
    offset.write_text(f"{seconds:+d}")
    with redis.Redis.from_url(server.url) as client:
        time_of: Any = client.time
        while abs(time_of()[0] - time.time() - seconds) > HOUR / 2:
            pass


def lapsed_for_others(url: str) -> list[str]:
    """What other listeners would take back: one that has not beaten yet, and one that just has."""
    with redis.Redis.from_url(url) as client:
        store = Store(client, prefix="expirebridge")
        sweep = reconciling.sweep(Settings(lease=LEASE))
        lapsed = [*store.run(sweep).lapsed]
        store.run(claiming.heartbeat("another", LEASE, [], code="c0de"))
        return [*lapsed, *store.run(sweep).lapsed]


def until(bridge: Bridge, id: str, state: State) -> None:
    """Wait until a task is in this state; the test's own timeout is the limit."""
    while (task := bridge.get(id)) is None or task.state is not state:
        pass


def until_one_waits(bridge: Bridge, *, after: int) -> None:
    """Wait until a task is pending that is due after this ms; the test's timeout is the limit."""
    while not any(to_ms(task.due) > after for task in bridge.list(state=State.PENDING).tasks):
        pass
