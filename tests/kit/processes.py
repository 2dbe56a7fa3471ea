"""Listeners as processes of their own, and a channel on which their handlers report."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import redis

from expirebridge import current_task
from tests.kit.patience import PATIENCE, until
from tests.kit.process_logs import noted

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "expirebridge")

HANDLERS = '''
"""Handlers that report."""
import asyncio, time
from tests.kit.processes import met, released, report

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

async def meet(count):
    report("ran")
    await met(count)

async def wait():
    report("started")
    await released()
    report("ended")
'''


def report(word: str) -> None:
    """Tell the test, from a handler: into a list in database 2, on which it waits."""
    task = current_task()
    line = f"{word} {task.id} {os.getpid()} {task.attempt} {time.time()}"
    _reporting_client().rpush("reports", line)


async def met(count: int) -> None:
    """Wait, in a handler, until handlers in so many processes do."""
    client = _reporting_client()
    client.sadd("met", os.getpid())
    while int(client.scard("met")) < count:  # noqa: ASYNC110 - other processes
        await asyncio.sleep(0.01)


async def released() -> None:
    """Wait, in a handler, until the test calls `Reports.release`."""
    client = _reporting_client()
    while not client.exists("released"):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.01)


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

    def release(self) -> None:
        """Let the handlers end that wait for it."""
        self.client.set("released", 1)

    def next(self) -> Report:
        """The next report, waited for."""
        popped: Any = self.client.blpop(["reports"], timeout=PATIENCE)
        assert popped is not None, f"no report in {PATIENCE} s"
        return Report(popped[1])


def _options_of(words: Iterable[str]) -> str:
    """The options of `listen` in these words, as its process passes them on to its successor."""
    # Here: handlers import this module, and need none of these.
    import pytest

    from expirebridge.cli import listen
    from tests.kit.invoked import invoke

    found: list[Mapping[str, Any]] = []

    def take(options: Mapping[str, Any]) -> None:
        found.append(options)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listen, "become_listener", take)
        invoke("listen", *words, url="")
    return json.dumps(found[0])


@contextmanager
def launched(
    url: str, folder: Path, *options: str, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`expirebridge listen` as a process; it logs to `<folder>/../listeners.log`.

    Its options were read here: the process that does so otherwise, and is replaced by the one that
    listens, takes as long as that one to start. With `--reload` it reads them itself.
    """
    port = url.rpartition(":")[2].partition("/")[0]
    words = ["--tasks", str(folder), "--url", url, *options]
    # Its handlers report with the help of this very module.
    env = {"REPORTS_PORT": port, "PYTHONPATH": str(ROOT)} | env
    command = COMMAND
    if "--reload" not in options:
        command = (sys.executable, "-m", "tests.kit.listen")
        env["OPTIONS"] = _options_of(words)
    with noted(folder.parent / "listeners.log").open("ab") as output:
        process = subprocess.Popen(
            [*command, "listen", *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | env,
        )
    try:
        yield process
    finally:
        if "--reload" in options:  # what that has started would go on for a while
            for child in children_of(process.pid):
                os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()


@contextmanager
def listener(
    url: str, folder: Path, *options: str, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A listener process, up when the block begins; it logs to `<folder>/../listeners.log`."""
    # Here: handlers of other versions, which have no such module, import this one.
    from expirebridge.connection.clients import probe_client

    with probe_client(url) as client, launched(url, folder, *options, **env) as process:
        tags = ("{021}",) if "+cluster" in url else ("", "{021}")

        def beats() -> bool:
            assert process.poll() is None, log_of(folder)
            return _beats(client, process.pid, tags)

        until(beats, "the first heartbeat")
        yield process


@contextmanager
def workers(
    url: str, folder: Path, count: int, *options: str, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A parent of so many workers: all are ready when the block begins, and none is left after it.

    They log where a listener does.
    """
    words = ("--workers", str(count), *options)
    with launched(url, folder, *words, **env) as parent:
        try:
            for number in range(1, count + 1):
                until_logged(f"worker {number} is ready", folder, process=parent)
            yield parent
        finally:
            left = children_of(parent.pid)
            with until_ended(left):
                parent.kill()
                for pid in left:
                    os.kill(pid, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """The processes that this one has started and that live, the oldest first."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except FileNotFoundError:
        return []


@contextmanager
def until_ended(pids: Iterable[int]) -> Iterator[None]:
    """After the block, wait until these processes have ended.

    They need not be children of this process.
    """
    ends: dict[int, int] = {}
    try:
        for pid in pids:
            with suppress(ProcessLookupError):  # it ended a moment ago
                ends[os.pidfd_open(pid)] = pid
        yield
        for end, pid in ends.items():
            assert select.select([end], [], [], PATIENCE)[0], f"process {pid} lives on"
    finally:
        for end in ends:
            os.close(end)


def _beats(client: redis.Redis, pid: int, tags: Iterable[str]) -> bool:
    """Whether this process's listener has beaten; dead ones are in the list for a while, too.

    With several partitions, it beats in the first as well.
    """
    names: list[bytes] = []
    for tag in tags:
        # A login that is made for one partition may not ask; a busy machine may answer late.
        with suppress(redis.exceptions.NoPermissionError, redis.exceptions.TimeoutError):
            found: Any = client.zrange(f"{tag}expirebridge:listeners", 0, -1)
            names += found
    return any(name.split(b":")[-2] == b"%d" % pid for name in names)


def until_subscribed(url: str, count: int = 1) -> None:
    """Wait until so many listeners hear key events."""
    with redis.Redis.from_url(url) as client:
        database = client.get_connection_kwargs()["db"]
        channel = f"__keyevent@{database}__:expired"
        until(lambda: client.pubsub_numsub(channel)[0][1] >= count, f"{count} subscribed listeners")


def log_of(folder: Path) -> str:
    """What listeners with this handlers' folder have logged."""
    return (folder.parent / "listeners.log").read_text()


def until_logged(
    words: str, folder: Path, *, times: int = 1, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Wait until the listeners' log holds these words so often. Fails if `process` ends before."""

    def are_logged() -> bool:
        if log_of(folder).count(words) >= times:
            return True
        assert process is None or process.poll() is None, log_of(folder)
        return False

    until(are_logged, f"the listeners' words: {words}")


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
