"""The one server of a URL that names a server, sentinels, or one slot of a cluster."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import redis

from expirebridge.connection import several_servers
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.errors import NotPermitted, PartitionsDiffer, ServerUnreachable
from expirebridge.hooks import Hooks
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.partition.capability_roles import CapabilityRoles
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.server.failover import FailoverMonitor
from expirebridge.listener.server.server import Server, report
from expirebridge.listener.server.servers import Servers
from expirebridge.listener.session import PartitionSession
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from expirebridge.store.routing import Routing
from expirebridge.task.calls import partitions as partitions_commands
from expirebridge.task.partitions import PartitionLayout

T = TypeVar("T")

START_PATIENCE = 5.0
"""Seconds for which a server that is slow to answer is asked again at the start."""
RETRY_PAUSE = 0.2


async def _patiently(ask: Callable[[], Awaitable[T]], *, answered: bool = False) -> T:
    """Ask, and ask again if an answer takes too long: at the start no lease is in danger yet.

    Raises as `ask`. A connection that is refused or breaks is tried again only if the server has
    `answered` before: otherwise the URL may be wrong.
    """
    end = time.monotonic() + START_PATIENCE
    while True:
        try:
            return await ask()
        except ServerUnreachable as error:
            is_late = isinstance(error.__cause__, redis.TimeoutError)
            if not (is_late or answered) or time.monotonic() > end:
                raise
            if not is_late:
                await asyncio.sleep(RETRY_PAUSE)


class SingleServer(Servers):
    """One server, with a consumer for each partition of these prefixes; it follows the primary."""

    def __init__(
        self,
        settings: Settings,
        prefixes: Sequence[str],
        *,
        name: str,
        executor: Executor,
        watchdog: Watchdog,
        hooks: Hooks,
        capabilities: Sequence[CapabilityRoles],
    ) -> None:
        super().__init__(capabilities)
        self._prefixes = prefixes
        primary = several_servers.to_follow(settings.url, prefixes[0])
        pinned = PinnedPrimary(primary) if primary else None
        self.node = Server(settings, pinned, prefixes[0], watchdog=watchdog, hooks=hooks)
        self._new_consumer = partial(
            PartitionConsumer,
            settings=settings,
            name=name,
            executor=executor,
            hooks=hooks,
            capabilities=capabilities,
        )
        self._failover_monitor = (
            FailoverMonitor(primary, self.node, hooks=hooks) if primary else None
        )

    @property
    def ready(self) -> asyncio.Event:
        """Is set once doorbells are heard."""
        return self.node.subscriber.ready

    def session_for(self, prefix: str, partitions: int = 1) -> PartitionSession:
        """The session of this prefix on the server."""
        return self.node.session_for(prefix, partitions)

    async def examine(self) -> None:
        """Find the consumers, check whether the server can be used, and report problems."""
        await self.find_consumers()
        report(await _patiently(self.node.examine))

    async def find_consumers(self) -> None:
        """Begin a consumer for each partition. Raises as `examine`."""
        for prefix in self._prefixes:
            layout = await _patiently(partial(self._find_layout, prefix))
            for one in layout.prefixes():
                consumer = self._new_consumer(self.session_for(one, layout.count))
                self.consumers.append(consumer)
                self.node.add(consumer)
        self.node.session = self.consumers[0].session

    async def _find_layout(self, prefix: str) -> PartitionLayout:
        """How many partitions the database has."""
        routing = Routing(prefix)
        try:
            await self.session_for(prefix).store.run(partitions_commands.read_partitions())
        except PartitionsDiffer as told:
            routing.correct(told)
        except NotPermitted:
            pass  # the check of the rights says what is missing
        return routing.layout

    async def begin(self) -> None:
        """Send the first heartbeats, before anything is claimed. Raises a ServerError.

        From the first on, others see this listener: a connection that breaks does not end it.
        """
        await _patiently(self.node.heartbeat.begin, answered=True)

    def start(self) -> None:
        """Send further heartbeats."""
        self.node.heartbeat.start()

    def fall_silent(self) -> None:
        """Send no more heartbeats, without leaving: all leases lapse. For any thread."""
        self.node.heartbeat.fall_silent()

    def node_roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role of the server, by its name."""
        roles = self.node.roles()
        if self._failover_monitor is not None:
            roles["the primary"] = self._failover_monitor.run()
        return roles

    async def close(self) -> None:
        """Say goodbye, if the server answers, and close the connections."""
        await self.node.close()
        await self.close_capabilities()
        if self._failover_monitor is not None:
            await self._failover_monitor.close()
        await self.node.connections.close()
