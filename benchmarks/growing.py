"""How long it takes to move all tasks to another server, and for how long each of them waits.

Two servers: an old one with one partition, and a new one with 16, each with a listener. So many
tasks wait at the old one for an hour and more. Then they are moved, by
`expirebridge.moving.migrator` in this process, while a producer goes on at the old one, 50
tasks a second that are due after 6 s. Printed:

- how long the move took, and how many tasks a second that is;
- how long a task was in no database: from the call that packed its batch to the reply that it
  arrived;
- how late the producer's tasks began meanwhile;
- the CPU time of servers and mover for each task.

    python -m benchmarks.growing [--tasks 100000] [--partitions 16]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import redis

from benchmarks.adoption import cpu
from expirebridge import Bridge, ServerUnreachable, State
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.moving.migrator import Migrator
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions

HANDLER = "def tick():\n    pass\n"
EVERY = 0.02
AHEAD = 6.0


def listener(url: str, folder: Path, stack: ExitStack, *options: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "expirebridge", "listen", "--url", url, "--tasks", str(folder)]
    with (folder.parent / "log").open("ab") as log:
        process = subprocess.Popen([*words, "--quiet", *options], stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def fill(url: str, count: int) -> None:
    with Bridge(url) as bridge:
        for begin in range(0, count, 10_000):
            items = [
                {
                    "func": "mail.send",
                    "args": [n],
                    "delay": 3600 + n % 3600,
                    "id": f"order-{n}",
                    "if_exists": "keep",
                }
                for n in range(begin, min(begin + 10_000, count))
            ]
            while True:
                try:
                    bridge.make_tasks(items)
                    break
                except ServerUnreachable:
                    continue  # the machine is busy


def patient(url: str) -> Partitions:
    """A store that waits for its answers, however busy the machine is."""
    client = redis.Redis.from_url(url, protocol=2, socket_timeout=600)
    return Partitions(client, prefix="expirebridge")


class Producer(threading.Thread):
    """Makes tasks until it is stopped."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.made = 0
        self.over = threading.Event()
        self._url = url

    def run(self) -> None:
        with Bridge(self._url) as bridge:
            while not self.over.wait(EVERY):
                with suppress(ServerUnreachable):  # the machine is busy
                    bridge.make_task("clock.tick", [], AHEAD)
                    self.made += 1


def lateness(urls: list[str]) -> list[float]:
    """The ms by which each of the producer's tasks began late."""
    late = []
    for url in urls:
        with Bridge(url) as bridge:
            cursor = None
            while True:
                page = bridge.list(state=State.SUCCEEDED, limit=1000, cursor=cursor)
                late += [
                    (task.started - task.due).total_seconds() * 1000
                    for task in page.tasks
                    if task.started is not None
                ]
                cursor = page.cursor
                if cursor is None:
                    break
    return sorted(late)


def share(values: list[float], part: float) -> float:
    return values[min(int(len(values) * part), len(values) - 1)] if values else 0.0


class Timed:
    """Notes how long each batch was on its way."""

    def __init__(self, mover: Migrator) -> None:
        self.transits: list[float] = []
        self._packed = 0.0
        self._source, self._target = mover._source.run, mover._target.run
        mover._source.run = self._pack  # type: ignore[method-assign, assignment]
        mover._target.run = self._receive  # type: ignore[method-assign, assignment]

    def _pack(self, call: Any) -> Any:
        if getattr(call, "name", "") == "pack_batch":
            self._packed = time.perf_counter()
        return self._source(call)

    def _receive(self, call: Any) -> Any:
        reply = self._target(call)
        if getattr(call, "name", "") == "receive_batch":
            self.transits.append((time.perf_counter() - self._packed) * 1000)
        return reply


def servers(
    stack: ExitStack, tasks: int, partitions: int
) -> tuple[EmbeddedServer, EmbeddedServer, Path]:
    """The old one with its tasks, the new one with its partitions, and a folder of handlers."""
    old, new = (stack.enter_context(EmbeddedServer()) for _ in range(2))
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tasks"
    folder.mkdir()
    (folder / "clock.py").write_text(HANDLER)
    with Bridge(new.url) as bridge:
        bridge.create_partitions(partitions)
    fill(old.url, tasks)
    return old, new, folder


def measure(tasks: int, partitions: int) -> None:
    with ExitStack() as stack:
        old, new, folder = servers(stack, tasks, partitions)
        clients = [stack.enter_context(redis.Redis.from_url(side.url)) for side in (old, new)]
        held = clients[0].info("memory")["used_memory"]
        first = listener(old.url, folder, stack)
        listener(new.url, folder, stack)
        producer = Producer(old.url)
        time.sleep(AHEAD)  # both are up, and what they heard of is looked at
        producer.start()
        time.sleep(AHEAD)
        sides = [Settings(url=side.url) for side in (old, new)]
        source, target = (stack.enter_context(closing(patient(side.url))) for side in sides)
        mover = Migrator(source, target, *sides)
        timed = Timed(mover)
        pids = [old.pid or 0, new.pid or 0, os.getpid()]
        before = [cpu(pid) for pid in pids]
        mover.begin()
        began = time.monotonic()
        mover.run_pass()
        took = time.monotonic() - began
        carried = mover.moved.tasks
        used = [
            (after - then) / carried * 1e6
            for after, then in zip(map(cpu, pids), before, strict=True)
        ]
        end = time.monotonic() + 2 * AHEAD
        while time.monotonic() < end:
            mover.run_pass()
            time.sleep(0.25)
        producer.over.set()
        producer.join()
        began = time.monotonic()
        mover_to_end = threading.Thread(target=mover.run)
        mover_to_end.start()
        first.terminate()
        first.wait()
        mover_to_end.join()
        rest = time.monotonic() - began
        time.sleep(AHEAD + 1)
        late, transits = lateness([new.url]), sorted(timed.transits)
        print(f"{tasks:,} tasks to {partitions} partitions, {held / tasks:.0f} B each")
        print(f"carried over in {took:.1f} s: {carried / took:,.0f}/s")
        print(
            f"in no database: p50 {share(transits, 0.5):.1f} ms, "
            f"p99 {share(transits, 0.99):.1f} ms, "
            f"longest {transits[-1]:.1f} ms of {len(transits):,} batches"
        )
        print(f"from the old listener's SIGTERM until all was carried over: {rest:.2f} s")
        print(
            f"the producer's {producer.made:,} tasks, of which {len(late):,} ran: late p50 "
            f"{share(late, 0.5):.1f} ms, p99 {share(late, 0.99):.1f} ms, at most {late[-1]:.1f} ms"
        )
        shown = ", ".join(
            f"{who} {each:.1f}" for who, each in zip(("old", "new", "mover"), used, strict=True)
        )
        print(f"CPU for each task, in µs: {shown}")
        counts = [client.info("memory")["used_memory"] for client in clients]
        print(f"bytes afterwards: {counts[0]:,} old, {counts[1]:,} new")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=16)
    given = parser.parse_args()
    measure(given.tasks, given.partitions)


if __name__ == "__main__":
    main()
