"""Moves the tasks of one database to another, while both are in use.

Each task is in one of three places: in the old database, where its listeners may run it; in a
parcel, where nobody can; or in the new one. A parcel is packed in one step, received in one step
for each partition, once, by its number, and forgotten when it has arrived. So a mover can be killed
at any time, and started again; two at once do no harm.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

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
from expirebridge.model.task import Counts, State
from expirebridge.producer.operations import Operations
from expirebridge.settings import Settings
from expirebridge.store.commands import migration, reconciling
from expirebridge.store.commands.call import at
from expirebridge.store.commands.migration import SERIES, MigrationBatch, MigrationResult
from expirebridge.store.partitions import Partitions

logger = logging.getLogger("expirebridge")

EVERY = 0.25
"""Seconds between passes when there was nothing to carry."""
RETRY_PAUSE = 1.0
LISTED = 20
"""Ids that the result names at most."""
# What waits is carried while listeners run the rest; these go when none is left.
WAITING = (State.PENDING, State.PAUSED)
REST = (State.FAILED, State.SUCCEEDED, SERIES)
# A server that is away comes back.
_PASSING = (ServerUnreachable, ServerReadOnly, ServerOutOfMemory, SlotMoving, SlotUnserved)


@dataclass
class Moved:
    """What was carried over."""

    tasks: int = 0
    series: int = 0
    stayed: int = 0
    """Tasks of which the new database had another one with that id, which was to stay."""
    stayed_ids: list[str] = field(default_factory=list)


class Migrator:
    """Carries tasks over until it is stopped, or nothing is left that anybody could run."""

    def __init__(
        self, source: Partitions, target: Partitions, old: Settings, new: Settings
    ) -> None:
        self._source = source
        self._target = target
        # Surplus tasks are carried, too.
        self._old = replace(old, keep_succeeded_count=10**9)
        self._names = (_name_of(old), _name_of(new))
        self._nonces: list[str] = []
        self._arrived: list[int] = []
        self._stop = threading.Event()
        self.moved = Moved()
        self.attended = True
        """Whether listeners beat at the old database, as of the last parcel."""

    def stop(self) -> None:
        """Let `run` return when the parcel that is on its way has arrived."""
        self._stop.set()

    def begin(self) -> None:
        """Begin, or resume. Raises MoveRefused and InvalidSetting."""
        source, target = self._names
        if source == target:
            raise InvalidSetting(f"to={target!r}: that is the database to move from")
        self._target.run(migration.begin_arrival(source))
        try:
            self._nonces = self._source.run(migration.begin_move(target))
        except ServerError:
            with suppress(ServerError):
                self._target.run(migration.end_arrival())
            raise
        self._arrived = [self._target.run(migration.read_arrivals(nonce)) for nonce in self._nonces]

    def run(self, tell: Callable[[Counts], None] = lambda _: None) -> bool:
        """Carry tasks over; return whether nothing is left. `tell` is called after each pass.

        While listeners beat at the old database it never ends by itself.
        """
        away = False
        while not self._stop.is_set():
            try:
                carried = self.run_pass()
                counts = self._source.run(Operations(self._old, Hooks()).count())
                tell(counts)
                if not carried and self._is_over(counts):
                    self._target.run(migration.end_arrival())
                    return True
            except _PASSING as error:
                if not away:
                    logger.warning("the move waits: %s", error)
                away = True
                self._stop.wait(RETRY_PAUSE)
            else:
                away = False
                self._stop.wait(0 if carried else EVERY)
        return False

    def run_pass(self) -> int:
        """Carry all over that can go now; return how many tasks and series that were."""
        before = self.moved.tasks + self.moved.series + self.moved.stayed
        attended = False
        for partition in range(len(self._nonces)):
            for state in WAITING:
                attended |= self._carry(partition, state)
            if not attended:
                for rest in REST:
                    attended |= self._carry(partition, rest)
        self.attended = attended
        return self.moved.tasks + self.moved.series + self.moved.stayed - before

    def plain_keys(self) -> int:
        """How many keys of other clients no listener has heard of yet."""
        return sum(len(found) for found in self._walked())

    def _carry(self, partition: int, what: State | str) -> bool:
        """Carry tasks of one state; return whether listeners beat."""
        skip, attended = 0, False
        while not self._stop.is_set():
            parcel = self._source.run(
                migration.pack_parcel(
                    partition, self._nonces[partition], self._arrived[partition],
                    self._old.lease, what, skip,
                )
            )  # fmt: skip
            attended = parcel.attended
            if parcel.forgotten:
                logger.warning(
                    "the old server has lost writes: tasks that were carried over may be there, too"
                )
            if parcel.number:
                self._deliver(partition, parcel)
            if not attended:
                # Nobody else forgets what the tasks leave behind.
                self._source.run(at(reconciling.sweep(self._old, migration.PARCEL), partition))
            if parcel.skip is None:
                break
            skip = parcel.skip
        return attended

    def _deliver(self, partition: int, parcel: MigrationBatch) -> None:
        nonce = self._nonces[partition]
        arrivals = self._target.run(migration.receive_parcel(nonce, parcel.number, parcel.items))
        self._source.run(migration.drop_parcel(partition, nonce, parcel.number))
        self._arrived[partition] = parcel.number
        for item, arrival in zip(parcel.items, arrivals, strict=True):
            if arrival is MigrationResult.STAYS:
                self.moved.stayed += 1
                if len(self.moved.stayed_ids) < LISTED:
                    self.moved.stayed_ids.append(item.id)
            elif item.is_series:
                self.moved.series += 1
            else:
                self.moved.tasks += 1

    def _is_over(self, counts: Counts) -> bool:
        left = counts.pending + counts.paused + counts.running + counts.failed + counts.succeeded
        return not self.attended and not left and not self.plain_keys()

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
