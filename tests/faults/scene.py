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

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import judge, recorded_listener, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.checker import Verdict
from tests.kit.forwarder import Forwarder
from tests.kit.history import Made, Started, Writer, now, read
from tests.kit.patience import PATIENCE

LEASE = 2.0

Way = TypeVar("Way", bound=Forwarder)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a test of the server's faults works with."""

    server: EmbeddedServer
    bridge: Bridge
    client: redis.Redis
    """A plain client of the same database, for what is done to the server."""
    folder: Path
    history: Writer
    listener: subprocess.Popen[bytes]
    lease: float

    def stream(self, chance: random.Random, *, puts_off: bool = False) -> Stream:
        """A producer that makes tasks for as long as its block runs, and may put some off."""
        return Stream(self.server.url, self.history, chance=chance, puts_off=puts_off)

    def make_foreign(self) -> None:
        """Make a task as any program would, by a plain SET, and run it once a listener knows it."""
        id = uuid4().hex
        self.client.set(f"{id}:?recorded.work?[0,0]", "", px=60_000)
        deadline = time.monotonic() + PATIENCE
        while self.bridge.get(id) is None:
            assert time.monotonic() < deadline, "no listener found it"
            time.sleep(0.01)
        self.history.write(Made(id=id, due=now(), attempts=1))
        self.bridge.run_now(id)

    def start_bait(self, seconds: float) -> None:
        """Let this scene's listener, and no other, begin a task that takes so long."""
        pids = [0]
        while pids != [self.listener.pid]:
            task = self.bridge.make_task("recorded.work", [seconds, 0], 0, retry=[])
            self.history.write(Made(id=task.id, due=to_ms(task.due), attempts=1))
            pids = []
            while not pids:
                starts = (each for each in read(self.history.folder) if isinstance(each, Started))
                pids = [start.pid for start in starts if start.id == task.id]

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
        EmbeddedServer(binary=binary, options=options, directory=directory) as server,
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
        EmbeddedServer(binary=binary) as server,
        way(server.port) as between,
        Bridge(server.url) as bridge,
        redis.Redis.from_url(server.url) as client,
        recorded_listener(between.url, folder, history, lease=lease) as listener,
    ):
        yield Scene(server, bridge, client, folder, history, listener, lease), between
