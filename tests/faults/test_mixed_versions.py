"""Listeners of two versions share the work of a database, and are killed in turn."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded import Server
from tests.faults.stage import ROUNDS, judge, kill, recorded_listener, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.history import Started, Writer, read
from tests.kit.versions import PRESENT, Version

LEASE = 2.0
TASKS = 60
"""So many tasks of the present version's producer are made between two kills, at least."""

MIXED = Fault(
    name="listeners of two versions are killed under load",
    injected="`kill -9` of the first version's listener, then of this version's, in a stream of "
    "tasks from producers of both, with a lease of 2 s",
    promise="each runs the other's tasks; none is lost",
)


@contextmanager
def producing(version: Version, url: str, history: Writer) -> Iterator[None]:
    """A producer of this version, as a process, while the block runs."""
    program = Path(__file__).with_name("produce.py")
    surroundings = os.environ | version.env | {"EXPIREBRIDGE_URL": url}
    command = [sys.executable, str(program), str(history.folder)]
    with subprocess.Popen(command, env=surroundings, stdin=subprocess.PIPE) as process:
        yield
        assert process.poll() is None
        process.communicate()
        assert process.returncode == 0


@pytest.mark.parametrize("round", range(ROUNDS))
def test_no_task_is_lost_while_two_versions_work_side_by_side(
    server: Server, bridge: Bridge, folder: Path, history: Writer, first: Version, round: int
) -> None:
    (folder / "apart.py").unlink()  # the first version has no handlers in processes
    with ExitStack() as stack:

        def start(version: Version) -> subprocess.Popen[bytes]:
            run = recorded_listener(server.url, folder, history, lease=LEASE, env=version.env)
            return stack.enter_context(run)

        running = {version.name: start(version) for version in (first, PRESENT)}
        pids = {process.pid for process in running.values()}
        chance = random.Random(round)  # noqa: S311 - the same rounds each time
        with (
            producing(first, server.url, history),
            Stream(server.url, history, chance=chance) as stream,
        ):
            for version in (first, PRESENT):
                stream.until_more(TASKS)
                kill(running[version.name], history)
                running[version.name] = start(version)
            stream.until_more(TASKS)
            assert stream.errors == []
        until_finished(bridge)
    verdict = judge(MIXED, server, bridge, history, lease=LEASE, times=2)
    assert verdict.sound, str(verdict)
    assert set(verdict.states) == {State.SUCCEEDED}
    starters = {each.pid for each in read(history.folder) if isinstance(each, Started)}
    assert pids <= starters  # both had their share
