# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "heap in memory"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.heap", "python -m benchmarks.kit.table"]
# handlers = ["async"]
# settings = "heapq; its copy is a table in SQLite (WAL, fsync each second), read when it starts"
# place = "worker"
# keepalive = true
# redelivery = 0 # at the next start
# documentation = ["benchmarks/pages/designs.md", "https://docs.python.org/3/library/heapq.html"]
# ///
"""A min-heap in memory, as in Java's DelayQueue, and a copy of it in a table.

The process sleeps until the first task of the heap is due. A task that is put off gets a second
entry; the first is skipped when it comes up. The row of a task is deleted when its handler is done,
and a start makes the heap of the rows.
"""

import asyncio
import contextlib
import heapq
import time
from collections.abc import Iterable

from benchmarks.kit import journal
from benchmarks.kit.server import USER
from benchmarks.kit.service import fire, keep, schedule, schedule_many, serve
from benchmarks.kit.table import connect, writing

__all__ = ["keep", "schedule", "schedule_many"]
SCHEMA = "CREATE TABLE IF NOT EXISTS task (id INTEGER PRIMARY KEY, due REAL NOT NULL)"


async def send(number: int, user: str) -> None:
    await journal.handle(number)


class Heap:
    def __init__(self) -> None:
        self.table = connect(SCHEMA)
        self.due = dict(self.table.execute("SELECT id, due FROM task"))
        self.entries = [(due, number) for number, due in self.due.items()]
        heapq.heapify(self.entries)
        self.earlier = asyncio.Event()
        """There may be a new first."""
        self.done: list[tuple[int]] = []

    def make(self, tasks: Iterable[tuple[int, float]]) -> None:
        with writing(self.table):
            self.table.executemany("INSERT OR REPLACE INTO task VALUES (?, ?)", tasks)
        for number, due in tasks:
            self.due[number] = due
            heapq.heappush(self.entries, (due, number))
        self.earlier.set()

    def keep(self, numbers: Iterable[int], seconds: float) -> None:
        due = time.time() + seconds
        self.make([(number, due) for number in numbers if number in self.due])

    async def run(self) -> None:
        while True:
            now = time.time()
            while self.entries and self.entries[0][0] <= now:
                due, number = heapq.heappop(self.entries)
                if self.due.get(number) == due:
                    del self.due[number]
                    fire(self.call(number))
            self.earlier.clear()
            wait = self.entries[0][0] - time.time() if self.entries else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.earlier.wait(), wait)

    async def call(self, number: int) -> None:
        await send(number, USER)
        if not self.done:  # what ends in one turn of the loop is deleted in one transaction
            asyncio.get_running_loop().call_soon(self.delete)
        self.done.append((number,))

    def delete(self) -> None:
        with writing(self.table):
            self.table.executemany("DELETE FROM task WHERE id = ?", self.done)
        self.done.clear()


async def main() -> None:
    heap = Heap()
    await serve(make=heap.make, keep=heap.keep)
    await heap.run()


if __name__ == "__main__":
    asyncio.run(main())
