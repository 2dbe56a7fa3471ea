"""The roles of a partition that has a ledger: relay, consistency check, retention."""

import asyncio
import contextlib
import logging
import re
import time
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from expirebridge.errors import (
    InvalidSetting,
    LedgerError,
    LedgerUnreachable,
    LedgerUnsuitable,
    ServerError,
)
from expirebridge.hooks import Hooks
from expirebridge.ledger import calls
from expirebridge.ledger.early_sender import EarlySender
from expirebridge.ledger.looks import Look
from expirebridge.ledger.row_check import LedgerGate, Link, RowCheck
from expirebridge.listener.execution.attempt import Attempt, FinishedAttempt
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.partition.capability_roles import (
    CapabilityRoles,
    Partition,
    PartitionRoles,
)
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.session import Membership, SessionOwner
from expirebridge.settings import Settings
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls import claiming
from expirebridge.task.texts import event, plural

if TYPE_CHECKING:
    from expirebridge.ledger.partition import LedgerEngine, LedgerPartition
    from expirebridge.ledger.relay_statements import RelayState


logger = logging.getLogger("expirebridge")

CLOSED_PAUSE = 0.1
DOUBTS = 3
"""How often in a row the numbers must differ before an open gate is closed: while a batch ends, its
rows are stamped a moment before the server has seen it."""


MOST_DOUBLINGS = 10
"""How often the pause of a closed gate is doubled, at most."""


def until_next(interval: float) -> float:
    """The seconds until the next multiple of an interval.

    All partitions of a listener look at the same moments, so that they can share what they read.
    """
    return interval - time.monotonic() % interval


class LedgerRole(PeriodicRole):
    """A periodic role that needs the ledger's database as well as the server."""

    retry_pause = 1.0

    async def try_once(self) -> float:
        """Run once, and report both; returns the seconds to pause."""
        try:
            return await super().try_once()
        except LedgerError as error:
            self.report(error)
            self.after_failure()
            return self.retry_pause

    @abstractmethod
    def report(self, error: LedgerError | None) -> None:
        """Log that the ledger fails, once, and that it works again."""


class ConsistencyCheck(LedgerRole):
    """Opens the gate when the checkpoints of ledger and server agree.

    It compares them after each new connection, and regularly.

    After a new connection it first takes a number, once: a batch that stalled before cannot end.
    """

    role = "comparing with the ledger"

    def __init__(
        self, consumer: SessionOwner, ledger: "LedgerPartition", gate: LedgerGate, *,
        wakeup: Wakeup, pause: float,
    ) -> None:  # fmt: skip
        super().__init__(consumer)
        self._ledger = ledger
        self._gate = gate
        self._wakeup = wakeup
        self._pause = pause
        self._fenced: Link | None = None
        self._doubts = 0
        self._failing = False

    async def wait(self, pause: float) -> None:
        """Wait until the pause is over, or until a task needs the gate."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._gate.wanted.wait()
        if self._gate.wanted.is_set():
            self._gate.wanted.clear()
            await asyncio.sleep(0 if self._gate.link != self._fenced else CLOSED_PAUSE)

    async def run_once(self) -> float:
        """Compare, and open or close the gate; returns the seconds to pause.

        Raises a ServerError or a LedgerError.
        """
        agreed = await self._compare()
        self.report(None)
        # A task that waits for the gate wakes this, so it need not ask often for long.
        pause = CLOSED_PAUSE * (1 << min(max(self._doubts - 1, 0), MOST_DOUBLINGS))
        if agreed or pause >= self._pause:
            return until_next(self._pause)
        return pause

    async def _compare(self) -> bool:
        link = self._gate.link
        if link != self._fenced:
            seen = (await link.session.store.run(calls.read_ledger())).number
            await self._ledger.run(self._ledger.fence, seen)
            self._fenced = link
        known = await link.session.store.run(calls.read_ledger())
        numbers = await self._ledger.compare(known)
        if numbers is None or not await self._agree(numbers, known):
            self._doubts += 1
            if self._doubts >= DOUBTS or (numbers is not None and numbers.rebuilding):
                self._gate.close()
            return False
        self._doubts = 0
        if link == self._gate.link and self._gate.open(link, known.number, known.unmarked):
            self._wakeup.set()
        return link == self._gate.link

    async def _agree(self, numbers: "RelayState", known: calls.RedisCheckpoint) -> bool:
        """Return whether tasks may be claimed.

        Rows that are to be rebuilt, and cannot be written now, do not close the gate: each holds up
        its own task, in RowCheck. So do a few others; with more of them, the claims of what has to
        wait would be in the way of the rebuild.
        """
        if not numbers.agrees_with(known):
            return False
        return not numbers.rebuilding or await self._ledger.run(self._ledger.is_rebuild_held_up)

    def after_failure(self) -> None:
        """Close the gate."""
        self._gate.close()

    def report(self, error: LedgerError | None) -> None:
        """Log that the ledger fails, once, and that it works again."""
        if error is not None and not self._failing:
            logger.error(
                "tasks of the ledger wait: %s (reported once)", error,
                extra=event("ledger away", error=str(error)),
            )  # fmt: skip
        if error is None and self._failing:
            logger.warning("the ledger works again", extra=event("ledger back"))
        self._failing = error is not None


LATE = 0.01
"""Seconds by which a task is late for the relay; a listener whose machine has time starts tasks in
less."""


class LateStarts:
    """Counts the tasks of a listener that began late, so that its relays make room for others.

    A relay takes time of the server, of the interpreter, and of the machine's cores, and perhaps
    the SQL database's on the same ones. Whichever is short, tasks begin late: so this one number
    stands for all of them, and where no task is due there is nobody to rest for.
    """

    def __init__(self) -> None:
        self.count = 0

    def hear_end(self, attempt: Attempt) -> None:
        """Count an attempt that has ended, if it began late."""
        if attempt.lateness > LATE and not _was_relayed_late(attempt.claimed):
            self.count += 1


def _was_relayed_late(claimed: ClaimedTask) -> bool:
    """True of a row that came to the server when it was due: the relay should have been faster."""
    if claimed.ledger is None:
        return False
    return claimed.made is None or (claimed.made + 1) * 1000 > claimed.due  # rounded down


FULL = 100
"""Rows of a batch from which on another follows at once."""
LONG = 15.0
"""Seconds after which a batch that has not ended is reported. A large rebuild may take as long."""


class RelayLoop(LedgerRole):
    """Relays rows of the ledger to the server, and status updates back.

    The listener of the lowest rank relays at each look; others less often, by their rank.

    Those of a lower rank may lack the ledger. If two relay at once, one is fenced out.
    """

    role = "the relay of the ledger"
    interval = 1.0
    """Seconds after which it looks in any case: a notification may be lost."""
    rest = 0.015
    """Seconds after a look until an end causes another, for each partition that shares the
    connections, and at least as long as that look took: what ends meanwhile shares a batch."""

    def __init__(
        self, consumer: SessionOwner, ledger: "LedgerPartition", membership: Membership, *,
        hooks: Hooks, late_starts: LateStarts,
    ) -> None:  # fmt: skip
        super().__init__(consumer)
        self._ledger = ledger
        self._membership = membership
        self._hooks = hooks
        self._late_starts = late_starts
        self._late_count = 0
        """The number of late starts at the end of the latest look."""
        self._wakes = asyncio.Event()
        self._committed = False
        """A row was committed since the latest look."""
        self._ended = False
        """A task changed since the latest write-back; its row needs a status update."""
        self._rested = time.monotonic()
        """Until then ends wait for a write-back, which they share."""
        self._looked = time.monotonic()
        self._look = Look.ALL
        """What this look is for."""
        self._next_look = time.monotonic()
        """When it looks in any case."""
        self._error: LedgerError | None = None

    def notify(self) -> None:
        """Relay at once: a row was committed."""
        self._committed = True
        self._wakes.set()

    def hear_end(self) -> None:
        """Look soon: an attempt ended, and its row needs a status update. Ends are coalesced."""
        if not self._ended:
            self._ended = True
            self._wakes.set()

    async def wait(self, pause: float) -> None:
        """Wait until it is to look and has its turn, or is notified and has its turn."""
        self._next_look = time.monotonic() + pause
        while True:
            await self._wait_for_look()
            now = time.monotonic()
            self._look = self._look_at(now)
            writes_back = self._look is not Look.ROWS
            self._committed, self._ended = False, self._ended and not writes_back
            if now >= self._looked + self._membership.turn * self.interval:
                self._looked = now
                return
            self._ended = False
            self._next_look = now + until_next(self.interval)

    def _look_at(self, now: float) -> Look:
        """The look for which it is time."""
        if now >= self._next_look:
            return Look.ALL
        return Look.ENDS if self._ended and now >= self._rested else Look.ROWS

    async def _wait_for_look(self) -> None:
        """Wait until it looks in any case, for a commit, or the time to write back what ended."""
        while not self._committed:
            next_look = self._next_look
            end = min(next_look, self._rested) if self._ended else next_look
            left = end - time.monotonic()
            if left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._wakes.wait()
            self._wakes.clear()

    async def run_once(self) -> float:
        """Relay a batch in each direction; returns the seconds to pause.

        Raises a ServerError or a LedgerError.
        """
        began = time.monotonic()
        try:
            carried = await self._relay(since=began)
        finally:
            for batch in self._ledger.take_batches():
                self._hooks.emit(batch)
        self.report(None)
        took = time.monotonic() - began
        before, self._late_count = self._late_count, self._late_starts.count
        if carried >= FULL:
            if self._late_count > before:
                await self.make_room(took)
            return 0.0
        if self._look is Look.ROWS:
            self._ended = self._ended or carried > 0  # what is carried may have changed tasks
        else:
            self._rested = time.monotonic() + max(self.rest * self._ledger.partitions, took)
        if self._look is Look.ALL:
            return until_next(self.interval)
        return max(self._next_look - time.monotonic(), 0.0)

    async def make_room(self, seconds: float) -> None:
        """Rest for as long as a look took in which tasks began late, or before it."""
        await asyncio.sleep(seconds)

    async def _relay(self, *, since: float) -> int:
        """Relay, however long it takes; what takes long is reported, and goes on."""
        look = self._ledger.look_and_relay(self._owner.session.store, since, look=self._look)
        call = asyncio.ensure_future(look)
        try:
            done, _ = await asyncio.wait([call], timeout=LONG)
            if not done:
                self.report(LedgerUnreachable(f"its database has not answered for {LONG:g} s"))
            return await call
        finally:
            call.cancel()  # its end does not matter when the listener stops

    def report(self, error: LedgerError | None) -> None:
        """Log that the relay stands still, once for each reason, and that it goes on."""
        if error is not None and _reason_of(error) != _reason_of(self._error):
            logger.error(
                "the relay of the ledger stands still: %s (reported once)", error,
                extra=event("relay stopped", error=str(error)),
            )  # fmt: skip
        if self._error is not None and error is None:
            logger.warning("the relay of the ledger goes on", extra=event("relay goes on"))
        self._error = error


def _reason_of(error: LedgerError | None) -> tuple[type, str]:
    """What makes a failure another one for the log.

    A ledger that does not fit may not fit in several ways, one behind the other; numbers in the
    text may change each second. What a driver says of a database may be worded anew each time.
    """
    text = re.sub(r"\d+", "", str(error)) if isinstance(error, LedgerUnsuitable) else ""
    return type(error), text


class RetentionLoop:
    """Deletes finished rows of the ledger after their retention, in batches.

    After each batch it rests for as long as that took: deleting is never in a hurry.
    """

    role = "deleting old rows of the ledger"
    interval = 60.0
    """Seconds between two rounds; the less often, the higher the rank is."""

    def __init__(self, ledger: "LedgerPartition", membership: Membership, *, keep: float) -> None:
        self._ledger = ledger
        self._membership = membership
        self._keep = keep

    async def run(self) -> None:
        """Make rounds, for ever."""
        while True:
            await asyncio.sleep(self.interval * (1 + self._membership.turn))
            await self.run_once()

    async def run_once(self) -> None:
        """Make one round. What goes wrong is left to the next one: the relay reports it."""
        try:
            count = await self._make_round()
        except (LedgerError, ServerError) as error:
            logger.debug("%s: %s", self.role, error)
            return
        if count:
            logger.info(
                "deleted %s of the ledger whose tasks finished long ago",
                plural(count, "row", "rows"),
                extra=event("rows pruned", count=count),
            )  # fmt: skip

    async def _make_round(self) -> int:
        count, place = 0, None
        while True:
            began = time.monotonic()
            pruned = await self._ledger.begin(self._ledger.prune, self._keep, place)
            count, place = count + pruned.deleted, pruned.place
            if place is None:
                return count
            await asyncio.sleep(time.monotonic() - began)


class LedgerRoles(PartitionRoles):
    """Roles of a partition that has a ledger, and the objects that they share."""

    hears_ends = True

    def __init__(
        self, ledger_engine: "LedgerEngine", late_starts: LateStarts, partition: Partition
    ) -> None:
        settings, membership = partition.settings, partition.membership
        self.gate = gate = LedgerGate(partition)
        ledger = ledger_engine.partition(lambda: partition.session.heart_store, lambda: gate.link)
        self._ledger = ledger
        self.rows = RowCheck(ledger, gate, settings)
        self._consistency_check = ConsistencyCheck(
            partition, ledger, gate, wakeup=partition.wakeup,
            pause=settings.lease / claiming.BEATS_PER_LEASE,
        )  # fmt: skip
        self._late_starts = late_starts
        self._relay_loop = RelayLoop(
            partition, ledger, membership, hooks=partition.hooks, late_starts=late_starts
        )
        self._early_sender = EarlySender(ledger, gate, membership, self._relay_loop)
        self._retention_loop = RetentionLoop(ledger, membership, keep=settings.ledger_keep)
        self.words = [calls.horizon_word(settings.ledger_horizon)]

    def roles(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role, by its name."""
        return {
            "relay of the ledger": self._relay_loop.run(),
            "early sends": self._early_sender.run(),
            "gate": self._consistency_check.run(),
            "old rows of the ledger": self._retention_loop.run(),
        }

    def hear_commit(self, ids: Sequence[str]) -> None:
        """Send these rows early, or wake the relay; of other partitions there is nothing to do."""
        own = [id for id in ids if self._ledger.has(id)]
        if ids and not own:
            return
        if not own or not self._early_sender.hear(own):
            self._relay_loop.notify()

    def hear_end(self, finished: FinishedAttempt) -> None:
        """Have the relay rest if the task began late, and look soon if it has a row."""
        self._late_starts.hear_end(finished.attempt)
        if finished.attempt.claimed.ledger is not None:
            self._relay_loop.hear_end()


def roles_of(settings: Settings) -> CapabilityRoles | None:
    """Relay for the ledger that the settings name; None if they name none.

    All partitions share its connections and threads. Raises InvalidSetting for a URL that cannot be
    used.
    """
    if settings.ledger is None:
        return None
    # Here, so that SQLAlchemy is imported only where there is a ledger.
    try:
        from expirebridge.ledger.partition import LedgerEngine  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise InvalidSetting(f"the ledger: {missing}") from None
    ledger_engine = LedgerEngine(settings)
    return CapabilityRoles(
        in_partition=partial(LedgerRoles, ledger_engine, LateStarts()), close=ledger_engine.close
    )
