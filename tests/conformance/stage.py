"""A listener in a process of its own, and what its handlers wrote down."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.clients import HOST, Client
from tests.kit.cluster import Cluster
from tests.kit.patience import until
from tests.kit.processes import listener, log_of, until_subscribed
from tests.kit.processes import run as run_command

ACTS = """
import asyncio
from expirebridge import handler
from tests.conformance.journal import write_down

def note(*args, **kwargs):
    write_down(args, kwargs)

async def hold(seconds):
    write_down((seconds,), {})
    await asyncio.sleep(seconds)

@handler(retry=[0.01])
def fail():
    write_down((), {})
    raise ValueError("no")
"""
MAIL = """
from tests.conformance.journal import write_down

def send(user, subject):
    write_down((user, subject), {})
"""


@dataclass(frozen=True)
class Run:
    """One call of a handler."""

    id: str
    args: list[Any]
    kwargs: dict[str, Any]
    at: float


class Play:
    """A listener's folder, and the journal of what ran."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self._tasks = folder / "tasks"
        self._journal = folder / "journal"
        self._tasks.mkdir(parents=True)
        self._journal.touch()
        (self._tasks / "acts.py").write_text(ACTS)
        (self._tasks / "mail.py").write_text(MAIL)

    @contextmanager
    def listening(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """A listener that hears key events when the block begins."""
        with listener(self.url, self._tasks, *options, JOURNAL=str(self._journal)) as process:
            for url in self.heard():
                until_subscribed(url)
            yield process

    def heard(self) -> Iterable[str]:
        """The servers whose key events are heard."""
        return [self.url]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """What a listener logged of an event, if it logs in JSON."""
        lines = map(json.loads, log_of(self._tasks).splitlines())
        return [line for line in lines if line.get("event") == event]

    def runs(self, id: str) -> list[Run]:
        """What was written down of a task."""
        whole = self._journal.read_text().rpartition("\n")[0]
        found = [Run(**json.loads(line)) for line in whole.splitlines()]
        return [run for run in found if run.id == id]

    def ran(self, id: str) -> Run:
        """Wait until a task has run, and give what was written down; it must have run once."""
        until(lambda: self.runs(id))
        [run] = self.runs(id)
        return run

    def command(self, *words: str) -> Any:
        """What the command `expirebridge` prints as JSON."""
        done = run_command(*words, "--json", url=self.url)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


class Stage(Play):
    """A database of a server."""

    def __init__(self, port: int, database: int, folder: Path, version: tuple[int, ...]) -> None:
        super().__init__(f"redis://{HOST}:{port}/{database}", folder)
        self.port, self.database, self.version = port, database, version


class ClusterStage(Play):
    """A database in a cluster, with a partition for each part of the slots."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster.url, folder)
        self.cluster = cluster

    def heard(self) -> Iterable[str]:
        return [f"redis://{HOST}:{node.port}/0" for node in self.cluster.nodes]


def state(client: Client, id: str) -> str:
    """The state in a task's record, as the protocol has it; "" while it is pending."""
    return client.send("HGET", f"expirebridge:task:{id}", "state")


def until_known(client: Client, id: str) -> None:
    """Wait until a listener has made a record of a key that was set."""
    until(lambda: client.send("EXISTS", f"expirebridge:task:{id}") == "1")
