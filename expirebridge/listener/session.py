"""The connections, clock and health of a partition, and the listener's place among others."""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha1
from typing import Protocol

from expirebridge.errors import ServerError
from expirebridge.listener.wakeups import (
    ConnectionCounter,
    EventDemand,
    Responsiveness,
    ResyncRequests,
)
from expirebridge.settings import Doorbells
from expirebridge.store.client import AsyncStore, Store
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

# An estimate is as good as the round trip was short. An older one is trusted less, by so many
# seconds of error for each second of age: more than clocks drift apart.
_DRIFT = 0.0005
JUMP = 0.5
"""Seconds from which on a difference to the estimate is a jump of the server's clock."""


class ServerClock:
    """Estimate of the server's clock, from the times in its replies.

    The server wrote its time somewhere between our sending and our receiving, so the middle is off
    by half the round trip at most. The sample with the least possible error is kept.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        self._error = float("inf")
        self._taken = time.monotonic()
        self.jump: tuple[float, float] | None = None
        """The latest time that it passed over, from and to, if there was one."""

    def learn(self, now_us: int, *, sent: float, received: float) -> None:
        """Take a sample: the server's time, and ours (monotonic seconds) around the exchange."""
        error = (received - sent) / 2
        offset = now_us / 1e6 - (sent + received) / 2
        expected = self._error + _DRIFT * (received - self._taken)
        jumped = abs(offset - self._offset) > error + expected
        if offset - self._offset > max(error + expected, JUMP):
            self.jump = (received + self._offset, received + offset)
        if error <= expected or jumped:
            self._offset, self._error, self._taken = offset, error, received

    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.monotonic() + self._offset

    def at(self, moment: float) -> float:
        """The server's time at that moment (monotonic), in seconds since 1970."""
        return moment + self._offset

    def seconds_until(self, due_ms: int) -> float:
        """Seconds from now until that millisecond begins on the server; negative if it has."""
        return due_ms / 1000 - self.now()


# The health of a server. Every role retries by itself, several times a second: a log line for each
# would bury all others.


class ServerHealth:
    """Health of a server, from the reports of the roles that call it. Thread-safe.

    An outage begins with the first role that fails, and ends when each that failed has an answer.
    """

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._logged: set[type[ServerError]] = set()
        """The kinds of error that were logged in this outage."""
        self._began = 0.0
        self._lock = threading.Lock()

    @property
    def lasts(self) -> bool:
        """True during an outage."""
        return bool(self._failing)

    def failed(self, role: str, error: ServerError) -> None:
        """Report that the server failed or refused a call of this role, which will retry."""
        with self._lock:
            if not self._failing:
                self._logged.clear()
                self._began = time.monotonic()
            self._failing.add(role)
            is_news = type(error) not in self._logged
            self._logged.add(type(error))
        if is_news:
            logger.warning(
                "%s failed: %s (reported once per outage)", role, error,
                extra=event("outage", role=role, kind=type(error).__name__, error=str(error)),
            )  # fmt: skip
        else:
            logger.debug("%s failed: %s", role, error)

    def answered(self, role: str) -> None:
        """Report that the server answered this role."""
        if role not in self._failing:
            return
        with self._lock:
            self._failing.discard(role)
            is_over = not self._failing
        if is_over:
            lasted = round(time.monotonic() - self._began, 1)
            logger.warning(
                "everything works again, after %.1f s",
                lasted,
                extra=event("recovered", seconds=lasted),
            )

    def end(self) -> None:
        """Report that the partition moved to another server."""


class PartitionHealth(ServerHealth):
    """Health of one partition of a cluster node; its slot may move alone.

    The server's health logs it.
    """

    def __init__(self, node: ServerHealth, partition: str) -> None:
        super().__init__()
        self._node = node
        self._partition = partition
        self._ended = False

    def failed(self, role: str, error: ServerError) -> None:
        """Report that the server failed or refused a call of this role, which will retry."""
        with self._lock:
            if self._ended:
                return
            self._failing.add(role)
        self._node.failed(f"{role} of {self._partition}", error)

    def answered(self, role: str) -> None:
        """Report that the server answered this role."""
        if role not in self._failing:
            return
        with self._lock:
            self._failing.discard(role)
        self._node.answered(f"{role} of {self._partition}")

    def end(self) -> None:
        """Report that the partition moved to another server: its failures here are over."""
        with self._lock:
            self._ended = True
        for role in list(self._failing):
            self.answered(role)


# The election of the listeners that subscribe to the key events of a server.


class SubscriberElection:
    """Elects a cluster node's subscribers to key events, by rendezvous hashing.

    Each listener has a weight at each node, which everybody can compute. So nodes have different
    subscribers, and when a listener comes or goes, only those nodes change theirs that it hears.
    """

    def __init__(self, node: str, listener: str) -> None:
        self._node = node
        self._listener = listener
        self.place = 0
        """How many others come first; 0 until it is drawn."""

    def draw(self, listeners: Iterable[str]) -> None:
        """Take the place among these listeners, the live ones."""
        own = self._weight(self._listener)
        self.place = sum(self._weight(other) < own for other in listeners)

    def _weight(self, listener: str) -> bytes:
        return sha1(f"{self._node} {listener}".encode(), usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class PartitionSession:
    """Connections, clock and health of one partition on one server."""

    store: AsyncStore
    heart_store: Store
    """For the thread of the heartbeat, with a connection of its own."""
    server_clock: ServerClock
    health: ServerHealth
    resyncs: ResyncRequests
    event_demand: EventDemand
    connection_count: ConnectionCounter
    """How many connections `store` has made; not counted without a ledger."""
    may_be_demoted: bool = False
    """True if a failover may turn this server into a replica while it runs."""
    election: SubscriberElection | None = None
    """Elects the subscribers of a cluster node; None: the rank decides."""
    responsiveness: Responsiveness | None = None
    """Circuit breaker of a cluster node; None: there is no other node to protect."""

    @property
    def is_away(self) -> bool:
        """True while the server does not answer this partition."""
        return self.health.lasts or (self.responsiveness is not None and self.responsiveness.lost)


class SessionOwner(Protocol):
    """Owner of the session that roles use, which changes with the server.

    Read `session` once per round trip; otherwise store and clock may belong to different servers.
    """

    @property
    def session(self) -> PartitionSession:
        """The present one."""

    @property
    def health(self) -> ServerHealth:
        """The health that roles report to."""


# The place of a listener among those of its partition.

SUBSCRIBERS = 2
"""Listeners that hear key events: one, and a spare (docs/adr/0004-two-subscribers.md)."""
MOST_TURNS = 10
"""Listeners that one waits for, at most: those of a lower rank may all be unable to do the work."""


class Membership:
    """Rank of this listener and number of listeners, updated by each heartbeat."""

    def __init__(self, doorbell: Doorbells, election: SubscriberElection | None = None) -> None:
        self._doorbell = doorbell
        self.rank = 0
        self.listeners = 1
        """The number of live listeners."""
        self.codes: Sequence[tuple[str, int]] = ()
        """If they run more than one code: each fingerprint, and how many of them run it."""
        self.election = election
        """Its place among those that may hear its node, among several nodes."""

    @property
    def turn(self) -> int:
        """How many listeners come before this one in work that any of them can do, at most 10."""
        return min(self.rank, MOST_TURNS)

    @property
    def hears(self) -> bool:
        """True if this listener subscribes to key events, and scans if the server sends none.

        With the clock alone, edits need not be noticed.
        """
        return self._place < SUBSCRIBERS and self._doorbell is not Doorbells.CLOCK

    @property
    def _place(self) -> int:
        return self.rank if self.election is None else self.election.place
