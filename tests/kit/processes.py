"""Listeners as processes of their own, and a channel on which their handlers report."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import redis

from expirebridge import current_task

PATIENCE = 30
ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "expirebridge")

HANDLERS = '''
"""Handlers that report."""
import asyncio, time
from tests.kit.processes import report

async def note():
    report("ran")

async def hold(seconds=60):
    report("started")
    await asyncio.sleep(seconds)
    report("ended")

def block(seconds=60):
    report("started")
    time.sleep(seconds)
    report("ended")

async def work():
    await asyncio.sleep(0.005)
    report("ran")
'''


def report(word: str) -> None:
    """Tell the test, from a handler: into a list in database 2, on which it waits."""
    task = current_task()
    line = f"{word} {task.id} {os.getpid()} {task.attempt} {time.time()}"
    _reporting_client().rpush("reports", line)


@cache
def _reporting_client() -> redis.Redis:
    return redis.Redis(port=int(os.environ["REPORTS_PORT"]), db=2)


class Report:
    """One line from a handler."""

    def __init__(self, line: bytes) -> None:
        word, self.id, pid, attempt, at = line.decode().split()
        self.word, self.pid, self.attempt, self.at = word, int(pid), int(attempt), float(at)


class Reports:
    """What handlers reported, waited for."""

    def __init__(self, port: int) -> None:
        self.client = redis.Redis(port=port, db=2, socket_timeout=PATIENCE + 10)

    def next(self) -> Report:
        """The next report; fails if none comes in 30 s."""
        popped: Any = self.client.blpop(["reports"], timeout=PATIENCE)
        assert popped is not None, f"no report in {PATIENCE} s"
        return Report(popped[1])


@contextmanager
def listener(
    url: str, folder: Path, *options: str, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A listener process, up when the block begins; it logs to `<folder>/../listeners.log`."""
    port = url.rpartition(":")[2].partition("/")[0]
    # Its handlers report with the help of this very module.
    env |= {"REPORTS_PORT": port, "PYTHONPATH": str(ROOT)}
    with redis.Redis.from_url(url) as client:
        log = folder.parent / "listeners.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*COMMAND, "listen", "--tasks", folder, "--url", url, *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | env,
            )
        try:
            while not _beats(client, process.pid):
                assert process.poll() is None, log.read_text()
                time.sleep(0.01)
            yield process
        finally:
            process.kill()
            process.wait()


def _beats(client: redis.Redis, pid: int) -> bool:
    """Whether this process's listener has beaten; dead ones are in the list for a while, too."""
    names: Any = client.zrange("expirebridge:listeners", 0, -1)
    return any(name.split(b":")[-2] == b"%d" % pid for name in names)


def until_subscribed(url: str) -> None:
    """Wait until a listener hears key events; the test's own timeout is the limit."""
    with redis.Redis.from_url(url) as client:
        database = client.get_connection_kwargs()["db"]
        while not client.pubsub_numsub(f"__keyevent@{database}__:expired")[0][1]:
            time.sleep(0.01)


def until_logged(words: str, folder: Path) -> None:
    """Wait until the listeners' log holds these words; the test's own timeout is the limit."""
    log = folder.parent / "listeners.log"
    while words not in log.read_text():
        time.sleep(0.01)


def run(*words: str | Path, url: str | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    surroundings = os.environ | env | ({"EXPIREBRIDGE_URL": url} if url else {})
    return subprocess.run(
        [*COMMAND, *words],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
