# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "sorted set and table"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.sorted_set", "python -m benchmarks.kit.table"]
# handlers = ["plain"]
# settings = "redis-py, SQLite (WAL, fsync each second); LAB_INTERVAL = 1: a run each second"
# interval = 1
# keepalive = true
# variables = { LAB_INTERVAL = "1" }
# redelivery = 0 # none: what a dead run had taken is at status 1 in the table, and in no set
# documentation = ["benchmarks/pages/designs.md", "https://redis.io/docs/latest/commands/zrangebyscore/"]
# ///
"""A sorted set of ids by due time, a table with all else, and a run from cron each second."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import cache, partial
from typing import Any

import redis

from benchmarks.kit import journal
from benchmarks.kit.cron import INTERVAL, run_each
from benchmarks.kit.server import CONCURRENCY, URL, USER
from benchmarks.kit.table import connect, writing


class NoRetry(Exception): ...  # the one error after which a task is not tried again


WAITING, DONE, FAILED, CANCELLED = 1, 10, 20, 30
MINUTES = (0.25, 0.25, 0.5, 3, 10, 20, 30, 30, 30, 60, 180, 180, 180, 360, 360)  # before retries
SCHEMA = """
    CREATE TABLE IF NOT EXISTS delay_queue (
        id INTEGER PRIMARY KEY, params TEXT, message TEXT, ext_string TEXT,
        retry_times INTEGER DEFAULT 0, status INTEGER DEFAULT 1,
        created TEXT DEFAULT CURRENT_TIMESTAMP, modified TEXT DEFAULT CURRENT_TIMESTAMP);
    CREATE INDEX IF NOT EXISTS by_ext_string ON delay_queue (ext_string);"""
INSERT = "INSERT INTO delay_queue (id, params, message, ext_string) VALUES (?, ?, ?, ?)"
UPDATE = """UPDATE delay_queue SET status = ?, retry_times = retry_times + ?,
            modified = CURRENT_TIMESTAMP WHERE id = ? AND status = 1"""
HANDLERS: dict[str, Any] = {"send": lambda number, _user: journal.handle_plain(number)}
client = redis.Redis.from_url(URL)
table = cache(partial(connect, SCHEMA))


def schedule(number: int, due: float) -> None:
    schedule_many([(number, due)])


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    rows = [(id, json.dumps([id, USER]), "send", f"task-{id}") for id, _ in tasks]
    with writing(table()):
        table().executemany(INSERT, rows)
    client.zadd("delay_queue", {str(id): due for id, due in tasks})


def keep(ids: Sequence[int], seconds: float) -> None:
    client.zadd("delay_queue", {str(id): time.time() + seconds for id in ids}, xx=True)


def cancel(ext_string: str) -> int:
    rows = table().execute("SELECT id FROM delay_queue WHERE ext_string = ?", (ext_string,))
    return sum(set_status(id, CANCELLED) for (id,) in rows if client.zrem("delay_queue", id))


def set_status(id: int, status: int, retries: int = 0) -> int:
    return table().execute(UPDATE, (status, retries, id)).rowcount


def run_due() -> None:
    due: Any = client.zrangebyscore("delay_queue", "-inf", time.time())
    row = "SELECT id, message, params, retry_times FROM delay_queue WHERE id = ? AND status = 1"
    runs: dict[Future[None], tuple[int, int]] = {}
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        for taken in due:
            if client.zrem("delay_queue", taken):  # no other run has it
                for id, message, params, retries in table().execute(row, (int(taken),)):
                    runs[pool.submit(HANDLERS[message], *json.loads(params))] = id, retries
        for run in as_completed(runs):
            conclude(*runs[run], run.exception())


def conclude(id: int, retries: int, error: BaseException | None) -> None:
    if error is None:
        set_status(id, DONE)
    elif isinstance(error, NoRetry) or retries == len(MINUTES):
        set_status(id, FAILED)
    elif set_status(id, WAITING, retries=1):
        client.zadd("delay_queue", {str(id): time.time() + 60 * MINUTES[retries]})


if __name__ == "__main__":
    run_each(INTERVAL, run_due)
