"""Lateness: how long after its due time a task's handler begins.

1,000 tasks come due evenly over 10 s, while nothing else is pending, and while 200,000 others are.
Server, listener and producer are a process each, with the repository's redis.conf; the lateness of
a task is the time of its handler's first statement minus its due time, by the machine's one clock.

    python benchmarks/lateness.py --rounds 3 --baseline

How to read the table: `fired` of `tasks` were started, over all rounds; `twice` were started more
than once; `early` were started before they were due, which must never be, and makes the exit code
1. p50 and p99 are the medians of the rounds' own, `max` is the worst of all, in milliseconds. A
task that was not started within 20 s of the last due time is infinitely late.

The listener is up before the others are made, and has come to rest when the tasks are: the scan of
the database that follows its start is not measured. The baseline is a bare subscriber to `expired`
events, on plain keys, on a server of its own.
"""

import argparse
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import redis

from expirebridge import Bridge
from expirebridge.server import Server, embedded_binary

LEAD = 2.0
"""Seconds between the making of the tasks and the first due time, beside the making itself."""
MADE_PER_SECOND = 2000
"""What is expected of the making at least."""
PATIENCE = 20.0
"""Seconds after the last due time at which waiting ends."""
READY_LIMIT = 120.0
STOP_LIMIT = 15.0
AT_REST = 30
"""Scripts that a listener at rest calls within two seconds, at most."""
AN_HOUR = 3600
BATCH = 10_000

HANDLER = """
import os, time

JOURNAL = os.open(os.environ["LATENESS_JOURNAL"], os.O_WRONLY | os.O_APPEND)

async def note(number: int) -> None:
    started = time.time()
    os.write(JOURNAL, f"{number} {started!r}\\n".encode())
"""

SUBSCRIBER = """
import asyncio, os, sys, time
from redis.asyncio import Redis

JOURNAL = os.open(os.environ["LATENESS_JOURNAL"], os.O_WRONLY | os.O_APPEND)

async def main() -> None:
    async with Redis.from_url(sys.argv[1]).pubsub() as pubsub:
        await pubsub.subscribe("__keyevent@1__:expired")
        async for message in pubsub.listen():
            started = time.time()
            if message["type"] == "message":
                number = message["data"].rpartition(b":")[2].decode()
                os.write(JOURNAL, f"{number} {started!r}\\n".encode())

asyncio.run(main())
"""


class Contender(Protocol):
    """Whose lateness is measured."""

    name: str

    def __init__(self, url: str) -> None: ...

    def command(self, folder: Path) -> list[str]:
        """The command of the process that runs what is due; its files go into `folder`."""
        ...

    def is_ready(self) -> bool:
        """Whether that process is up and has come to rest; asked every two seconds."""
        ...

    def fill(self, count: int) -> None:
        """Make tasks that are due in an hour or later."""
        ...

    def make(self, dues: dict[int, int]) -> None:
        """Make tasks by their numbers, due at those milliseconds."""
        ...

    def clear(self, dues: dict[int, int]) -> None:
        """Take away what is left of them."""
        ...


class Expirebridge:
    """The library, as its users run it."""

    name = "expirebridge"

    def __init__(self, url: str) -> None:
        self._url = url
        self._bridge = Bridge(url)
        self._client = redis.Redis.from_url(url)
        self._calls = self._scans = 0

    def command(self, folder: Path) -> list[str]:
        tasks = folder / f"lateness_tasks_{os.getpid()}"
        tasks.mkdir()
        (tasks / "probe.py").write_text(HANDLER)
        return [sys.executable, "-m", "expirebridge", "listen", "--url", self._url,
                "--tasks", str(tasks)]  # fmt: skip

    def is_ready(self) -> bool:
        # At rest a listener calls a few scripts a second, and scans nothing.
        stats: dict[str, Any] = self._client.info("commandstats")
        calls, scans = (
            stats.get(f"cmdstat_{command}", {}).get("calls", 0) for command in ("evalsha", "scan")
        )
        rests = 0 < calls - self._calls < AT_REST and scans == self._scans
        self._calls, self._scans = calls, scans
        return rests and self._bridge.count().listeners > 0

    def fill(self, count: int) -> None:
        for batch in _batches(range(count)):
            self._bridge.make_tasks(
                {"func": "probe.note", "args": [-1], "delay": AN_HOUR + n / 100} for n in batch
            )

    def make(self, dues: dict[int, int]) -> None:
        self._bridge.make_tasks(
            {"func": "probe.note", "args": [number], "at": _moment(due)}
            for number, due in dues.items()
        )

    def clear(self, dues: dict[int, int]) -> None:
        """Leave all as it is: what comes late is counted all the same."""


class BareSubscriber:
    """What one writes without a library: a subscriber to `expired` events of plain keys."""

    name = "bare subscriber"

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = redis.Redis.from_url(url)

    def command(self, folder: Path) -> list[str]:
        script = folder / "subscriber.py"
        script.write_text(SUBSCRIBER)
        return [sys.executable, str(script), self._url]

    def is_ready(self) -> bool:
        [(_, subscribers)] = self._client.pubsub_numsub("__keyevent@1__:expired")
        return bool(subscribers)

    def fill(self, count: int) -> None:
        for batch in _batches(range(count)):
            later = round(time.time() + AN_HOUR) * 1000
            self._set({f"other:{n}": later + n * 10 for n in batch})

    def make(self, dues: dict[int, int]) -> None:
        self._set({f"bare:{number}": due for number, due in dues.items()})

    def clear(self, dues: dict[int, int]) -> None:
        self._client.delete(*(f"bare:{number}" for number in dues))

    def _set(self, dues: dict[str, int]) -> None:
        # PXAT is what a PX becomes once the server has it; so the due time is known exactly.
        pipeline = self._client.pipeline(transaction=False)
        for name, due in dues.items():
            pipeline.set(name, b"", pxat=due)
        pipeline.execute()


@dataclass(frozen=True)
class Round:
    """What was seen of the tasks of one round."""

    lateness: list[float]
    """In ms, sorted; infinite for a task that was not started in time."""
    twice: int

    @classmethod
    def of(cls, dues: dict[int, int], starts: dict[int, list[float]]) -> Self:
        """Compare due times with starts."""
        end = max(dues.values()) + PATIENCE * 1000
        lateness = []
        for number, due in dues.items():
            started = min(starts[number], default=math.inf) * 1000
            lateness.append(started - due if started <= end else math.inf)
        return cls(sorted(lateness), sum(len(starts[number]) > 1 for number in dues))

    def percentile(self, percent: float) -> float:
        """The lateness that so many percent of the tasks do not exceed."""
        return self.lateness[math.ceil(len(self.lateness) * percent / 100) - 1]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    contender: str
    server: str
    version: str
    pending: int
    tasks: int
    fired: int
    twice: int
    early: int
    p50: float
    p99: float
    max: float
    rounds: list[dict[str, float]]

    @classmethod
    def of(
        cls, contender: str, server: str, version: str, pending: int, rounds: list[Round]
    ) -> Self:
        """Sum up the rounds."""
        every = [late for each in rounds for late in each.lateness]
        own = [{f"p{p:g}": each.percentile(p) for p in (50, 90, 99, 100)} for each in rounds]
        return cls(
            contender=contender,
            server=server,
            version=version,
            pending=pending,
            tasks=len(every),
            fired=sum(late < math.inf for late in every),
            twice=sum(each.twice for each in rounds),
            early=sum(late < 0 for late in every),
            p50=statistics.median(each["p50"] for each in own),
            p99=statistics.median(each["p99"] for each in own),
            max=max(every),
            rounds=own,
        )


class Worker:
    """The process that runs what is due, its journal of starts, and its log."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        self._contender = contender
        self._journal = folder / "journal"
        self._log = folder / "log"
        self._journal.touch()
        environment = os.environ | {"LATENESS_JOURNAL": str(self._journal)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                contender.command(folder), env=environment, cwd=folder, stdout=log, stderr=log
            )

    def starts(self) -> dict[int, list[float]]:
        """The times at which each task was started so far, by its number."""
        found: dict[int, list[float]] = defaultdict(list)
        for line in self._journal.read_text().splitlines():
            number, started = line.split()
            found[int(number)].append(float(started))
        return found

    def wait_until_ready(self) -> None:
        """Wait until the process has come to rest."""
        if not self.wait_until(self._contender.is_ready, every=2, limit=READY_LIMIT):
            raise SystemExit(f"{self._contender.name}: not at rest within {READY_LIMIT:g} s")

    def wait_until(self, reached: Callable[[], bool], *, every: float, limit: float) -> bool:
        """Wait until `reached`, at most `limit` seconds; say whether it was."""
        deadline = time.monotonic() + limit
        while not reached():
            if self._process.poll() is not None:
                raise SystemExit(f"the listener ended by itself:\n{self._log.read_text()[-2000:]}")
            if time.monotonic() > deadline:
                return False
            time.sleep(every)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def measure(
    kind: type[Contender], binary: Path, *, pending: int, tasks: int, seconds: float, rounds: int
) -> tuple[str, list[Round]]:
    """Run the rounds, on a server and with a worker of their own; also give back its version."""
    with Server(binary=binary) as server, _temporary_folder() as folder:
        contender = kind(server.url)
        every: list[dict[int, int]] = []
        with Worker(contender, folder) as worker:
            worker.wait_until_ready()
            contender.fill(pending)
            worker.wait_until_ready()
            for number in range(rounds):
                every.append(_run_round(contender, worker, number * tasks, tasks, seconds))
        # Read at the very end: a second start of an early round's task is seen too.
        starts = worker.starts()
        return _version(server.url), [Round.of(dues, starts) for dues in every]


def _run_round(
    contender: Contender, worker: Worker, first: int, tasks: int, seconds: float
) -> dict[int, int]:
    begin = time.time() + LEAD + tasks / MADE_PER_SECOND
    dues = {first + n: round((begin + n * seconds / tasks) * 1000) for n in range(tasks)}
    contender.make(dues)
    if time.time() > begin - LEAD / 2:
        raise SystemExit(f"making {tasks:,} tasks took too long to measure how late they are")
    time.sleep(max(begin + seconds - time.time(), 0))
    worker.wait_until(lambda: dues.keys() <= worker.starts().keys(), every=0.5, limit=PATIENCE)
    contender.clear(dues)
    return dues


def _version(url: str) -> str:
    with redis.Redis.from_url(url) as client:
        info: dict[str, Any] = client.info("server")
    return str(info.get("valkey_version") or info["redis_version"])


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="expirebridge-lateness-") as name:
        yield Path(name)


def _batches(numbers: range) -> Iterator[range]:
    for at in range(0, len(numbers), BATCH):
        yield numbers[at : at + BATCH]


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)


def find_servers() -> dict[str, Path]:
    """The servers that this machine can run, by name."""
    found = {"valkey": embedded_binary()}
    if system := shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin"):
        found["redis"] = Path(system)
    return found


COLUMNS = ("contender", "server", "version", "pending", "tasks", "fired", "twice", "early",
           "p50", "p99", "max")  # fmt: skip


def print_table(rows: Sequence[Row]) -> None:
    """Print the rows; times in ms."""
    cells = [COLUMNS, *(tuple(_cell(getattr(row, name)) for name in COLUMNS) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    for line in cells:
        words = [text.ljust(width) for text, width in zip(line[:3], widths[:3], strict=True)]
        numbers = [text.rjust(width) for text, width in zip(line[3:], widths[3:], strict=True)]
        print("  ".join(words + numbers))


def _cell(value: str | float) -> str:
    match value:
        case str():
            return value
        case int():
            return f"{value:,}"
        case _:
            return f"{value:,.2f}" if value < math.inf else "never"


def write_json(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows; what is infinite becomes null."""
    value = {"cores": os.cpu_count(), "load": os.getloadavg(), "rows": [asdict(r) for r in rows]}
    path.write_text(json.dumps(_finite(value), indent=2) + "\n")


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {name: _finite(item) for name, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
        case _:
            return value


def read_options() -> argparse.Namespace:
    """Read the command line."""
    servers = find_servers()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", action="append", choices=servers, help="default: each found")
    parser.add_argument("--pending", action="append", type=int, metavar="N",
                        help="other tasks; repeatable (default: 0 and 200000)")  # fmt: skip
    parser.add_argument("--tasks", type=int, default=1000, help="default: 1000")
    parser.add_argument("--seconds", type=float, default=10.0, help="default: 10")
    parser.add_argument("--rounds", type=int, default=1, help="default: 1")
    parser.add_argument("--baseline", action="store_true", help="also measure a bare subscriber")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results there")
    options = parser.parse_args()
    if min(options.tasks, options.seconds, options.rounds) <= 0:
        parser.error("--tasks, --seconds and --rounds must be above 0")
    options.server = {name: servers[name] for name in options.server or servers}
    options.pending = options.pending or [0, 200_000]
    return options


def main() -> int:
    """Measure all that is asked for, and print it."""
    # A polite end, so that the processes started here are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = read_options()
    kinds: list[type[Contender]] = [Expirebridge]
    if options.baseline:
        kinds.append(BareSubscriber)
    rows: list[Row] = []
    for name, binary in options.server.items():
        for pending in options.pending:
            for kind in kinds:
                print(f"{kind.name} on {name}, {pending:,} pending ...", file=sys.stderr)
                version, rounds = measure(
                    kind, binary, pending=pending, tasks=options.tasks,
                    seconds=options.seconds, rounds=options.rounds,
                )  # fmt: skip
                rows.append(row := Row.of(kind.name, name, version, pending, rounds))
                print(f"  p50 {row.p50:.2f} ms, p99 {row.p99:.2f} ms", file=sys.stderr)
    print_table(rows)
    if options.json:
        write_json(options.json, rows)
    return 1 if any(row.early for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
