"""A customer: makes tasks at a steady pace, and changes its mind about some, whatever happens."""

import heapq
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

import redis

from expirebridge import Bridge, Change, State, Task
from expirebridge.errors import ServerError
from expirebridge.task.task import to_ms
from tests.faults.background import Background
from tests.kit.history import Cancelled, Made, PutOff, Writer, now

T = TypeVar("T")

SHORT = 0.02
"""Seconds that most handlers take at most."""
LONG = (0.5, 2.0)
"""Seconds that some take: those are what a killed listener was at."""
RETRY = [0.2, 0.5]
PAUSE = 0.1
"""Seconds until a change that was not answered is asked for again."""
PAUSED = (0.2, 1.0)
"""Seconds that a task is paused."""
FURTHER = (0.5, 2.0)
"""Seconds by which a task is put off."""

FATES = {"run": 70, "long": 5, "raise": 8, "cancel": 5, "reschedule": 4, "expire": 4, "pause": 4}
"""What becomes of each hundred tasks."""

Act = Callable[[], None]


class Customer(Background):
    """Makes so many tasks a second, due within `furthest` seconds, until its `with` block ends.

    It cancels some, puts some off (by `reschedule`, and by a plain PEXPIREAT), and pauses some for
    a while; it writes down what was acknowledged. A task that was refused, or of which no answer
    came, was never promised. A change of mind is asked for until it is answered.
    """

    def __init__(
        self, url: str, history: Writer, *, rate: float, furthest: float, chance: random.Random
    ) -> None:
        super().__init__()
        self._url = url
        self._history = history
        self._rate = rate
        self._furthest = furthest
        self._chance = chance
        self._acts: list[tuple[float, int, Act]] = []
        """Changes of mind to come: when, in which order, and what to do."""
        self._order = count()

    # In the customer's own thread

    def _run(self) -> None:
        with Bridge(self._url) as self._bridge, redis.Redis.from_url(self._url) as self._client:
            self._make_tasks()
            # No more are made, but the last ones get what is still to be done to them.
            while self._acts:
                self._act_until(self._acts[0][0])

    def _make_tasks(self) -> None:
        next_at = time.monotonic()
        while not self._stop.is_set():
            self._act_until(next_at)
            self._make_one()
            # What was not made while the server was away is not made up for.
            next_at = max(next_at + 1 / self._rate, time.monotonic() - 1)

    def _act_until(self, end: float) -> None:
        """Do what is to be done until that time, and wait for it."""
        while self._acts and self._acts[0][0] <= end:
            at, _, act = heapq.heappop(self._acts)
            time.sleep(max(at - time.monotonic(), 0))
            act()
        time.sleep(max(end - time.monotonic(), 0))

    def _later(self, seconds: float, act: Act) -> None:
        heapq.heappush(self._acts, (time.monotonic() + seconds, next(self._order), act))

    def _make_one(self) -> None:
        chance = self._chance
        [fate] = chance.choices(list(FATES), list(FATES.values()))
        func = chance.choice(["recorded.work", "recorded.labour"])
        seconds = chance.uniform(*LONG) if fate == "long" else chance.uniform(0, SHORT)
        raises, retry = (chance.randint(1, len(RETRY) + 1), RETRY) if fate == "raise" else (0, [])
        delay = chance.uniform(0, self._furthest)
        try:
            task = self._bridge.make_task(func, [seconds, raises], delay, retry=retry)
        except ServerError:
            return
        self._history.write(Made(id=task.id, due=to_ms(task.due), attempts=len(retry) + 1))
        change: dict[str, Callable[[Task], None]] = {
            "cancel": self._cancel,
            "reschedule": self._reschedule,
            "expire": self._expire,
            "pause": self._pause,
        }
        if fate in change:
            self._later(chance.uniform(0, delay), lambda: change[fate](task))

    # Changes of mind

    def _cancel(self, task: Task) -> None:
        answer, tries = self._answered(lambda: self._bridge.cancel(task.id))
        if answer is Change.FINISHED and tries > 1:
            # The answer that got lost may have been that it is cancelled.
            found, _ = self._answered(lambda: self._bridge.get(task.id))
            if found is not None and found.state is State.CANCELLED:
                answer = Change.CANCELLED
        if answer in {Change.CANCELLED, Change.RUNNING}:
            self._history.write(Cancelled(id=task.id, answer=answer))

    def _reschedule(self, task: Task) -> None:
        at = self._further(task)
        answer, tries = self._answered(lambda: self._bridge.reschedule(task.id, at=at))
        if answer in {Change.MOVED, Change.REARMED} or tries > 1:
            # The answer that got lost may have been another.
            running = answer is not Change.MOVED or tries > 1
            self._history.write(PutOff(id=task.id, due=to_ms(at), running=running))

    def _expire(self, task: Task) -> None:
        at = to_ms(self._further(task))
        answer: Any
        answer, _ = self._answered(lambda: self._client.pexpireat(task.key, at))
        if answer:
            # In the millisecond in which it is due its key may still be there.
            self._history.write(PutOff(id=task.id, due=at, running=to_ms(task.due) <= now()))

    def _further(self, task: Task) -> datetime:
        later = max(task.due, datetime.now(UTC)) + timedelta(seconds=self._chance.uniform(*FURTHER))
        return later.replace(microsecond=later.microsecond // 1000 * 1000)

    def _pause(self, task: Task) -> None:
        answer, _ = self._answered(lambda: self._bridge.pause(task.id))
        paused_at = now()
        if answer is Change.PAUSED:
            seconds = self._chance.uniform(*PAUSED)
            self._later(seconds, lambda: self._resume(task, paused_at))

    def _resume(self, task: Task, paused_at: int) -> None:
        resumed_at = now()
        answer, _ = self._answered(lambda: self._bridge.resume(task.id))
        if answer is Change.RESUMED:
            # It was paused at the latest when that was answered, and resumed at the earliest when
            # that was asked for; less than nothing was never left.
            left = max(to_ms(task.due) - paused_at, 0)
            self._history.write(PutOff(id=task.id, due=resumed_at + left))

    def _answered(self, ask: Callable[[], T]) -> tuple[T, int]:
        """Ask until there is an answer; return it, and how often that took."""
        for tries in count(1):
            try:
                return ask(), tries
            except (ServerError, redis.RedisError):
                time.sleep(PAUSE)
        raise AssertionError
