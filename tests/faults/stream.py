"""A producer that makes tasks one after another, in a thread, whatever happens to the server."""

import random
import threading
from collections.abc import Callable

import redis

from expirebridge import Bridge, Task
from expirebridge.connection.clients import producer_client
from expirebridge.errors import ServerError
from expirebridge.task.task import to_ms
from tests.faults.background import Background
from tests.kit.history import Made, PutOff, Writer, now
from tests.kit.patience import PATIENCE

PAUSE = 0.003
"""Seconds between two tasks."""
FURTHEST = 1.0
"""Seconds from now in which tasks are due, by default; the nearest are due at once."""
WORK = 0.02
"""Seconds that a handler takes at most."""
RAISES_EVERY = 20
"""Of so many tasks one raises on its first attempt."""
RETRY = [0.2]
PUT_OFF_EVERY = 5
"""Of so many tasks one is put off, if tasks are."""
FURTHER = (0.3, 1.0)
"""Seconds by which it is, from when it was due."""
SOONEST_PUT_OFF = 0.3
"""Seconds until a task is due that can be put off: then it is, before it runs."""


class Stream(Background):
    """Makes tasks until its `with` block ends, and writes down each that is acknowledged.

    The last one is written down when the block has ended, or `stop` has returned. One that was
    refused, or of which no answer came, was never promised; `errors` holds why. With `puts_off`, a
    plain client puts some of them off; for servers that do not go away.
    """

    def __init__(
        self,
        url: str,
        history: Writer,
        *,
        chance: random.Random,
        puts_off: bool = False,
        furthest: float = FURTHEST,
    ) -> None:
        super().__init__()
        self.put_off = 0
        """How many tasks were put off."""
        self.errors: list[ServerError] = []
        self._url = url
        self._history = history
        self._chance = chance
        self._puts_off = puts_off
        self._furthest = furthest
        self._acknowledged = 0
        self._counted = threading.Condition()

    @property
    def acknowledged(self) -> int:
        """How many tasks were acknowledged."""
        return self._acknowledged

    def until_more(self, count: int) -> None:
        """Wait until so many more tasks were acknowledged."""
        wanted = self._acknowledged + count
        self._until(lambda: self._acknowledged >= wanted, f"{count} more acknowledged tasks")

    def until_refused(self) -> ServerError:
        """Wait until one more call failed, and return why."""
        wanted = len(self.errors) + 1
        self._until(lambda: len(self.errors) >= wanted, "another error")
        return self.errors[-1]

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        with self._counted:
            assert self._counted.wait_for(holds, PATIENCE), f"waited in vain for {what}"

    def _run(self) -> None:
        with Bridge(self._url) as bridge, producer_client(self._url) as client:
            count = 0
            while not self._stop.wait(PAUSE):
                count += 1
                task = self._make_one(bridge, raises=int(count % RAISES_EVERY == 0))
                if task is not None and self._puts_off and count % PUT_OFF_EVERY == 0:
                    self._put_off(client, task)

    def _put_off(self, client: redis.Redis, task: Task) -> None:
        due = to_ms(task.due)
        if due - now() < SOONEST_PUT_OFF * 1000:
            return
        later = due + round(self._chance.uniform(*FURTHER) * 1000)
        if client.pexpireat(task.key, later):
            self.put_off += 1
            # Only if this thread stood still has its time come.
            self._history.write(PutOff(id=task.id, due=later, running=due <= now()))

    def _make_one(self, bridge: Bridge, raises: int) -> Task | None:
        chance = self._chance
        args = [chance.uniform(0, WORK), raises]
        try:
            delay = chance.uniform(0, self._furthest)
            task = bridge.make_task("recorded.work", args, delay, retry=RETRY)
        except ServerError as error:
            with self._counted:
                self.errors.append(error)
                self._counted.notify_all()
            return None
        self._history.write(Made(id=task.id, due=to_ms(task.due), attempts=len(RETRY) + 1))
        with self._counted:
            self._acknowledged += 1
            self._counted.notify_all()
        return task
