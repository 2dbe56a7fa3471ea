"""Ours: what it costs to carry 200,000 rows to Redis, and to carry them once more.

200,000 rows of tasks that are due in three days and later are inserted by one statement, and then
a listener is started (`new`). When all are carried, Redis is emptied, so the same listener carries
every row again (`lost`). Of both: rows a second, the processor time of the database, of the server
and of the listener for 1,000 rows, the statements and the bytes of the database's log of changes
for each row, and how late tasks that have no row begin meanwhile, 50 a second.

A pass carries at most 1,000 rows. The relay pauses after one in which a task began late.
"""

import threading
import time
from typing import Any

from benchmarks.lab import verdict
from benchmarks.lab.contender import Contender
from benchmarks.lab.measurement import Case, Figures, Measurement, Scale, Variant
from benchmarks.lab.stage import Load, Stage, StageError
from benchmarks.lab.verdict import Dues, Runs
from expirebridge import Bridge

FILL = """
    INSERT INTO expirebridge_task (id, func, params, delay_ms)
    SELECT 'order-' || n, 'mail.send', '[' || 1000000000 + n || ',"user@example.com"]',
        259200000 + n
    FROM generate_series(1, :rows) AS n
"""
LEFT = "SELECT EXISTS (SELECT 1 FROM expirebridge_task WHERE ledger = 'default' AND todo > 0)"
LIMIT = 400.0
EVERY = 0.02
PERCENTS = (50, 99, 100)


def variants(contender: Contender, scale: Scale) -> list[Variant]:
    if contender.kind != "ours" or not contender.databases:
        return []
    return [{"rows": scale(200_000), "again": True}]


def measure(case: Case) -> Figures:
    rows = case.variant["rows"]
    with Stage(case.contender, case.binary, database="postgresql") as stage:
        began = time.monotonic()
        stage.database.execute(FILL, rows=rows)
        stage.database.execute("ANALYZE expirebridge_task")
        figures: Figures = {"inserted_per_second": rows / (time.monotonic() - began)}
        stage.start(probe=False)
        figures["new"] = _carry(stage, rows, first=0)
        if not case.variant["again"]:
            return figures
        stage.client.flushall()
        if not stage.wait_until(lambda: _is_left(stage), limit=60, every=0.05):
            raise StageError("the listener does not notice that Redis was emptied")
        figures["lost"] = _carry(stage, rows, first=100_000_000)
        return figures


def _is_left(stage: Stage) -> bool:
    return bool(stage.database.scalar(LEFT))


def _carry(stage: Stage, rows: int, *, first: int) -> Figures:
    """Wait until every row is carried."""
    database = stage.database
    pids = {"database": database.pids, "server": stage.server_pids, "listener": stage.worker_pids}
    loads = {name: Load(own) for name, own in pids.items()}
    statements, written, began = database.statements(), database.written(), time.monotonic()
    with Others(stage.server.url, first) as others:
        done = stage.wait_until(lambda: not _is_left(stage), limit=LIMIT, every=0.1)
        took = time.monotonic() - began
    if not done:
        raise StageError(f"not every row was carried within {LIMIT:g} s")
    figures: Figures = {"seconds": took, "per_second": rows / took}
    for name, load in loads.items():
        figures[f"{name}_ms"] = load.seconds() * 1e6 / rows
    figures["statements"] = (database.statements() - statements) / rows
    figures["bytes_written"] = (database.written() - written) / rows
    time.sleep(2.0)
    late = [
        each for dues in others.made for each in verdict.lateness(dues, Runs.read(stage.journal))
    ]
    late.sort()
    figures["lateness_ms"] = {f"{p}": verdict.percentile(late, p) for p in PERCENTS}
    return figures


class Others(threading.Thread):
    """Makes tasks that have no row."""

    def __init__(self, url: str, first: int) -> None:
        super().__init__(daemon=True)
        self.made: list[Dues] = []
        self._url, self._next = url, first
        self._over = threading.Event()

    def __enter__(self) -> "Others":
        self.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        with Bridge(self._url) as bridge:
            while not self._over.wait(EVERY):
                task = bridge.make_task("mail.send", [self._next, "other"], 0.2)
                self.made.append(Dues(self._next, 1, round(task.due.timestamp() * 1000)))
                self._next += 1


MEASUREMENT = Measurement(
    name="ledger_pass",
    variants=variants,
    measure=measure,
    limit=900,
    rounds=1,
    seconds=500,
)
