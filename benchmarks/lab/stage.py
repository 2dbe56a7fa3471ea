"""One measurement's server, worker and producer: new for each, and stopped when it ends."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import redis

from benchmarks.kit.computing import loops_of
from benchmarks.lab import processes
from benchmarks.lab.contender import FOLDER, Contender
from benchmarks.lab.environments import Environment
from benchmarks.lab.verdict import Dues, Runs, Verdict
from expirebridge.embedded.server import HOST, EmbeddedServer, free_port

if TYPE_CHECKING:
    from benchmarks.lab.database import Database

CONCURRENCY = 100
"""Tasks that a worker may run at a time, where a contender can be told."""
READY_LIMIT = 60.0
REST_LIMIT = 120.0
REST = 0.08
"""Of a core: server and worker that use less, for two seconds in a row, are at rest."""
STOP_LIMIT = 10.0
LEAD = 2.0
"""Seconds from the end of the making of tasks to the first due time, at least."""
MADE_SINGLY, MADE_IN_BULK = 400, 2500
"""Tasks a second, for which time is given before the first is due."""
A_DAY_MS = 86_400_000
OTHERS = 1_000_000_000
"""The numbers of tasks that only have to be pending begin here."""


class StageError(Exception):
    """A contender did not do what a measurement needs."""


class Stage:
    """A server of its own for one contender, its producer, and its workers once they are started.

    `handler` is the kind of handler, `work` the seconds that each task takes: plain handlers
    compute for as long as that takes alone with `computes`, and otherwise all sleep. `database` is
    the SQL database that is started beside the server: the contender's first, unless said
    otherwise. `variables` are set in its processes, as those of the contender.
    """

    def __init__(
        self,
        contender: Contender,
        binary: Path,
        *,
        handler: str = "async",
        work: float = 0.0,
        computes: bool = False,
        worker: Sequence[str] | None = None,
        options: dict[str, str] | None = None,
        series: int = 0,
        database: str | None = None,
        variables: dict[str, str] | None = None,
    ) -> None:
        self.contender = contender
        self.server = EmbeddedServer(binary=binary, options=options)
        self._port = free_port() if contender.server else self.server.port
        self._own_server: subprocess.Popen[bytes] | None = None
        self._environment = Environment(contender)
        self._worker = contender.worker if worker is None else tuple(worker)
        self._handler = handler
        self._work = work
        self._loops = loops_of(work) if computes else 0
        self._series = series
        self._database_name = [*contender.databases, ""][0] if database is None else database
        self._variables = contender.variables | (variables or {})
        self._database: Database | None = None
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._producer: Producer | None = None
        self._asked = 0
        self._probes = 0
        self._ended: set[int] = set()
        self._read = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.server)
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="lab-"))
            self.folder = Path(name)
            self.journal = self.folder / "journal"
            self.journal.touch()
            self.client = stack.enter_context(redis.Redis.from_url(self.server.url))
            if self._database_name:
                # Here, so that SQLAlchemy is needed only where there is a database.
                from benchmarks.lab.database import Database  # noqa: PLC0415

                self._database = stack.enter_context(Database(self._database_name, self.folder))
            if self.contender.server:
                stack.callback(self._stop_own_server)
                self._start_own_server()
            stack.callback(self._stop)
            for command in self.contender.prepare:
                self.call(command)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    # Workers

    def start(self, copies: int = 1, *, probe: bool = True) -> None:
        """Start `copies` of the worker, and with `probe` wait until tasks run."""
        if self.contender.runs_in_driver and probe:
            _ = self.producer
        for copy in range(copies):
            for command in self._worker:
                self._workers.append(self._launch(command, copy=copy))
        if self.contender.runs_tasks and probe:
            self._wait_until_tasks_run()

    def call(self, command: str) -> None:
        """Run a command to its end."""
        if self._launch(command).wait():
            raise StageError(f"{command} failed:\n{self.last_words()}")

    def kill(self) -> None:
        """Kill all that runs tasks, as when its machine dies."""
        processes.kill(self.worker_pids)
        for process in self._workers:
            process.wait()
        self._workers = []
        if self.contender.runs_in_driver and self._producer:
            self._producer.process.wait()
            self._producer = None

    def kill_producer(self) -> None:
        """Kill the process that makes tasks; the next use of it starts another."""
        if self._producer is not None:
            processes.kill([self._producer.process.pid])
            self._producer.close()
            self._producer = None

    def add(self) -> None:
        """Start one more of the worker, without waiting for it."""
        self._workers += [self._launch(command) for command in self._worker]

    def revive(self) -> int:
        """Start again what has ended, as a supervisor does, and return how many these are."""
        ended = [place for place, one in enumerate(self._workers) if one.poll() is not None]
        for place in ended:
            self._workers[place] = self._launch(self._worker[place % len(self._worker)])
        return len(ended)

    def restart(self) -> None:
        """Start what was killed, without waiting for it."""
        if self.contender.runs_in_driver and not self._series:
            _ = self.producer
        self._workers = [self._launch(command) for command in self._worker]

    @property
    def worker_pids(self) -> list[int]:
        """The processes that were started to run tasks; they may have started more."""
        pids = [process.pid for process in self._workers]
        if self.contender.runs_in_driver and self._producer:
            pids.append(self._producer.process.pid)
        return pids

    @property
    def database(self) -> "Database":
        """Its SQL database."""
        assert self._database is not None
        return self._database

    @property
    def server_pids(self) -> list[int]:
        """The process of the server that has the tasks; PostgreSQL has others below it."""
        if self._own_server is not None:
            return [self._own_server.pid]
        if self.contender.place == "database":
            return self.database.pids
        return [self.server.pid] if self.server.pid else []

    def _start_own_server(self) -> None:
        """Start the contender's own server, and wait until it listens."""
        self._own_server = self._launch(self.contender.server)
        if not self.wait_until(self._listens, limit=READY_LIMIT, every=0.05):
            raise StageError(f"its own server does not listen:\n{self.last_words()}")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self._port)) == 0

    def _stop_own_server(self) -> None:
        if self._own_server is not None:
            self._own_server.kill()
            self._own_server.wait()

    def _launch(self, command: str, *, copy: int = 0, **pipes: int) -> subprocess.Popen[bytes]:
        contender = self.contender
        names = {
            "url": self.server.url,
            "port": str(self._port),
            "module": contender.module,
            "file": str(contender.file),
            "here": str(FOLDER),
            "concurrency": str(CONCURRENCY),
            "copy": str(copy),
            "database": self._database.url if self._database else "",
        }
        words = [word.format_map(names) for word in command.split()]
        variables = {
            "LAB_PORT": str(self._port),
            "LAB_JOURNAL": str(self.journal),
            "LAB_WORK": str(self._work),
            "LAB_LOOPS": str(self._loops),
            "LAB_HANDLER": self._handler,
            "LAB_CONCURRENCY": str(CONCURRENCY),
            "LAB_SERIES": str(self._series),
            "LAB_DATABASE": names["database"],
        }
        variables |= {name: value.format_map(names) for name, value in self._variables.items()}
        with (self.folder / "log").open("ab") as log:
            options: dict[str, Any] = {"stdout": log, "stderr": log} | pipes
            return subprocess.Popen(
                self._environment.command(words),
                env=os.environ | self._environment.variables() | variables,
                cwd=self.folder,
                # Ctrl-C at the terminal reaches the lab, which stops all in order.
                start_new_session=True,
                **options,
            )

    def _wait_until_tasks_run(self) -> None:
        """Give tasks that are due at once, one a second, until one of them has run."""
        deadline = time.monotonic() + READY_LIMIT + self.contender.interval
        while not self.ended():
            if time.monotonic() > deadline:
                raise StageError(f"no task ran within {READY_LIMIT:g} s:\n{self.last_words()}")
            self._probes += 1
            self.producer.order(Dues(-self._probes, 1, now_ms() + 100))
            self.wait_until(lambda: bool(self.ended()), limit=1.0, every=0.05)

    # Tasks

    @property
    def producer(self) -> "Producer":
        """The process that makes tasks; it is started on first use."""
        if self._producer is None:
            if self.contender.place == "worker" and not self._workers:
                self.restart()
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._producer = Producer(self._launch(self.contender.driver, **pipes), self)
        return self._producer

    def schedule(self, count: int, *, spread: float = 0.0, lead: float = LEAD) -> Dues:
        """Make tasks that come due evenly over `spread` seconds, all made before the first is due.

        `lead` is the time from the end of the making to the first due time, of which half is kept.

        If the time that is given for it was too short, those are left to themselves, and new ones
        are made with more time.
        """
        bulk = self.producer.bulk
        seconds = count / (MADE_IN_BULK if bulk else MADE_SINGLY)
        for patience in (1, 3, 9):
            due = now_ms() + round((lead + patience * seconds) * 1000)
            dues = Dues(self._asked, count, due, round(spread * 1000))
            self._asked += count
            self.producer.order(dues, bulk=bulk)
            if now_ms() < due - 500 * lead:
                return dues
            sleep_until(dues.last)
        raise StageError(f"making {count:,} tasks took longer than any time given for it")

    def schedule_from(self, count: int, start: float, *, spread: float) -> Dues:
        """Make tasks that come due evenly over `spread` seconds from a moment on."""
        dues = Dues(self._asked, count, round(start * 1000), round(spread * 1000))
        self._asked += count
        self.producer.order(dues, bulk=self.producer.bulk)
        if now_ms() >= dues.due_ms:
            raise StageError(f"making {count:,} tasks took longer than the time given for it")
        return dues

    def fill(self, count: int) -> float:
        """Make tasks that are due in a day or later, and return how many seconds it took."""
        if not count:
            return 0.0
        dues = Dues(OTHERS, count, now_ms() + A_DAY_MS, count)
        return self.producer.order(dues, bulk=self.producer.bulk)

    def order(self, count: int, *, delay: float, bulk: bool) -> float:
        """Make tasks that are due in `delay` seconds; return how many seconds the calls took."""
        dues = Dues(self._asked, count, now_ms() + round(delay * 1000))
        self._asked += count
        return self.producer.order(dues, bulk=bulk)

    def wait_for(self, dues: Sequence[Dues], *, limit: float) -> Runs:
        """Wait until all of the tasks have ended, `limit` seconds past the last due time at most.

        A further second is given for what runs twice.
        """
        wanted = {number for order in dues for number in order.numbers}
        last = max(order.last for order in dues)
        sleep_until(last)
        self.wait_until(lambda: wanted <= self.ended(), limit=limit, every=0.5)
        time.sleep(1.0)
        return Runs.read(self.journal)

    def ended(self) -> set[int]:
        """The tasks that have ended so far. Only what is new in the journal is read."""
        with self.journal.open("rb") as journal:
            journal.seek(self._read)
            for line in journal:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                if line.startswith(b"ended "):
                    self._ended.add(int(line.split()[1]))
        return self._ended

    def verdict(self, dues: Sequence[Dues], runs: Runs) -> Verdict:
        """Whether each of the tasks was run once, and no other."""
        return Verdict.of(dues, runs, issued=self._asked)

    def wait_until(self, reached: Callable[[], bool], *, limit: float, every: float) -> bool:
        """Wait until `reached`, at most `limit` seconds; say whether it was."""
        deadline = time.monotonic() + limit
        while not reached():
            if time.monotonic() > deadline:
                return False
            for process in self._workers:
                if process.poll() is not None:
                    raise StageError(f"a worker ended by itself:\n{self.last_words()}")
            time.sleep(every)
        return True

    # What is seen of them

    def rest(self) -> bool:
        """Wait until server and workers have little to do; say whether they came to that."""
        pids = [*self.server_pids, *self.worker_pids]
        quiet = 0
        deadline = time.monotonic() + REST_LIMIT
        while quiet < 2 and time.monotonic() < deadline:
            before = processes.cpu_seconds(pids)
            time.sleep(1.0)
            quiet = quiet + 1 if processes.cpu_seconds(pids) - before < REST else 0
        return quiet >= 2

    def info(self, section: str) -> dict[str, Any]:
        """A section of the server's INFO."""
        answer: dict[str, Any] = self.client.info(section)
        return answer

    def last_words(self) -> str:
        """The end of what the contender's processes logged."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _stop(self) -> None:
        roots = [process.pid for process in self._workers]
        if self._producer:
            roots.append(self._producer.process.pid)
        pids = processes.tree(roots)
        for process in self._workers:
            process.terminate()
        if self._producer:
            self._producer.close()
        deadline = time.monotonic() + STOP_LIMIT
        for process in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))
        processes.kill(pids)
        for process in self._workers:
            process.wait()


@dataclass(frozen=True, kw_only=True)
class Orders:
    """Transactions of an application: each inserts `rows` of its own, and makes `tasks`."""

    first: int
    count: int
    tasks: int
    rows: int = 1
    delay: float = 0.0
    """Seconds until the tasks are due; 0: at once."""
    seconds: float = 0.0
    """The time that they are spread over; 0: one after the other."""
    dies: bool = False
    """Whether the process kills itself when the last of them is committed, before anything else."""


class Producer:
    """The process that makes tasks. See benchmarks/kit/driver.py for what it is sent, and
    kit/ordering.py where tasks are made in transactions."""

    def __init__(self, process: subprocess.Popen[bytes], stage: Stage) -> None:
        self.process = process
        self._stage = stage
        self.bulk: bool = self._answer()["bulk"]
        """Whether it makes several tasks in one call."""

    def order(self, dues: Dues, *, bulk: bool = False) -> float:
        """Have the tasks made, and return how many seconds the calls took."""
        return float(self._ask(vars(dues) | {"bulk": bulk})["seconds"])

    def keep(self, numbers: Sequence[int], seconds: float) -> None:
        """Have these tasks put off, so that they are due in `seconds`."""
        self._ask({"keep": list(numbers), "seconds": seconds})

    def transact(self, orders: Orders) -> dict[str, Any]:
        """Have transactions made; the answer tells what they took, and when each was committed."""
        return self._ask(vars(orders))

    def begin(self, orders: Orders) -> None:
        """Have transactions made, without waiting for an end: the process may be killed."""
        self._send(vars(orders))

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        self._send(order)
        return self._answer()

    def _send(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the producer ended"}
        if "error" in answer:
            raise StageError(f"{answer['error']}\n{self._stage.last_words()}")
        return answer

    def close(self) -> None:
        """Let the process end; after a while, make it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            processes.kill([self.process.pid])
            self.process.wait()
        self.process.stdout.close()


def now_ms() -> int:
    """The time in ms since 1970."""
    return round(time.time() * 1000)


def sleep_until(when: float) -> None:
    """Let the time pass until `when`, in seconds since 1970."""
    time.sleep(max(when - time.time(), 0))


class Load:
    """The processor time that processes used since this was made."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = list(pids)
        self._before, self._began = processes.cpu_seconds(self._pids), time.monotonic()

    def seconds(self) -> float:
        """Seconds of processor time."""
        return processes.cpu_seconds(self._pids) - self._before

    def cores(self) -> float:
        """Cores on average, where 1.0 is one core fully used."""
        return self.seconds() / (time.monotonic() - self._began)
