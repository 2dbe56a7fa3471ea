# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "cron, each second"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.cron_scan", "python -m benchmarks.kit.table"]
# handlers = ["plain"]
# concurrency = "100 threads in each run"
# settings = """\
#   a table in SQLite (WAL, fsync each second), in which a run marks what it takes; \
#   LAB_INTERVAL = 1: a run each second"""
# place = "file"
# interval = 1
# keepalive = true
# variables = { LAB_INTERVAL = "1" }
# redelivery = 60 # TAKEN_FOR
# documentation = ["benchmarks/pages/designs.md", "https://man7.org/linux/man-pages/man5/crontab.5.html"]
# ///
"""A cron job scans a table for rows that are due.

The interval is the setting: an hour, a minute or, with a loop around it, a second. A run marks the
rows that it takes, so that the next run, or another machine's, leaves them alone; rows of a run
that died are taken again after a minute.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache

from benchmarks.kit import journal
from benchmarks.kit.cron import INTERVAL, run_each
from benchmarks.kit.server import CONCURRENCY, USER
from benchmarks.kit.table import connect, writing

TAKEN_FOR = 60.0
SCHEMA = """
    CREATE TABLE IF NOT EXISTS task (
        id INTEGER PRIMARY KEY, user TEXT NOT NULL, due REAL NOT NULL,
        taken REAL NOT NULL DEFAULT 0);
    CREATE INDEX IF NOT EXISTS by_due ON task (due);
"""
table = cache(lambda: connect(SCHEMA))  # the producer's


def schedule(number: int, due: float) -> None:
    table().execute("INSERT INTO task (id, user, due) VALUES (?, ?, ?)", (number, USER, due))


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    with writing(table()):
        table().executemany(
            "INSERT INTO task (id, user, due) VALUES (?, ?, ?)",
            [(number, USER, due) for number, due in tasks],
        )


def keep(numbers: Sequence[int], seconds: float) -> None:
    due = time.time() + seconds
    with writing(table()):
        table().executemany(
            "UPDATE task SET due = ? WHERE id = ?", [(due, number) for number in numbers]
        )


def send(number: int, user: str) -> None:
    journal.handle_plain(number)


def scan() -> None:
    """One run: take what is due, call its handlers, and delete what they have done."""
    rows = connect(SCHEMA)
    now = time.time()
    with writing(rows):
        due = rows.execute(
            "SELECT id, user FROM task WHERE due <= ? AND taken < ?", (now, now - TAKEN_FOR)
        ).fetchall()
        rows.executemany("UPDATE task SET taken = ? WHERE id = ?", [(now, id) for id, _ in due])
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        ids = {pool.submit(send, id, user): id for id, user in due}
        for done in as_completed(ids):
            rows.execute("DELETE FROM task WHERE id = ?", (ids[done],))
    rows.close()


if __name__ == "__main__":
    run_each(INTERVAL, scan)
