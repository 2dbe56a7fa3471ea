# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "ring in memory"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.ring_memory"]
# handlers = ["async"]
# settings = "LAB_SLOTS = 3600 slots, a tick each second (LAB_TICK = 1); nothing is on disk"
# place = "worker"
# interval = 1
# variables = { LAB_SLOTS = "3600", LAB_TICK = "1" }
# redelivery = 0 # none
# documentation = ["benchmarks/pages/designs.md"]
# ///
"""A ring of 3,600 slots, each with a set of tasks; a hand moves on by one slot each second.

A task goes into the slot that the hand reaches when it is due, with the number of times that the
hand is to pass it by before. A tick looks at the tasks of one slot, and at no others.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from benchmarks.kit import journal
from benchmarks.kit.server import USER
from benchmarks.kit.service import fire, schedule, schedule_many, serve, tick

__all__ = ["schedule", "schedule_many"]
SLOTS = int(os.environ.get("LAB_SLOTS", "3600"))
TICK = float(os.environ.get("LAB_TICK", "1"))
"""Seconds."""


@dataclass(eq=False, slots=True)
class Task:
    number: int
    cycles: int
    """How often the hand passes it by."""


class Ring:
    def __init__(self, slots: int, tick: float, at: int, run: Callable[[int], None]) -> None:
        self.slots: list[set[Task]] = [set() for _ in range(slots)]
        self.tick = tick
        self.at = at
        """The last tick; the hand is at this slot, modulo their number."""
        self.run = run

    def add(self, tasks: Iterable[tuple[int, float]]) -> None:
        for number, due in tasks:
            ahead = max(math.ceil(due / self.tick) - self.at, 1)
            slot = self.slots[(self.at + ahead) % len(self.slots)]
            slot.add(Task(number, (ahead - 1) // len(self.slots)))

    def advance(self, at: int) -> None:
        self.at = at
        slot = self.slots[at % len(self.slots)]
        for task in [*slot]:
            if task.cycles:
                task.cycles -= 1
            else:
                slot.remove(task)
                self.run(task.number)


async def send(number: int, user: str) -> None:
    await journal.handle(number)


async def main() -> None:
    ring = Ring(SLOTS, TICK, int(time.time() // TICK), lambda number: fire(send(number, USER)))
    await serve(make=ring.add)
    await tick(TICK, ring.advance, after=ring.at)


if __name__ == "__main__":
    asyncio.run(main())
