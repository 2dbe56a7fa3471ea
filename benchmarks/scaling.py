"""How late tasks are through a peak, with a fixed number of listeners, or one that is scaled.

The usual load is 20 tasks a second that take 0.2 s each; for a minute it is ten times as much. All
are made before, as they are where somebody plans ahead. A listener runs ten tasks at once, and one
that an autoscaler starts is there after 15 s, as a new machine or container is. Three ways, each on
a server of its own:

- `fixed`: so many listeners from beginning to end;
- `overdue`: as many as the running tasks take, and one for each 50 overdue tasks, as an autoscaler
  on the length of a queue has it;
- `ahead`: as many as `expirebridge scale --ahead 30s --within 5s` says.

Every five seconds the number is read, and listeners are started, ten at most, or stopped once it
has been lower for 30 s. Printed for each way: the lateness of the tasks of the peak, and of the
others, and the seconds that listeners ran in all.

    python -m benchmarks.scaling [--ways fixed,overdue,ahead] [--fixed 2]
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.growing import listener
from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer

CONCURRENCY = 10
TAKES = 0.2
USUAL, PEAK = 20, 200
"""Tasks a second."""
BEFORE, DURING, AFTER = 45, 60, 45
"""Seconds of the usual load, of the peak, and of the usual load again."""
MOST = 10
"""Listeners."""
IN_A_SECOND = CONCURRENCY / TAKES
"""Tasks that one listener runs."""
STARTS_IN = 15.0
LOOK_EVERY = 5.0
STOP_AFTER = 30.0
HANDLERS = f"""
import asyncio
import os
import time
from pathlib import Path

from expirebridge import current_task

late = (Path(__file__).parent.parent / f"late-{{os.getpid()}}").open("a", buffering=1)


async def work(number):
    due = current_task().due.timestamp()
    late.write(f"{{due}} {{time.time() - due}}\\n")
    await asyncio.sleep({TAKES})
"""


def ahead(url: str) -> int:
    words = ("scale", "--ahead", "30s", "--within", "5s", "--concurrency", str(CONCURRENCY))
    return int(asked(url, *words)["listeners"])


def overdue(url: str) -> int:
    numbers = asked(url, "count")
    return math.ceil(numbers["running"] / (CONCURRENCY * 0.8) + numbers["overdue"] / IN_A_SECOND)


def asked(url: str, *words: str) -> dict[str, int]:
    command = [sys.executable, "-m", "expirebridge", *words, "--json", "--url", url]
    answer = subprocess.run(command, check=True, capture_output=True)
    found: dict[str, int] = json.loads(answer.stdout)
    return found


class Fleet:
    """Listeners that an autoscaler starts and stops."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._url, self._folder, self._stack = url, folder, stack
        self._up: list[subprocess.Popen[bytes]] = []
        self._coming: list[float] = []
        self._lower_since: float | None = None
        self.seconds = 0.0
        """How long they ran in all, from when they were asked for."""
        self._looked = time.monotonic()

    def start(self) -> None:
        """Start a listener at once."""
        options = ("--concurrency", str(CONCURRENCY))
        self._up.append(listener(self._url, self._folder, self._stack, *options))

    def tend(self) -> None:
        """Start those whose machine is there by now."""
        now = time.monotonic()
        self.seconds += (len(self._up) + len(self._coming)) * (now - self._looked)
        self._looked = now
        while self._coming and self._coming[0] <= now:
            self._coming.pop(0)
            self.start()

    def want(self, count: int) -> None:
        """Ask for more at once, and let some go once there have been too many for a while."""
        count, now = min(max(count, 1), MOST), time.monotonic()
        have = len(self._up) + len(self._coming)
        self._coming += [now + STARTS_IN] * (count - have)
        if count >= have:
            self._lower_since = None
        elif self._lower_since is None:
            self._lower_since = now
        elif now - self._lower_since >= STOP_AFTER:
            for _ in range(len(self._up) - count):
                self._up.pop().terminate()


def make_all(url: str, begin: datetime) -> int:
    dues = [n / USUAL for n in range(BEFORE * USUAL)]
    dues += [BEFORE + n / PEAK for n in range(DURING * PEAK)]
    dues += [BEFORE + DURING + n / USUAL for n in range(AFTER * USUAL)]
    with Bridge(url) as bridge:
        bridge.make_tasks(
            {"func": "load.work", "args": [n], "at": begin + timedelta(seconds=due)}
            for n, due in enumerate(dues)
        )
    return len(dues)


def run(way: Callable[[str], int] | None, fixed: int) -> tuple[Fleet, list[tuple[float, float]]]:
    """Run the whole load once; returns due time since the beginning, and lateness, of each task."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tasks"
        folder.mkdir()
        (folder / "load.py").write_text(HANDLERS)
        begin = datetime.now(UTC) + timedelta(seconds=8)
        count = make_all(server.url, begin)
        fleet = Fleet(server.url, folder, stack)
        for _ in range(1 if way else fixed):
            fleet.start()
        look_at = time.monotonic()
        found: list[tuple[float, float]] = []
        end = time.monotonic() + BEFORE + DURING + AFTER + 120
        while len(found) < count and time.monotonic() < end:
            fleet.tend()
            if way and time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_EVERY
                fleet.want(way(server.url))
            time.sleep(0.2)
            found = read(folder.parent, begin)
        if len(found) < count:
            raise SystemExit(f"{count - len(found)} of {count} tasks did not begin")
        return fleet, found


def read(folder: Path, begin: datetime) -> list[tuple[float, float]]:
    """What the handlers wrote."""
    lines = [line.split() for file in folder.glob("late-*") for line in file.open()]
    return [(float(due) - begin.timestamp(), float(late)) for due, late in lines]


def shown(late: list[float]) -> str:
    late.sort()
    p50, p99 = (late[math.ceil(len(late) * share) - 1] for share in (0.5, 0.99))
    return f"p50 {p50 * 1000:8,.0f} ms  p99 {p99 * 1000:8,.0f} ms  longest {late[-1]:6.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", default="fixed,overdue,ahead")
    parser.add_argument("--fixed", type=int, default=2)
    options = parser.parse_args()
    ways = {"fixed": None, "overdue": overdue, "ahead": ahead}
    for name in options.ways.split(","):
        fleet, found = run(ways[name], options.fixed)
        peak = [late for due, late in found if BEFORE <= due < BEFORE + DURING]
        others = [late for due, late in found if not BEFORE <= due < BEFORE + DURING]
        print(f"{name:8} in the peak  {shown(peak)}   listeners' seconds {fleet.seconds:,.0f}")
        print(f"{'':8} otherwise    {shown(others)}", flush=True)


if __name__ == "__main__":
    main()
