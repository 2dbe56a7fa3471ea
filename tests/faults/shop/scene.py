"""A shop in full flow: an SQL database, Redis, two listeners, and a producer that sells."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, MetaData, create_engine, text
from sqlalchemy.exc import DBAPIError

from expirebridge.ledger import tables
from expirebridge.ledger.schema import create
from tests.faults.background import Background
from tests.faults.shop.verdict import Rows, judge
from tests.faults.stage import copy_handlers
from tests.faults.table import TABLE, Fault
from tests.kit.checker import Verdict
from tests.kit.databases import Database
from tests.kit.history import Killed, Known, Writer, now, read
from tests.kit.patience import PATIENCE
from tests.kit.points import Points
from tests.kit.process_logs import noted
from tests.kit.processes import ROOT, listener

LEASE = 2.0
QUIET_WITHIN = 120.0
"""Seconds in which all that was sold must have ended, once nothing is done to it any more."""


class Observer(Background):
    """Looks at the rows all the time, and writes down which it saw that have ended."""

    def __init__(self, engine: Engine, history: Writer) -> None:
        super().__init__()
        self._engine, self._history = engine, history
        self._known: set[str] = set()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                with self._engine.connect() as connection:
                    ended = set(connection.scalars(
                        text("SELECT id FROM expirebridge_task WHERE status > 1")
                    ))  # fmt: skip
            except DBAPIError:
                continue  # it is away
            self._history.write(*(Known(id=id, at=now()) for id in ended - self._known))
            self._known |= ended


class Trade:
    """Two listeners and a producer, and what a test does to them."""

    def __init__(
        self, stack: ExitStack, *, database: URL, redis: str, folder: Path, history: Writer,
        points: Points, lease: float, env: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.redis, self.history, self.points = redis, history, points
        self.engine = create_engine(database, pool_pre_ping=True)
        self.listeners: dict[int, subprocess.Popen[bytes]] = {}
        self.producer: subprocess.Popen[bytes] | None = None
        self._stack, self._folder = stack, folder
        self._database = database.render_as_string(hide_password=False)
        self._env = env
        self._lease = lease
        self._prepare()
        self._observer = stack.enter_context(Observer(self.engine, history))
        stack.callback(self._end)

    def _prepare(self) -> None:
        with self.engine.begin() as connection:
            create(connection, tables(MetaData()))
            connection.execute(text(
                "CREATE TABLE orders (id varchar(40) PRIMARY KEY, due bigint, returned int)"
            ))  # fmt: skip
            connection.execute(text("CREATE TABLE effects (id varchar(40))"))

    def _end(self) -> None:
        if self.producer is not None:
            self.producer.kill()
            self.producer.communicate()
        self.engine.dispose()

    # Who works here

    def start_listener(self) -> int:
        """Start one more, and wait until it is up; returns its process's id."""
        env = {
            "HISTORY": str(self.history.folder), "EXPIREBRIDGE_LEDGER": self._database,
            **self.points.env, **self._env,
        }  # fmt: skip
        words = ("--lease", f"{self._lease:g}", "--concurrency", "20")
        process = self._stack.enter_context(listener(self.redis, self._folder, *words, **env))
        self.listeners[process.pid] = process
        return process.pid

    def start_producer(self) -> int:
        """Start the one that sells."""
        with noted(self._folder.parent / "producer.log").open("ab") as output:
            self.producer = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.shop.sell", self.history.folder,
                 self._database],
                stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=ROOT,
                env=os.environ | self.points.env | {**self._env} | {"EXPIREBRIDGE_URL": self.redis},
            )  # fmt: skip
        return self.producer.pid

    def kill(self, pid: int) -> None:
        """Kill a listener or the producer, and write it down."""
        at = now()
        process = self.listeners.pop(pid, None)
        if process is None:
            process, self.producer = self.producer, None
        assert process is not None
        process.kill()
        process.communicate()
        self.history.write(Killed(pid=pid, at=at, until=now()))

    def stop_selling(self) -> None:
        """Let the producer end in order."""
        assert self.producer is not None
        self.producer.communicate(timeout=PATIENCE)
        log = (self._folder.parent / "producer.log").read_text()
        assert self.producer.returncode == 0, log
        self.producer = None

    # What can be seen from outside

    def scalar(self, query: str, **values: Any) -> Any:
        """What the database answers."""
        with self.engine.connect() as connection:
            return connection.scalar(text(query), values)

    def until(self, holds: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        """Wait until something can be seen in the database, which may be away meanwhile."""
        deadline = time.monotonic() + within
        while True:
            try:
                if holds():
                    return
            except DBAPIError:
                pass
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self.log()}"
            time.sleep(0.02)

    def until_sold(self, count: int) -> None:
        """Wait until so many more orders were committed."""
        orders = "SELECT count(*) FROM orders"
        wanted = self.scalar(orders) + count
        self.until(lambda: self.scalar(orders) >= wanted, f"{count} more orders")

    def until_caught_up(self) -> None:
        """Wait until all has ended that was due until now."""
        behind = (
            "SELECT count(*) FROM orders JOIN expirebridge_task USING (id) "
            "WHERE status = 1 AND orders.due < :now"
        )
        at = now()
        self.until(lambda: self.scalar(behind, now=at) == 0, "the end of what is due", QUIET_WITHIN)

    def until_delivered(self, count: int) -> None:
        """Wait until so many more tasks have ended, as far as their rows know."""
        ended = "SELECT count(*) FROM expirebridge_task WHERE status > 1"
        wanted = self.scalar(ended) + count
        self.until(lambda: self.scalar(ended) >= wanted, f"{count} more tasks that have ended")

    def until_settled(self) -> None:
        """Wait until all tasks have ended, and their rows know it."""
        left = "SELECT count(*) FROM expirebridge_task WHERE status = 1 OR todo > 0"
        self.until(lambda: self.scalar(left) == 0, "the end of all tasks", QUIET_WITHIN)

    def log(self) -> str:
        """The end of what the listeners logged."""
        return (self._folder.parent / "listeners.log").read_text()[-5000:]

    def judge(self, fault: Fault, server: str, *, times: int = 1) -> Verdict:
        """Wait until all has ended, and give the verdict; it goes into the table."""
        self.stop_selling()
        self.until_settled()
        self._observer.stop()
        verdict = judge(self._events(), self._rows(), lease=self._lease)
        TABLE.add(fault, server, verdict, times)
        return verdict

    def is_sound(self, fault: Fault, server: str, *, times: int = 1) -> None:
        """Nothing is lost and nothing early, and each run after the first is explained."""
        verdict = self.judge(fault, server, times=times)
        assert verdict.sound, str(verdict)
        assert not verdict.forgotten
        assert set(verdict.states) <= {"succeeded", "cancelled"}, str(verdict)

    def _rows(self) -> Rows:
        with self.engine.connect() as connection:
            tasks = connection.execute(
                text("SELECT id, status, retry_times, message FROM expirebridge_task")
            ).all()
            effects = connection.scalars(text("SELECT id FROM effects")).all()
            orders = connection.execute(text("SELECT id, due, returned FROM orders")).all()
        return Rows(list(tasks), list(effects), list(orders))

    def _events(self) -> list[Any]:
        return list(read(self.history.folder))


@contextmanager
def trading(
    database: Database,
    redis: str,
    folder: Path,
    history: Writer,
    *,
    lease: float = LEASE,
    env: Mapping[str, str] | None = None,
) -> Iterator[Trade]:
    """Start two listeners and a producer, all with these further variables."""
    copy_handlers(folder, ledger=True)
    with ExitStack() as stack:
        points = stack.enter_context(Points(folder.parent))
        trade = Trade(
            stack, database=database.new_database(), redis=redis, folder=folder, history=history,
            points=points, lease=lease, env=env or {},
        )  # fmt: skip
        for _ in range(2):
            trade.start_listener()
        trade.start_producer()
        trade.until_delivered(1)
        yield trade
