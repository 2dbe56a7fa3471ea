"""The demo: a real server, a real listener, and a check that a task of each kind ran."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import redis
import typer

from expirebridge.bridge import Bridge
from expirebridge.cli.output import print_line
from expirebridge.embedded.cluster import FEWEST, EmbeddedCluster
from expirebridge.embedded.resources import example_tasks
from expirebridge.embedded.server import HOST, EmbeddedServer
from expirebridge.errors import ExpirebridgeError
from expirebridge.task.texts import plural

SETTLE = 1.0
"""Seconds that the demo waits after the last due time, for what must not run."""
PATIENCE = 10.0
"""Seconds after its due time in which a task must start. What has not is waited for as long."""
START_LIMIT = 60.0


@dataclass
class DemoKind:
    """A kind of task, how it should run, and what the handlers recorded."""

    about: str
    id: str
    due: float
    """The expected time of its last attempt, in seconds since 1970."""
    attempts: int = 1
    """The number of attempts expected. 0: it must not run."""
    runs: list[dict[str, float]] = field(default_factory=list)

    def fault(self) -> str | None:
        """The failure, if there was one."""
        if len(self.runs) != self.attempts:
            return f"ran {plural(len(self.runs), 'time', 'times')} instead of {self.attempts}"
        if any(run["started"] < run["due"] for run in self.runs):
            return "ran before it was due"
        if self.runs and self.runs[-1]["started"] < self.due - 0.1:
            return "ran before it was expected"
        if any(run["started"] > run["due"] + PATIENCE for run in self.runs):
            return "ran late"
        return None


def demo(
    tasks: Annotated[
        Path | None,
        typer.Option(help="A folder with the example handlers.  [default: those installed]"),
    ] = None,
    cluster: Annotated[
        int | None,
        typer.Option(
            min=FEWEST, metavar="PRIMARIES", help="On a cluster of so many primaries, 3 or more."
        ),
    ] = None,
) -> None:
    """Run tasks of every kind, and show when each one started.

    Starts a server, or a cluster, and a listener of its own. Needs only the embedded server (pip
    install 'expirebridge[server]').

    Example: expirebridge demo

    Example: expirebridge demo --cluster 3
    """
    handlers = tasks or example_tasks()
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="expirebridge-demo-") as folder:
        journal = Path(folder, "journal")
        journal.touch()
        with (
            _server(cluster, Path(folder, "server")) as (url, client),
            _listener(url, handlers, journal),
            Bridge(url) as bridge,
        ):
            print_line(f"listener  handlers from {handlers}")
            kinds = _make_tasks(bridge, client)
            _watch(journal, kinds)
    faults = _summary(kinds)
    if faults:
        raise ExpirebridgeError(f"{faults} of {len(kinds)} kinds of task did not run as expected")


@contextmanager
def _server(
    cluster: int | None, directory: Path
) -> Iterator[tuple[str, redis.Redis | redis.RedisCluster]]:
    """The URL of a server or a cluster, and a plain client of it."""
    client: redis.Redis | redis.RedisCluster
    if cluster is None:
        with EmbeddedServer(directory=directory) as server:
            print_line(f"server    {server.binary.name} on {server.url}")
            with redis.Redis.from_url(server.url) as client:
                yield server.url, client
        return
    with EmbeddedCluster(cluster, directory=directory) as nodes:
        print_line(f"cluster   {len(nodes.nodes)} nodes on {nodes.url}")
        with redis.RedisCluster(HOST, nodes.nodes[0].port) as client:
            yield nodes.url, client


def _make_tasks(bridge: Bridge, client: redis.Redis | redis.RedisCluster) -> list[DemoKind]:
    """Make a task of each kind. The client stands for any program in any language."""
    delayed = bridge.make_task("mail.send", [42, "welcome"], "2s")
    plain = bridge.make_task(
        "orders.rate", [17], at=datetime.now(UTC) + timedelta(seconds=3), tags=["order-17"]
    )
    keepalive = bridge.make_task("devices.offline", ["sensor-7"], "3s")
    put_off = time.time() + 4
    client.expire(keepalive.key, 4)
    cancelled = bridge.make_task("mail.send", [42, "never sent"], "3s")
    bridge.cancel(cancelled.id)
    retried = bridge.make_task("payments.callback", [99], "1s")
    bare, bare_due = uuid.uuid4().hex, time.time() + 2.5
    client.set(bridge.key_of(bare, "mail.send", [7, "from redis-cli"]), "", px=2500)
    return [
        DemoKind("after a delay, async handler", delayed.id, delayed.due.timestamp()),
        DemoKind("at a time, plain handler", plain.id, plain.due.timestamp()),
        DemoKind("put off by a plain EXPIRE", keepalive.id, put_off),
        DemoKind("cancelled", cancelled.id, cancelled.due.timestamp(), attempts=0),
        DemoKind("fails twice, is retried", retried.id, retried.due.timestamp() + 2, attempts=3),
        DemoKind("set by a bare SET ... PX", bare, bare_due),
    ]


def _watch(journal: Path, kinds: list[DemoKind]) -> None:
    """Print each start as it is recorded, until all that must come have, and no more can."""
    print_line(f"\n{'due':<13} {'started':<13} {'late':>8}  task")
    by_id = {kind.id: kind for kind in kinds}
    last_due = max(kind.due for kind in kinds)
    with journal.open() as lines:
        while time.time() < last_due + _waits_for(kinds):
            line = lines.readline()
            if not line.endswith("\n"):
                time.sleep(0.02)
                continue
            run = json.loads(line)
            kind = by_id[run["id"]]
            kind.runs.append(run)
            attempt = f", attempt {run['attempt']}" if kind.attempts > 1 else ""
            late = f"{(run['started'] - run['due']) * 1000:.1f} ms"
            print_line(
                f"{_clock(run['due']):<13} {_clock(run['started']):<13} {late:>8}  "
                f"{run['func']}: {kind.about}{attempt}"
            )


def _waits_for(kinds: list[DemoKind]) -> float:
    """For how many seconds after the last due time more may come."""
    return PATIENCE if any(len(kind.runs) < kind.attempts for kind in kinds) else SETTLE


def _summary(kinds: list[DemoKind]) -> int:
    print_line()
    faults = 0
    for kind in kinds:
        fault = kind.fault()
        faults += fault is not None
        expected = {0: "did not run"}.get(kind.attempts, f"ran {kind.attempts}x")
        print_line(f"{'ok   ' if fault is None else 'FAULT'} {kind.about}: {fault or expected}")
    late = [(run["started"] - run["due"]) * 1000 for kind in kinds for run in kind.runs]
    if late:
        print_line(f"\n{plural(len(late), 'start', 'starts')}, at most {max(late):.1f} ms late")
    return faults


@contextmanager
def _listener(url: str, handlers: Path, journal: Path) -> Iterator[None]:
    """A listener in a process of its own, as in production."""
    log = journal.with_name("listener.log")
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-m", "expirebridge", "listen", "--tasks", handlers],
            env=os.environ | {"EXPIREBRIDGE_URL": url, "EXPIREBRIDGE_JOURNAL": str(journal)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        with Bridge(url) as bridge:
            _wait_for_listener(process, bridge, log)
        yield
    finally:
        process.terminate()
        process.wait()


def _wait_for_listener(process: subprocess.Popen[bytes], bridge: Bridge, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while not bridge.count().listeners:
        if process.poll() is not None or time.monotonic() > deadline:
            raise ExpirebridgeError(f"the listener did not start:\n{log.read_text()[-2000:]}")
        time.sleep(0.02)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
