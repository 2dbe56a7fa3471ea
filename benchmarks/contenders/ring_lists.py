# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "ring of Redis lists"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.ring_lists", "python -m benchmarks.kit.table"]
# handlers = ["plain"]
# settings = "redis-py; 3,600 lists; beside them a table in SQLite (WAL, fsync each second)"
# interval = 1
# redelivery = 0 # what a dead worker had taken comes back when Redis is restarted
# documentation = ["benchmarks/pages/designs.md", "https://redis.io/docs/latest/commands/lset/"]
# ///
"""The ring as Redis lists, filled again from a table after Redis was restarted.

An entry is `cycle:number`; the cycle is the round of the hand in which the task is due. A tick sets
that to `delete`, by its place, and removes all such. The hand is a key, so ticks are made up for.
"""

import math
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial

import redis

from benchmarks.kit import journal
from benchmarks.kit.server import CONCURRENCY, URL, USER
from benchmarks.kit.table import connect, writing

SLOTS = 3600
SCHEMA = "CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, due REAL NOT NULL)"
client = redis.Redis.from_url(URL, decode_responses=True)
table = cache(partial(connect, SCHEMA))


def schedule(number: int, due: float) -> None:
    schedule_many([(number, due)])


def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    with writing(table()):
        table().executemany("INSERT INTO task VALUES (?, ?)", tasks)
    put(tasks)


def put(tasks: Sequence[tuple[int, float]]) -> None:
    pipeline, earliest = client.pipeline(transaction=False), int(time.time()) + 2
    for number, due in tasks:  # two ticks from now at the earliest, for the next may have begun
        cycle, slot = divmod(max(math.ceil(due), earliest), SLOTS)
        pipeline.rpush(f"ring:{slot}", f"{cycle}:{number}")
    pipeline.execute()


def send(number: int, user: str) -> None:
    journal.handle_plain(number)


def advance(at: int) -> list[int]:
    """One tick: take what is due out of the slot."""
    (round, slot), due = divmod(at, SLOTS), []
    pipeline = client.pipeline(transaction=False)
    for place, entry in enumerate(client.lrange(f"ring:{slot}", 0, -1)):
        cycle, _, number = str(entry).partition(":")
        if cycle != "delete" and int(cycle) <= round:
            pipeline.lset(f"ring:{slot}", place, "delete")
            due.append(int(number))
    pipeline.lrem(f"ring:{slot}", 0, "delete")
    pipeline.set("ring:hand", at)
    pipeline.execute()
    return due


def fill_again() -> None:
    """Once after each start of Redis, make the ring of what the table has."""
    run = client.info("server")["run_id"]
    if client.getset("ring:filled", run) != run:
        client.delete("ring:hand", *(f"ring:{slot}" for slot in range(SLOTS)))
        rows = table().execute("SELECT id, due FROM task")
        while tasks := rows.fetchmany(1000):
            put(tasks)


def main(pool: ThreadPoolExecutor) -> None:
    runs: dict[Future[None], int] = {}
    while True:
        now = int(time.time())
        for at in range(int(client.get("ring:hand") or now - 1) + 1, now + 1):
            runs |= {pool.submit(send, number, USER): number for number in advance(at)}
        for run in [run for run in runs if run.done()]:
            table().execute("DELETE FROM task WHERE id = ?", (runs.pop(run),))
        time.sleep(max(now + 1 - time.time(), 0))


if __name__ == "__main__":
    fill_again()
    with ThreadPoolExecutor(CONCURRENCY) as threads:
        main(threads)
