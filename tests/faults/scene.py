"""A scene of the server's faults: a server of the test's own, a listener, and a producer."""

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import redis

from expirebridge import Bridge, State
from expirebridge.server import Server
from expirebridge.task import to_ms
from tests.checker import Verdict
from tests.faults.stage import judge, recorded_listener, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.forwarder import Forwarder
from tests.history import Made, Writer, now
from tests.witness import PATIENCE

LEASE = 1.0

Way = TypeVar("Way", bound=Forwarder)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a test of the server's faults works with."""

    server: Server
    bridge: Bridge
    client: redis.Redis
    """A plain client of the same database, for what is done to the server."""
    folder: Path
    history: Writer
    listener: subprocess.Popen[bytes]
    lease: float

    def stream(self, chance: random.Random) -> Stream:
        """A producer that makes tasks for as long as its block runs."""
        return Stream(self.server.url, self.history, chance=chance)

    def make_foreign(self, *, lives: float) -> None:
        """Make a task as any program would, by a plain SET, and wait until a listener knows it."""
        id, due = uuid4().hex, now() + round(lives * 1000)
        self.client.set(f"{id}:?recorded.work?[0,0]", "", pxat=due)
        self.history.write(Made(id=id, due=due, attempts=1))
        deadline = time.monotonic() + PATIENCE
        while self.bridge.get(id) is None:
            assert time.monotonic() < deadline, "no listener found it"
            time.sleep(0.01)

    def start_bait(self, seconds: float) -> None:
        """Let the listener begin a task that takes so long."""
        task = self.bridge.make_task("recorded.work", [seconds, 0], 0, retry=[])
        self.history.write(Made(id=task.id, due=to_ms(task.due), attempts=1))
        while task.state is not State.RUNNING:
            task = self.bridge.get(task.id) or task

    def log(self) -> str:
        """What the listener has logged."""
        return (self.folder.parent / "listeners.log").read_text()

    def judge(self, fault: Fault) -> Verdict:
        """Wait until every task has ended, and give the verdict."""
        until_finished(self.bridge)
        return judge(fault, self.server, self.bridge, self.history, lease=self.lease)


@contextmanager
def staged(
    binary: Path,
    folder: Path,
    history: Writer,
    *,
    options: dict[str, str] | None = None,
    directory: Path | None = None,
) -> Iterator[Scene]:
    """Start a server with these options, and a listener on it. `directory` is for its data."""
    with (
        Server(binary=binary, options=options, directory=directory) as server,
        Bridge(server.url) as bridge,
        redis.Redis.from_url(server.url) as client,
        recorded_listener(server.url, folder, history, lease=LEASE) as listener,
    ):
        yield Scene(server, bridge, client, folder, history, listener, LEASE)


@contextmanager
def staged_behind(
    way: Callable[[int], Way], binary: Path, folder: Path, history: Writer, *, lease: float = LEASE
) -> Iterator[tuple[Scene, Way]]:
    """The same, with something between the listener and the server; the producer needs no way."""
    with (
        Server(binary=binary) as server,
        way(server.port) as between,
        Bridge(server.url) as bridge,
        redis.Redis.from_url(server.url) as client,
        recorded_listener(between.url, folder, history, lease=lease) as listener,
    ):
        yield Scene(server, bridge, client, folder, history, listener, lease), between
