# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "hierarchical wheels"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.wheels"]
# handlers = ["async"]
# settings = "wheels of years, months, days, hours, minutes and seconds; nothing is on disk"
# place = "worker"
# interval = 1
# redelivery = 0 # none
# documentation = ["benchmarks/pages/designs.md"]
# ///
"""Six wheels: year, month, day, hour, minute, second, each with a slot for each of its values.

A task waits in the largest wheel whose hand does not stand at its value yet. When that hand reaches
it, the task moves to the next smaller wheel in which it has to wait; from the wheel of seconds it
runs. So a task is moved five times at most, however far away it is.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from benchmarks.kit import journal
from benchmarks.kit.server import USER
from benchmarks.kit.service import fire, schedule, schedule_many, serve, tick

__all__ = ["schedule", "schedule_many"]
SIZES = (100, 13, 32, 24, 60, 60)
"""Slots: years of a century; months and days, which begin with 1; hours, minutes, seconds."""
Task = tuple[int, int]
"""The second since 1970 in which it is due, and its number."""


def hands(second: int) -> tuple[int, ...]:
    """Where the hands stand at a second since 1970."""
    at = datetime.fromtimestamp(second, UTC)
    return (at.year % 100, at.month, at.day, at.hour, at.minute, at.second)


class Wheels:
    def __init__(self, at: int, run: Callable[[int], None]) -> None:
        self.wheels: list[list[list[Task]]] = [[[] for _ in range(size)] for size in SIZES]
        self.at = at
        self.hands = hands(at)
        self.run = run

    def add(self, tasks: Iterable[tuple[int, float]]) -> None:
        for number, due in tasks:
            self.place((max(math.ceil(due), self.at + 1), number))

    def place(self, task: Task) -> None:
        """Into the largest wheel in which it has to wait; if there is none, it is due."""
        for wheel, value, hand in zip(self.wheels, hands(task[0]), self.hands, strict=True):
            if value != hand:
                wheel[value].append(task)
                return
        self.run(task[1])

    def advance(self, at: int) -> None:
        before, self.at, self.hands = self.hands, at, hands(at)
        for wheel, was, hand in zip(self.wheels, before, self.hands, strict=True):
            if was != hand:
                reached, wheel[hand] = wheel[hand], []
                for task in reached:
                    self.place(task)


async def send(number: int, user: str) -> None:
    await journal.handle(number)


async def main() -> None:
    wheels = Wheels(int(time.time()), lambda number: fire(send(number, USER)))
    await serve(make=wheels.add)
    await tick(1, wheels.advance, after=wheels.at)


if __name__ == "__main__":
    asyncio.run(main())
