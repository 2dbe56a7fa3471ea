"""The consumer of a partition: its roles, and the objects that they share."""

import logging
from collections.abc import Coroutine, Sequence
from typing import Any

from expirebridge.hooks import Hooks
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.execution.leases import HandlersDeclaration, Leases
from expirebridge.listener.execution.settler import Settler
from expirebridge.listener.hindrances import Hindrances
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.capability_roles import CapabilityRoles, marks_of
from expirebridge.listener.partition.claimer import Claimer
from expirebridge.listener.partition.due_timer import DueTimer
from expirebridge.listener.partition.fair_share import FairShare
from expirebridge.listener.partition.key_events import KeyEventHandler
from expirebridge.listener.partition.lease_reaper import LeaseReaper
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.partition.reconciler import KeyReconciler
from expirebridge.listener.session import Membership, PartitionSession, ServerHealth
from expirebridge.settings import Doorbells, Settings
from expirebridge.store.client import AsyncStore
from expirebridge.task.calls import claiming
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")


class PartitionConsumer:
    """Consumer of one partition; all consumers run their tasks in one executor."""

    _born: bytes | None = None
    """The time of the first write to its database, if that is known."""

    def __init__(
        self, session: PartitionSession, settings: Settings, *, name: str, executor: Executor,
        hooks: Hooks, capabilities: Sequence[CapabilityRoles],
    ) -> None:  # fmt: skip
        self.session, self.settings, self._executor = session, settings, executor
        self.name, self.registry, self.hooks = name, executor.registry, hooks
        self.misplaced = MisplacedKeys(session.store.database.layout, hooks)
        self.wakeup = wakeup = Wakeup()
        self.hindrances = hindrances = Hindrances(self, executor.pulse, lease=settings.lease)
        self.membership = membership = Membership(settings.doorbell, session.election)
        self.capabilities = parts = [each.in_partition(self) for each in capabilities]
        gate = next((each.gate for each in parts if each.gate is not None), None)
        self.row_check = next((each.rows for each in parts if each.rows is not None), None)
        declared = (each.declaration for each in parts if each.declaration is not None)
        words = [word for each in parts for word in each.words]
        code = executor.code_version(next(declared, HandlersDeclaration()), words)
        fair_share = FairShare(membership, executor.capacity)
        self._scan = scan = BacklogScan(code, membership, gate)
        self.leases = Leases(self, name, lease=settings.lease, code=code, marks=marks_of(parts))
        self._due_timer = due_timer = DueTimer(
            self, session.store.database.prefix, wakeup=wakeup, fair_share=fair_share, scan=scan,
            hooks=hooks, hindrances=hindrances,
        )  # fmt: skip
        self._lease_reaper = LeaseReaper(self, settings, parts, wakeup=wakeup, hooks=hooks)
        self.reconciler = KeyReconciler(
            self, settings, self.row_check, self.misplaced, wakeup=wakeup, due_timer=due_timer
        )
        self.key_events = KeyEventHandler(
            self, wakeup=wakeup, due_timer=due_timer, scan=scan,
            reconciler=self.reconciler, membership=membership, hooks=hooks,
        )  # fmt: skip
        self.settler = Settler(
            self, settings, leases=self.leases, capacity=executor.capacity,
            in_flight=executor.in_flight, wakeup=wakeup, hooks=hooks,
            ends=[each for each in parts if each.hears_ends],
        )  # fmt: skip
        self._claimer = Claimer(
            self, settings, settler=self.settler, wakeup=wakeup, due_timer=due_timer, scan=scan,
            key_events=self.key_events, executor=executor, fair_share=fair_share, hooks=hooks,
        )  # fmt: skip

    @property
    def health(self) -> ServerHealth:
        """The health of its partition on the server that it is on now."""
        return self.session.health

    @property
    def store(self) -> AsyncStore:
        """Its partition, on the server that it is on now."""
        return self.session.store

    @property
    def tag(self) -> bytes:
        """The beginning of the names of its trigger keys; empty without a tag."""
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
        self.membership.election = session.election
        session.event_demand.want(self, self.membership.hears)
        self.reconciler.forget_all()
        self.key_events.hear_after_gap(events=True)

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role, by its name."""
        roles = {
            "claims": self._claimer.run(),
            "outcomes": self.settler.run(),
            "adoption": self.reconciler.run(),
            "sweeps": self._lease_reaper.run(),
            "clock": self._due_timer.run(),
        }
        for each in self.capabilities:
            roles |= each.roles()
        return roles

    def hear_commit(self, ids: Sequence[str]) -> None:
        """Rows of a ledger were committed; `ids` are those of new ones, if they are known."""
        for each in self.capabilities:
            each.hear_commit(ids)

    async def stop(self) -> None:
        """Claim no more; what runs goes on."""
        await self._claimer.stop()

    async def suspend(self) -> None:
        """Claim no more until `resume`; what runs goes on."""
        await self._claimer.suspend()

    def resume(self) -> None:
        """Claim again."""
        self._claimer.resume()

    # The reply to a heartbeat

    def take_heartbeat(self, reply: claiming.HeartbeatReply) -> None:
        """Take the answer to a heartbeat, on the event loop."""
        self.membership.rank, self.membership.listeners = reply.rank, reply.listeners
        self.membership.codes = reply.codes
        self.hindrances.note_heartbeat(reply.silence, others_are_full=reply.others_are_full)
        if reply.gap:
            self._scan.start_over()
        self.session.event_demand.want(self, self.membership.hears)
        for each in self.capabilities:
            each.hear_heartbeat(reply)
        self._notice_birth(reply.born)
        if reply.gap and self.settings.doorbell is Doorbells.CLOCK:
            # With events, the subscription is new then, too, and is a gap by itself.
            self.session.resyncs.request("no listener had beaten for half a lease")
        self._report_lost(reply.lost)
        self._executor.cancel(reply.cancelled)
        self._executor.drop_lost_leases(self)

    def _notice_birth(self, born: bytes) -> None:
        if born and self._born not in {None, born}:
            logger.critical(
                "the database was emptied, by FLUSHDB or by a restart without its data: the tasks "
                "that waited in it are gone; the listener continues",
                extra=event("emptied"),
            )
            for each in self.capabilities:
                each.hear_emptied()
        self._born = born or self._born or b""

    def _report_lost(self, lost: list[str]) -> None:
        for id in lost:
            logger.warning(
                "the lease of task %s lapsed while it ran here", id,
                extra=event("lease lost", task=id),
            )  # fmt: skip
