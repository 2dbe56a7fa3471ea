"""A scene of the server's faults: a server of the test's own, a listener, and a producer."""

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from expirebridge import Bridge
from expirebridge.server import Server
from tests.checker import Verdict
from tests.faults.stage import judge, recorded_listener, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.history import Writer

LEASE = 1.0


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

    def stream(self, chance: random.Random) -> Stream:
        """A producer that makes tasks for as long as its block runs."""
        return Stream(self.server.url, self.history, chance=chance)

    def log(self) -> str:
        """What the listener has logged."""
        return (self.folder.parent / "listeners.log").read_text()

    def judge(self, fault: Fault) -> Verdict:
        """Wait until every task has ended, and give the verdict."""
        until_finished(self.bridge)
        return judge(fault, self.server, self.bridge, self.history, lease=LEASE)


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
        yield Scene(server, bridge, client, folder, history, listener)
