# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "wheel of 30 sets"
# kind = "design"
# environment = "lab"
# worker = ["python -m benchmarks.contenders.wheel_of_sets"]
# handlers = ["async"]
# settings = "30 slots; each timeout is the same, and a tick is a 29th of it; nothing is on disk"
# place = "worker"
# interval = 1
# keepalive = true
# only = ["lateness", "burst", "crash", "two_workers", "keepalive"]
# because = "it knows one timeout, which is short"
# redelivery = 0 # none
# documentation = ["benchmarks/pages/designs.md"]
# ///
"""A wheel of 30 slots, each with a set of users, and an index that says in which slot a user is.

A keepalive moves the user into the slot that the hand has just left. Whoever is still in a slot
when the hand comes back has been silent for the whole timeout. A keepalive costs the same with any
number of users, and a tick touches only those who are offline. All timers have one timeout: a task
that is due later than that is in the last slot.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable

from benchmarks.kit import journal
from benchmarks.kit.server import USER
from benchmarks.kit.service import fire, keep, schedule, schedule_many, serve, sleep_until

__all__ = ["keep", "schedule", "schedule_many"]
SLOTS = 30


class Wheel:
    def __init__(self, run: Callable[[int], None]) -> None:
        self.slots: list[set[int]] = [set() for _ in range(SLOTS)]
        self.slot_of: dict[int, int] = {}
        self.tick = 1.0
        """Seconds."""
        self.at = 0
        self.reached = 0.0
        """When the hand came to this slot, on the clock that tasks are due by."""
        self.run = run

    def make(self, tasks: Iterable[tuple[int, float]]) -> None:
        for number, due in tasks:
            ahead = math.ceil((due - self.reached) / self.tick)
            self.move(number, min(max(ahead, 1), SLOTS))

    def keep(self, users: Iterable[int], seconds: float) -> None:
        """These are alive. The timeout is that of all: 29 ticks have passed when a set is taken."""
        if self.tick != seconds / (SLOTS - 1):
            self.tick, self.reached = seconds / (SLOTS - 1), time.time()
        for user in users:
            if user in self.slot_of:
                self.move(user, SLOTS)

    def move(self, user: int, ahead: int) -> None:
        if user in self.slot_of:
            self.slots[self.slot_of[user]].discard(user)
        self.slot_of[user] = slot = (self.at + ahead) % SLOTS
        self.slots[slot].add(user)

    def advance(self, now: float) -> None:
        self.at, self.reached = (self.at + 1) % SLOTS, now
        silent, self.slots[self.at] = self.slots[self.at], set()
        for user in silent:
            del self.slot_of[user]
            self.run(user)


async def send(number: int, user: str) -> None:
    await journal.handle(number)


async def main() -> None:
    wheel = Wheel(lambda number: fire(send(number, USER)))
    wheel.reached = time.time()
    await serve(make=wheel.make, keep=wheel.keep)
    while True:
        await sleep_until(min(wheel.reached + wheel.tick, time.time() + 1))
        if time.time() >= wheel.reached + wheel.tick:
            wheel.advance(wheel.reached + wheel.tick)


if __name__ == "__main__":
    asyncio.run(main())
