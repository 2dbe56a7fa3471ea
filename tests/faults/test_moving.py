"""Tasks are moved to another database while producers and listeners go on, and the mover dies."""

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import ROUNDS, judge, recorded_listener, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND

LEASE = 2.0
KILLS = 3
MORE = 60
"""Tasks that are made between two kills."""
FURTHEST = 8.0
"""Seconds: what is due within 5 s is not moved while listeners are alive."""

MOVED = Fault(
    name="tasks are moved to another database, and the mover is killed",
    injected="producers write to both; `kill -9` of `expirebridge move`, which is started again; "
    "then the old listener is stopped",
    promise="each task runs once, in one of the two",
)


SERVERS_KILLED = Fault(
    name="tasks are moved to another server, and both servers are killed",
    injected="`kill -9` and restart of the old server, of the new one, and of both at once, with "
    "append-only files, while `expirebridge move` runs and producers write to both",
    promise="each task runs once, in one of the two; the mover goes on by itself",
)


@contextmanager
def moving(old: str, new: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ("move", "--url", old, "--to", new, "--lease", f"{LEASE:g}")
    process = subprocess.Popen([*COMMAND, *words])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def carried(new: Bridge) -> int:
    counts = new.count()
    return counts.pending + counts.running + counts.succeeded


def until_more_carried(new: Bridge, before: int) -> None:
    """Wait until the mover is at work: nothing signals that, so this has to ask."""
    deadline = time.monotonic() + PATIENCE
    while carried(new) <= before:
        assert time.monotonic() < deadline, "nothing was moved"
        time.sleep(0.01)


@pytest.mark.parametrize("partitions", [4])
@pytest.mark.parametrize("round", range(ROUNDS))
def test_nothing_is_lost_and_nothing_runs_twice(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    round: int,
    partitions: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    new_url = f"redis://127.0.0.1:{server.port}/3"
    with (
        Bridge(new_url) as new,
        recorded_listener(server.url, folder, history, lease=LEASE) as old_listener,
    ):
        new.create_partitions(partitions)
        old_stream = Stream(server.url, history, chance=chance, puts_off=True, furthest=FURTHEST)
        new_stream = Stream(new_url, history, chance=chance, furthest=FURTHEST)
        with recorded_listener(new_url, folder, history, lease=LEASE):
            with old_stream:
                old_stream.until_more(MORE)
                for _ in range(KILLS):
                    before = carried(new)
                    with moving(server.url, new_url):
                        until_more_carried(new, before)
                        old_stream.until_more(chance.randrange(1, MORE))
                with moving(server.url, new_url) as last, new_stream:
                    old_stream.until_more(MORE)
                    old_stream.stop()
                    old_listener.terminate()
                    assert old_listener.wait(PATIENCE) == 0
                    assert last.wait(PATIENCE) == 0
            until_finished(new)
        assert bridge.count().pending + bridge.count().running == 0
        verdict = judge(MOVED, server, new, history, lease=LEASE, times=KILLS)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) <= {"retry"}, str(verdict)
    assert old_stream.put_off


@pytest.mark.parametrize("round", range(ROUNDS))
def test_both_servers_are_killed(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        EmbeddedServer(binary=binary) as source,
        EmbeddedServer(binary=binary) as target,
        Bridge(source.url) as old,
        Bridge(target.url) as new,
        recorded_listener(source.url, folder, history, lease=LEASE) as old_listener,
        recorded_listener(target.url, folder, history, lease=LEASE),
    ):
        old_stream = Stream(source.url, history, chance=chance, furthest=FURTHEST)
        new_stream = Stream(target.url, history, chance=chance, furthest=FURTHEST)
        streams = {source: old_stream, target: new_stream}
        with old_stream:
            old_stream.until_more(MORE)
            with moving(source.url, target.url) as mover, new_stream:
                for victims in ([source], [target], [source, target]):
                    until_more_carried(new, carried(new))
                    streams[victims[-1]].until_more(chance.randrange(1, MORE))
                    for server in victims:
                        server.kill()
                    for server in victims:
                        server.start()
                    for server in victims:
                        streams[server].until_more(MORE)
                old_stream.stop()
                old_listener.terminate()
                assert old_listener.wait(PATIENCE) == 0
                assert mover.wait(PATIENCE) == 0
        until_finished(new)
        assert old.count().pending + old.count().running == 0
        verdict = judge(SERVERS_KILLED, target, new, history, lease=LEASE, times=4)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) <= {"retry"}, str(verdict)
