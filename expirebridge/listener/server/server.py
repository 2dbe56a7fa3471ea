"""A node: one server, and the roles that this listener has there."""

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from expirebridge.checks import (
    EVENT_FLAGS,
    Finding,
    Level,
    check_server,
    events_are_on,
    refuse_unsuitable,
)
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.errors import ServerUnsuitable
from expirebridge.hooks import Hooks
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.server.connections import ServerConnections
from expirebridge.listener.server.heartbeat import Heartbeat
from expirebridge.listener.server.key_router import KeyRouter
from expirebridge.listener.server.scanner import Scanner
from expirebridge.listener.server.settings_monitor import SettingsMonitor
from expirebridge.listener.server.subscriber import Subscriber
from expirebridge.listener.server_health import ServerHealth
from expirebridge.listener.session import Membership, PartitionSession, SubscriberElection
from expirebridge.listener.wakeups import EventDemand, ResyncRequests, cancel_roles
from expirebridge.listener.watchdog import Watchdog
from expirebridge.model.log_fields import event
from expirebridge.settings import Doorbells, Settings

logger = logging.getLogger("expirebridge")


class Server:
    """The roles of one server; its consumers are those that stand on it now.

    A node that is one of several has a `lot`, `misplaced`, and a berth that is its address.
    """

    def __init__(
        self,
        settings: Settings,
        berth: PinnedPrimary | None,
        prefix: str,
        partitions: int = 1,
        *,
        watchdog: Watchdog,
        hooks: Hooks,
        lot: SubscriberElection | None = None,
        misplaced: MisplacedKeys | None = None,
    ) -> None:
        self._settings = settings
        self._lot = lot
        self._standing = Membership(settings.doorbell, lot)
        """What its lot means for it, even if no consumer stands here."""
        self.health, self.gaps, self._ears = health, gaps, ears = (
            ServerHealth(),
            ResyncRequests(),
            EventDemand(),
        )
        self._begin = partial(
            ServerConnections, settings, health=health, gaps=gaps, ears=ears, lot=lot
        )
        self.generation = self._begin(berth)
        """The present one."""
        self.session = self.session_for(prefix, partitions)
        """For what concerns the server as a whole."""
        self.directory = directory = KeyRouter(misplaced)
        self.heartbeat = Heartbeat(directory, lease=settings.lease, watchdog=watchdog)
        self.subscriber = Subscriber(
            self, directory, heartbeat=self.heartbeat, ears=ears, gaps=gaps
        )
        self.name = name = str(berth.known) if lot and berth else ""
        """Its address, if it is one of several."""
        self._scanner = Scanner(self, directory, settings, gaps=gaps, hooks=hooks, node=name)
        self._inspector = SettingsMonitor(self, directory, settings, gaps=gaps)
        self._tasks: list[asyncio.Task[None]] = []

    def session_for(self, prefix: str, partitions: int = 1) -> PartitionSession:
        """What a consumer of this prefix stands on here."""
        return self.generation.session_for(prefix, partitions)

    # Consumers that come and go

    def add(self, consumer: PartitionConsumer) -> None:
        """Take note of a consumer that stands here."""
        self.directory.add(consumer)
        self._ears.look_again()

    def receive(self, consumer: PartitionConsumer) -> None:
        """Let a consumer go on here that stood on another node."""
        database = consumer.store.database
        consumer.move_to(self.session_for(database.prefix, database.partitions))
        self.add(consumer)
        self.heartbeat.hurry()
        if consumer.standing.looks:
            self.gaps.notice(f"{database.prefix} has come here from another node")

    def dismiss(self, consumer: PartitionConsumer) -> None:
        """Let a consumer go to another node."""
        self.directory.remove(consumer)
        self._ears.want(consumer, False)
        self._ears.look_again()
        consumer.session.health.end()

    def renew(self, berth: PinnedPrimary) -> ServerConnections:
        """Let all go on at another server, which is the primary now; return what they left."""
        old, self.generation = self.generation, self._begin(berth)
        for consumer in self.directory.consumers:
            database = consumer.store.database
            consumer.move_to(self.session_for(database.prefix, database.partitions))
        database = self.session.store.database
        self.session = self.session_for(database.prefix, database.partitions)
        self.heartbeat.hurry()
        return old

    def draw(self, listeners: Iterable[str]) -> None:
        """Find out whether this listener is among those that hear a node of several."""
        if self._lot is not None:
            self._lot.draw(listeners)
            self._ears.want(self, self._standing.hears)
            for consumer in self.directory.consumers:
                self._ears.want(consumer, consumer.standing.hears)

    # The checks at the start

    async def examine(self, *, data: bool = True) -> list[Finding]:
        """Check whether the server can be used, and return the findings. Raises a ServerError."""
        if not self.directory.consumers:
            return []
        store = self.directory.consumers[0].store
        findings = await store.run(check_server(store.database, data=data))
        refuse_unsuitable(findings)
        if self._settings.doorbell is Doorbells.EVENTS and not events_are_on(findings):
            raise ServerUnsuitable(
                "--doorbell events needs the server's key events, and it sends none: CONFIG SET "
                f"notify-keyspace-events {EVENT_FLAGS}, or take --doorbell both"
            )
        self._inspector.learn(findings)
        return findings

    # Running

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What it does, each for ever."""
        return {
            "subscription": self.subscriber.run(),
            "changes of the subscription": self.subscriber.run_changes(),
            "scans": self._scanner.run(),
            "inspection": self._inspector.run(),
        }

    def start(self, ended: "asyncio.Future[None]") -> None:
        """Run its roles and beat, until it is closed; `ended` gets the error of one that fails."""
        self.heartbeat.start()
        for name, role in self.roles().items():
            task = asyncio.create_task(role, name=name)
            task.add_done_callback(partial(_report_end, ended))
            self._tasks.append(task)

    async def close(self) -> None:
        """End its roles, say goodbye if the server answers, and break the connections."""
        await cancel_roles(self._tasks)
        await asyncio.to_thread(self.heartbeat.stop)


def _report_end(ended: "asyncio.Future[None]", role: "asyncio.Task[None]") -> None:
    if not role.cancelled() and (error := role.exception()) is not None and not ended.done():
        ended.set_exception(error)


def report(findings: Iterable[Finding]) -> None:
    """Log what a check at the start found, each once."""
    for told in dict.fromkeys(each for each in findings if each.level is Level.WARNING):
        logger.warning("%s", told, extra=event("finding", check=told.check, told=str(told)))
