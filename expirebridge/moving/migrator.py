"""Moves the tasks of one database to another, while both are in use.

Each task is in one of three places: in the old database, where its listeners may run it; in a
batch, where nobody can; or in the new one. A batch is packed in one step, received in one step for
each partition, once, by its number, and forgotten when it has arrived. So the command can be killed
at any time, and restarted; two at once do no harm.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from expirebridge.bridge import Operations
from expirebridge.connection.urls import safe_url
from expirebridge.errors import (
    InvalidSetting,
    ServerError,
    ServerOutOfMemory,
    ServerReadOnly,
    ServerUnreachable,
    SlotMoving,
    SlotUnserved,
)
from expirebridge.hooks import Hooks
from expirebridge.moving import calls
from expirebridge.moving.calls import LANES, SERIES, MigrationBatch, MigrationResult
from expirebridge.settings import Settings
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import reconciling
from expirebridge.task.calls.call import at
from expirebridge.task.listings import Counts
from expirebridge.task.task import State

logger = logging.getLogger("expirebridge")

EVERY = 0.25
"""Seconds between passes when there was nothing to move."""
RETRY_PAUSE = 1.0
LISTED = 20
"""Most ids that the result names."""
# Those that wait in an ordered lane go before those that will come to it.
UNCLAIMED = (State.WAITING, State.PENDING, State.PAUSED)
# Unclaimed tasks move while listeners run the rest; these move when no listener is left.
REST = (State.FAILED, State.SUCCEEDED, SERIES)
# Errors of a server that is away, and comes back.
_PASSING = (ServerUnreachable, ServerReadOnly, ServerOutOfMemory, SlotMoving, SlotUnserved)


@dataclass
class Moved:
    """The counts of a move."""

    tasks: int = 0
    series: int = 0
    stayed: int = 0
    """Tasks that stayed because the new database has others with their ids, which are kept."""
    stayed_ids: list[str] = field(default_factory=list)


class Migrator:
    """Moves tasks until it is stopped, or until no runnable task is left."""

    def __init__(
        self, source: Partitions, target: Partitions, old: Settings, new: Settings
    ) -> None:
        self._source = source
        self._target = target
        # Finished tasks above the limit are moved, too.
        self._old = replace(old, keep_succeeded_count=10**9)
        self._names = (_name_of(old), _name_of(new))
        self._nonces: list[str] = []
        self._received: list[int] = []
        self._lanes_are_open = False
        self._has_ordered = False
        self._stop = threading.Event()
        self.moved = Moved()
        self.has_listeners = True
        """True if the old database has live listeners, as of the last batch."""

    def stop(self) -> None:
        """Let `run` return when the batch in transit has arrived."""
        self._stop.set()

    def begin(self) -> None:
        """Begin, or resume. Raises MoveRefused and InvalidSetting."""
        source, target = self._names
        if source == target:
            raise InvalidSetting(f"to={target!r}: that is the database to move from")
        self._target.run(calls.begin_receiving(source))
        try:
            self._nonces = self._source.run(calls.begin_move(target))
        except ServerError:
            with suppress(ServerError):
                self._target.run(calls.end_receiving())
            raise
        # Before any task: what is on hold in the old database must not start in the new one.
        found = self._source.run(calls.read_holds_and_weights())
        self._target.run(calls.receive_holds_and_weights(self._nonces[0], found))
        self._received = [self._target.run(calls.last_received(nonce)) for nonce in self._nonces]

    def run(self, on_pass: Callable[[Counts], None] = lambda _: None) -> bool:
        """Move tasks; return whether nothing is left. `on_pass` is called after each pass.

        While the old database has live listeners, it never ends by itself.
        """
        away = False
        while not self._stop.is_set():
            try:
                moved = self.run_pass()
                counts = self._source.run(Operations(self._old, Hooks()).count())
                on_pass(counts)
                if not moved and self._is_over(counts):
                    self._target.run(calls.end_receiving())
                    return True
            except _PASSING as error:
                if not away:
                    logger.warning("the move waits: %s", error)
                away = True
                self._stop.wait(RETRY_PAUSE)
            else:
                away = False
                self._stop.wait(0 if moved else EVERY)
        return False

    def run_pass(self) -> int:
        """Move all that can go now; return the number of tasks and series.

        Until a pass finds that nothing of an ordered lane is left, none begins on either side.
        """
        before = self.moved.tasks + self.moved.series + self.moved.stayed
        has_listeners = self._has_ordered = False
        for partition in range(len(self._nonces)):
            for state in UNCLAIMED if self._lanes_are_open else (LANES, *UNCLAIMED):
                has_listeners |= self._move(partition, state)
            if not has_listeners:
                for rest in REST:
                    has_listeners |= self._move(partition, rest)
        if not (self._lanes_are_open or self._has_ordered or self._stop.is_set()):
            self._target.run(calls.open_lanes())
            self._lanes_are_open = True
        self.has_listeners = has_listeners
        return self.moved.tasks + self.moved.series + self.moved.stayed - before

    def plain_keys(self) -> int:
        """The number of keys of other clients that no listener has noticed yet."""
        return sum(len(found) for found in self._walked())

    def _move(self, partition: int, what: State | str) -> bool:
        """Move tasks of one state; return whether the partition has live listeners."""
        skip, has_listeners = 0, False
        while not self._stop.is_set():
            batch = self._source.run(
                calls.pack_batch(
                    partition, self._nonces[partition], self._received[partition],
                    self._old.lease, what, skip,
                )
            )  # fmt: skip
            has_listeners = batch.has_listeners
            self._has_ordered |= batch.has_ordered
            if batch.forgotten:
                logger.warning(
                    "the old server has lost writes: tasks that were moved may be there, too"
                )
            if batch.number:
                self._deliver(partition, batch)
            if not has_listeners:
                # No listener clears what the tasks leave behind.
                self._source.run(at(reconciling.sweep(self._old, calls.BATCH_TASKS), partition))
            if batch.skip is None:
                break
            skip = batch.skip
        return has_listeners

    def _deliver(self, partition: int, batch: MigrationBatch) -> None:
        nonce = self._nonces[partition]
        results = self._target.run(calls.receive_batch(nonce, batch.number, batch.items))
        self._source.run(calls.drop_batch(partition, nonce, batch.number))
        self._received[partition] = batch.number
        for item, result in zip(batch.items, results, strict=True):
            if result is MigrationResult.STAYS:
                self.moved.stayed += 1
                if len(self.moved.stayed_ids) < LISTED:
                    self.moved.stayed_ids.append(item.id)
            elif item.is_series:
                self.moved.series += 1
            else:
                self.moved.tasks += 1

    def _is_over(self, counts: Counts) -> bool:
        left = counts.unfinished + counts.failed + counts.succeeded
        return not self.has_listeners and not left and not self.plain_keys()

    def _walked(self) -> Iterator[list[bytes]]:
        for partition in range(len(self._nonces)):
            cursor = ""
            while cursor != "0":
                step = self._source.run(at(reconciling.scan(cursor or "0", 1000), partition))
                cursor = step.cursor
                yield step.found


def _name_of(settings: Settings) -> str:
    """A database as people know it."""
    return f"{safe_url(settings.url)} {settings.prefix}"
