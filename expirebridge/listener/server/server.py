"""One Redis server, as a listener uses it."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from expirebridge.checks import (
    Finding,
    Level,
    check_server,
    refuse_unsuitable,
)
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.hooks import Hooks
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.server.connections import ServerConnections
from expirebridge.listener.server.failover import FailoverMonitor
from expirebridge.listener.server.heartbeat import Heartbeat
from expirebridge.listener.server.key_router import KeyRouter
from expirebridge.listener.server.scanner import Scanner
from expirebridge.listener.server.settings_monitor import SettingsMonitor
from expirebridge.listener.server.subscriber import Subscriber
from expirebridge.listener.session import (
    Membership,
    PartitionSession,
    ServerHealth,
    SubscriberElection,
)
from expirebridge.listener.wakeups import EventDemand, ResyncRequests, cancel_roles
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")


class Server:
    """One Redis server: its connections, its roles, and the consumers of its partitions.

    A node of a cluster has an `election` and `misplaced`, and is pinned to its address. Without
    these, a server that is `pinned` follows the primary.
    """

    def __init__(
        self,
        settings: Settings,
        pinned: PinnedPrimary | None,
        prefix: str,
        partitions: int = 1,
        *,
        watchdog: Watchdog,
        hooks: Hooks,
        election: SubscriberElection | None = None,
        misplaced: MisplacedKeys | None = None,
    ) -> None:
        self._settings = settings
        self._election = election
        self._membership = Membership(settings.doorbell, election)
        """Of this listener, by the election, even while no partition is here."""
        self.health = health = ServerHealth()
        self.resyncs = resyncs = ResyncRequests()
        self._event_demand = event_demand = EventDemand()
        self._connect = partial(
            ServerConnections, settings, health=health, resyncs=resyncs, event_demand=event_demand,
            election=election,
        )  # fmt: skip
        self.connections = self._connect(pinned)
        self.session = self.session_for(prefix, partitions)
        """For what concerns the server as a whole."""
        self.key_router = key_router = KeyRouter(misplaced)
        self.heartbeat = Heartbeat(key_router, lease=settings.lease, watchdog=watchdog)
        self.subscriber = Subscriber(
            self, key_router, heartbeat=self.heartbeat, event_demand=event_demand, resyncs=resyncs
        )
        self.name = name = str(pinned.known) if election and pinned else ""
        """Its address, if it is one of several."""
        self._scanner = Scanner(self, key_router, settings, resyncs=resyncs, hooks=hooks, node=name)
        self._settings_monitor = SettingsMonitor(self, key_router, settings, resyncs=resyncs)
        self._failover_monitor = (
            FailoverMonitor(pinned.primary, self, hooks=hooks) if pinned and not election else None
        )
        self._tasks: list[asyncio.Task[None]] = []

    def session_for(self, prefix: str, partitions: int = 1) -> PartitionSession:
        """The session of this prefix on this server."""
        return self.connections.session_for(prefix, partitions)

    # Consumers that come and go

    def add(self, consumer: PartitionConsumer) -> None:
        """Add a consumer whose partition is on this server."""
        self.key_router.add(consumer)
        self._event_demand.look_again()

    def receive(self, consumer: PartitionConsumer) -> None:
        """Add a consumer whose partition was on another server."""
        database = consumer.store.database
        consumer.move_to(self.session_for(database.prefix, database.partitions))
        self.add(consumer)
        self.heartbeat.hurry()
        if consumer.membership.hears:
            self.resyncs.request(f"{database.prefix} has come here from another node")

    def dismiss(self, consumer: PartitionConsumer) -> None:
        """Remove a consumer whose partition moves to another server."""
        self.key_router.remove(consumer)
        self._event_demand.want(consumer, False)
        self._event_demand.look_again()
        consumer.session.health.end()

    def renew(self, pinned: PinnedPrimary) -> ServerConnections:
        """Connect to another primary; return the connections to the former one."""
        old, self.connections = self.connections, self._connect(pinned)
        for consumer in self.key_router.consumers:
            database = consumer.store.database
            consumer.move_to(self.session_for(database.prefix, database.partitions))
        database = self.session.store.database
        self.session = self.session_for(database.prefix, database.partitions)
        self.heartbeat.hurry()
        return old

    def draw(self, listeners: Iterable[str]) -> None:
        """Find out whether this listener is among those that hear a node of several."""
        if self._election is not None:
            self._election.draw(listeners)
            self._event_demand.want(self, self._membership.hears)
            for consumer in self.key_router.consumers:
                self._event_demand.want(consumer, consumer.membership.hears)

    # The checks at the start

    async def examine(self) -> list[Finding]:
        """Check whether the server can be used, and return the findings. Raises a ServerError.

        A node of several is not searched for other data.
        """
        if not self.key_router.consumers:
            return []
        store = self.key_router.consumers[0].store
        findings = await store.run(check_server(store.database, data=self._election is None))
        refuse_unsuitable(findings)
        self._settings_monitor.learn(findings)
        return findings

    # Running

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role, by its name."""
        roles = {
            "subscription": self.subscriber.run(),
            "changes of the subscription": self.subscriber.run_changes(),
            "scans": self._scanner.run(),
            "inspection": self._settings_monitor.run(),
        }
        if self._failover_monitor is not None:
            roles["the primary"] = self._failover_monitor.run()
        return roles

    def start(self, ended: "asyncio.Future[None]") -> None:
        """Run its roles and send heartbeats, until it is closed.

        `ended` gets the error of a role that fails.
        """
        self.heartbeat.start()
        for name, role in self.roles().items():
            task = asyncio.create_task(role, name=name)
            task.add_done_callback(partial(_report_end, ended))
            self._tasks.append(task)

    async def close(self) -> None:
        """End its roles, say goodbye if the server answers, and break the connections."""
        await cancel_roles(self._tasks)
        await asyncio.to_thread(self.heartbeat.stop)
        if self._failover_monitor is not None:
            await self._failover_monitor.close()


def _report_end(ended: "asyncio.Future[None]", role: "asyncio.Task[None]") -> None:
    if not role.cancelled() and (error := role.exception()) is not None and not ended.done():
        ended.set_exception(error)


def report(findings: Iterable[Finding]) -> None:
    """Log what a check at the start found, each once."""
    for told in dict.fromkeys(each for each in findings if each.level is Level.WARNING):
        logger.warning("%s", told, extra=event("finding", check=told.check, told=str(told)))
