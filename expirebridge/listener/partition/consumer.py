"""The consumer of a partition: what a listener runs for one partition."""

import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from expirebridge.hooks import Hooks
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.leases import CodeVersion, Leases
from expirebridge.listener.execution.settler import Settler
from expirebridge.listener.ledger.roles import desk_of
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.claimer import Claimer
from expirebridge.listener.partition.due_timer import DueTimer
from expirebridge.listener.partition.fair_share import FairShare
from expirebridge.listener.partition.key_events import KeyEventHandler
from expirebridge.listener.partition.maintenance import (
    LeaseReaper,
    SeriesRegistrar,
    Ticker,
    TimeZoneUpdater,
)
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.partition.reconciler import KeyReconciler
from expirebridge.listener.server_health import ServerHealth
from expirebridge.listener.session import Membership, PartitionSession
from expirebridge.listener.wakeups import Wakeup
from expirebridge.model.log_fields import event
from expirebridge.settings import Doorbells, Settings
from expirebridge.store.client import AsyncStore
from expirebridge.store.commands import claiming

if TYPE_CHECKING:
    from expirebridge.ledger.partition import LedgerEngine

logger = logging.getLogger("expirebridge")


class PartitionConsumer:
    """The roles of one partition, which stand on a node; all run their tasks in one executor."""

    def __init__(
        self, session: PartitionSession, settings: Settings, *, name: str, executor: Executor,
        hooks: Hooks, office: "LedgerEngine | None" = None,
    ) -> None:  # fmt: skip
        self._settings, self._executor = settings, executor
        self.session = session
        self._prefix = session.store.database.prefix
        self.misplaced = MisplacedKeys(session.store.database.layout, hooks)
        self._born: bytes | None = None
        """When its database was first written to, as far as that is known."""
        self.wakeup = wakeup = Wakeup()
        self.standing = standing = Membership(settings.doorbell, session.lot)
        code, fairness = CodeVersion(executor.fingerprint), FairShare(standing, executor.capacity)
        self._desk = desk = desk_of(office, self, hooks, wakeup=wakeup, standing=standing)
        self.row_check = desk.row_check if desk else None
        self._scan = scan = BacklogScan(code, standing, desk.gate if desk else None)
        self.leases = Leases(self, name, lease=settings.lease, code=code)
        self._clock = clock = DueTimer(
            self, self._prefix, wakeup=wakeup, fairness=fairness, scan=scan, hooks=hooks
        )
        self._ticker, self._retimer = Ticker(self, standing), TimeZoneUpdater(self, standing)
        self._declarer = SeriesRegistrar(self, settings, name=name, specs=executor.series)
        self._sweeper = LeaseReaper(self, settings, wakeup=wakeup, hooks=hooks)
        self.adopter = KeyReconciler(
            self, settings, self.row_check, wakeup=wakeup, clock=clock, misplaced=self.misplaced
        )
        self.hearing = KeyEventHandler(
            self, settings.doorbell, wakeup=wakeup, clock=clock, scan=scan,
            adopter=self.adopter, standing=standing, hooks=hooks,
        )  # fmt: skip
        self.settler = Settler(
            self, settings,
            leases=self.leases, capacity=executor.capacity, in_flight=executor.in_flight,
            wakeup=wakeup, hooks=hooks, hear_end=desk.relayer.hear_end if desk else None,
        )  # fmt: skip
        self._claimer = Claimer(
            self, settings,
            settler=self.settler, wakeup=wakeup, clock=clock, scan=scan,
            hearing=self.hearing, executor=executor, fairness=fairness, hooks=hooks,
        )  # fmt: skip

    @property
    def health(self) -> ServerHealth:
        """The health of its partition on the server that it is on now."""
        return self.session.health

    @property
    def store(self) -> AsyncStore:
        """Its partition, on the node on which it stands now."""
        return self.session.store

    @property
    def tag(self) -> bytes:
        """What the names of its trigger keys begin with; empty without a tag."""
        return self.store.database.tag.encode()

    @property
    def doorbell_channel(self) -> bytes:
        """The channel on which producers announce tasks of this partition."""
        return self.store.database.doorbell_channel.encode()

    def move_to(self, session: PartitionSession) -> None:
        """Go on with the same partition on another node, or another connection to it.

        What was heard and not yet looked at is dropped, since it may not be so there; the caller
        has the new node scanned.
        """
        self.session = session
        self.standing.lot = session.lot
        session.ears.want(self, self.standing.hears)
        self.adopter.forget_all()
        self.hearing.hear_after_gap(events=True)

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What it does, each for ever."""
        roles = {
            "claims": self._claimer.run(),
            "outcomes": self.settler.run(),
            "adoption": self.adopter.run(),
            "sweeps": self._sweeper.run(),
            "ticks": self._ticker.run(),
            "time zones": self._retimer.run(),
        }
        if self._executor.series:
            roles["declared series"] = self._declarer.run()
        if self._desk is not None:
            roles |= self._desk.roles()
        if self._settings.doorbell is not Doorbells.EVENTS:
            roles["clock"] = self._clock.run()
        return roles

    def poke(self) -> None:
        """Take note that a row of the ledger was committed."""
        if self._desk is not None:
            self._desk.relayer.poke()

    async def stop(self) -> None:
        """Claim no more; what runs goes on."""
        await self._claimer.stop()

    async def suspend(self) -> None:
        """Claim no more until `resume`; what runs goes on."""
        await self._claimer.suspend()

    def resume(self) -> None:
        """Claim again."""
        self._claimer.resume()

    # What a heartbeat brought

    def take_beat(self, beat: claiming.HeartbeatReply) -> None:
        """Take the answer to a heartbeat, on the event loop."""
        self.standing.rank, self.standing.listeners = beat.rank, beat.listeners
        self.standing.codes = beat.codes
        if beat.gap:
            self._scan.start_over()
        self.session.ears.want(self, self.standing.hears)
        self._ticker.hear(beat.next_making)
        self._retimer.hear(beat.next_making)
        self._notice_birth(beat.born)
        if beat.gap and self._settings.doorbell is Doorbells.CLOCK:
            # With events, the subscription is new then, too, and is a gap by itself.
            self.session.gaps.notice("no listener had beaten for half a lease")
        self._report_lost(beat.lost)
        self._executor.cancel(beat.cancelled)
        self._executor.drop_lost_leases(self)

    def _notice_birth(self, born: bytes) -> None:
        if born and self._born not in {None, born}:
            logger.critical(
                "the database was emptied, by FLUSHDB or by a restart without its data: the tasks "
                "that waited in it are gone; the listener continues",
                extra=event("emptied"),
            )
            self._declarer.hurry()
        self._born = born or self._born or b""

    def _report_lost(self, lost: list[str]) -> None:
        for id in lost:
            logger.warning(
                "the lease of task %s lapsed while it ran here", id,
                extra=event("lease lost", task=id),
            )  # fmt: skip
