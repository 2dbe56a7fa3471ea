"""The servers of a cluster: one for each primary, and the consumers of its partitions."""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from redis.exceptions import RedisError

from expirebridge.connection import clients
from expirebridge.connection.cluster import Cluster, SlotMap, SlotPrimary
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.connection.urls import Address
from expirebridge.errors import (
    PartitionsDiffer,
    ServerError,
    ServerUnreachable,
    SlotMoving,
    SlotUnserved,
)
from expirebridge.hooks import FailedOver, Hooks
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.partition.capability_roles import CapabilityRoles
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.partition.misplaced_keys import MisplacedKeys
from expirebridge.listener.server.server import Server, report
from expirebridge.listener.server.servers import Servers
from expirebridge.listener.session import ServerHealth, SubscriberElection
from expirebridge.listener.wakeups import cancel_roles
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore
from expirebridge.store.errors import CountUnknown, translated
from expirebridge.store.partitions import AsyncPartitions
from expirebridge.task.calls import claiming, inspection
from expirebridge.task.calls import partitions as partitions_commands
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout
from expirebridge.task.texts import event, plural

# The number of partitions of a database in a cluster.

PATIENCE = 2.0
"""Seconds for which one node is asked, before another."""


async def find_layout(cluster: Cluster, known: SlotMap, settings: Settings) -> PartitionLayout:
    """The number of partitions, from the first node that has it; a new database gets 16.

    Raises a ServerError if none that answers has it, and some do not answer.
    """
    layout = PartitionLayout(settings.prefix, PARTITIONS_OF_CLUSTER)
    fault: ServerError | None = None
    for prefix in layout.prefixes():
        async with _asked(cluster, known, settings, prefix) as store:
            try:
                await store.run(partitions_commands.read_partitions())
            except PartitionsDiffer as told:
                return PartitionLayout(settings.prefix, told.count)
            except CountUnknown:
                continue
            except ServerError as error:
                fault = error
            else:
                return layout
    if fault is not None:
        raise fault
    return await _create(settings)


@contextlib.asynccontextmanager
async def _asked(
    cluster: Cluster, known: SlotMap, settings: Settings, prefix: str
) -> AsyncIterator[AsyncStore]:
    slot = slot_of(prefix)
    pinned = PinnedPrimary(SlotPrimary(cluster, slot), known.node_of(slot))
    client = clients.listener_client(settings.url, socket_timeout=PATIENCE, place=pinned)
    try:
        yield AsyncStore(client, prefix=prefix, partitions=PARTITIONS_OF_CLUSTER, assumed=True)
    finally:
        await client.aclose()


async def _create(settings: Settings) -> PartitionLayout:
    client = clients.async_producer_client(settings.url, settings.prefix)
    partitions = AsyncPartitions(client, prefix=settings.prefix)
    try:
        with contextlib.suppress(PartitionsDiffer):  # another listener was faster
            await partitions.run(partitions_commands.create_partitions(PARTITIONS_OF_CLUSTER))
        await partitions.run(partitions_commands.read_partitions())
    finally:
        await partitions.aclose()
    return partitions.layout


T = TypeVar("T")

logger = logging.getLogger("expirebridge")

ROLE = "the question which node serves which slot"
AWAY = (ServerUnreachable, SlotUnserved, SlotMoving)
"""Errors of a node that may be back soon: the listener starts without it."""
ASK_EVERY = 1.0
ASK_SOON = 0.2
"""Seconds between questions, and while a node fails."""
ALL_BEAT_WITHIN = 1.0
"""Seconds within which all live listeners send a heartbeat once another one has joined."""
MOST_NAMES = 1000
"""Listeners among which the subscribers of each server are elected, at most."""


class ClusterServers(Servers):
    """Servers of a cluster: a Server for each primary; consumers follow their slots.

    A node that appears gets all its roles; one that serves no slots any more is closed. A node's
    connections lead to its address for good, so commands, heartbeats and key events of a consumer
    change together. A node that is away holds up its own consumers only.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        name: str,
        executor: Executor,
        watchdog: Watchdog,
        hooks: Hooks,
        capabilities: Sequence[CapabilityRoles],
    ) -> None:
        super().__init__(capabilities)
        self._cluster = cluster
        self._settings = settings
        self._name = name
        self._watchdog = watchdog
        self._hooks = hooks
        self._new_consumer = partial(
            PartitionConsumer, settings=settings, name=name, executor=executor, hooks=hooks,
            capabilities=capabilities,
        )  # fmt: skip
        self._layout = PartitionLayout(settings.prefix)
        self._misplaced: MisplacedKeys
        self._health = ServerHealth()
        self._ready = asyncio.Event()
        self._joined = 0.0
        """Time of this listener's first heartbeat (monotonic)."""
        self._names: list[str] = []
        """The names of the live listeners."""
        self.nodes: dict[Address, Server] = {}
        """By the addresses of the primaries."""
        self._left: list[asyncio.Task[None]] = []
        """Those that close the nodes that are gone."""
        self._places: dict[PartitionConsumer, Server] = {}
        self._ended: asyncio.Future[None] | None = None
        """Gets the error of a role of a node; None before the nodes run."""
        # Of its own: handlers may have taken all threads of the event loop's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="expirebridge-cluster")

    @property
    def ready(self) -> asyncio.Event:
        """Is set once the doorbells of all nodes are heard that answer."""
        return self._ready

    # The start

    async def examine(self) -> None:
        """Find the nodes and the consumers, and report problems of those that answer."""
        try:
            known = await self._look()
        except RedisError as error:
            raise translated(error) from error
        self._layout = layout = await find_layout(self._cluster, known, self._settings)
        self._misplaced = MisplacedKeys(layout, self._hooks)
        for address in sorted(known.primaries):
            self._open(address)
        for prefix in layout.prefixes():
            # If nobody serves its slot, any node will do: each answers with that error.
            node = self._serving(prefix, known) or next(iter(self.nodes.values()))
            consumer = self._new_consumer(node.session_for(prefix, layout.count))
            self.consumers.append(consumer)
            self._places[consumer] = node
            node.add(consumer)
        findings = await self._for_each(lambda node: node.examine(data=False))
        report(finding for some in findings for finding in some)

    async def begin(self) -> None:
        """Send a heartbeat for each consumer of the nodes that answer."""
        self._joined = time.monotonic()
        await self._for_each(lambda node: node.heartbeat.begin())
        await self._draw(self._settings.lease / 2)

    async def _for_each(self, do: Callable[[Server], Awaitable[T]]) -> list[T]:
        """Return the results of the nodes that answer. Raises a ServerError if none answers, or if
        one that answers cannot be used.
        """
        nodes = list(self.nodes.values())
        results = await asyncio.gather(*map(do, nodes), return_exceptions=True)
        faults = [each for each in results if isinstance(each, BaseException)]
        for node, fault in zip(nodes, results, strict=True):
            if isinstance(fault, AWAY) and len(faults) < len(nodes):
                node.heartbeat.fail(fault)
            elif isinstance(fault, BaseException):
                raise fault
        return [each for each in results if not isinstance(each, BaseException)]

    def start(self) -> None:
        """Nothing more: a node sends heartbeats while its roles run."""

    # Running

    def node_roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role for the cluster as a whole, by its name."""
        return {
            "nodes of the cluster": self._run_nodes(),
            "subscriber election": self._elect_subscribers(),
        }

    async def _run_nodes(self) -> None:
        """Run the nodes' roles, and follow the slots, for ever."""
        self._ended = ended = asyncio.get_running_loop().create_future()
        for node in self.nodes.values():
            node.start(ended)
        ready = asyncio.create_task(self._await_readiness())
        try:
            while True:
                fails = any(node.health.lasts for node in self.nodes.values())
                await asyncio.wait([ended], timeout=ASK_SOON if fails else ASK_EVERY)
                if ended.done():
                    ended.result()
                await self._follow()
        finally:
            await cancel_roles([ready])

    async def _await_readiness(self) -> None:
        """Wait until the doorbells of all nodes are heard, but for those that do not answer."""
        nodes = list(self.nodes.values())
        await asyncio.gather(*(node.subscriber.settled(ASK_EVERY) for node in nodes))
        heard = [asyncio.create_task(node.subscriber.ready.wait()) for node in nodes]
        try:
            await asyncio.wait(heard, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_roles(heard)
        self._ready.set()

    async def _follow(self) -> None:
        try:
            known = await self._look()
        except RedisError as error:
            self._health.failed(ROLE, translated(error))
            return
        self._health.answered(ROLE)
        for address in sorted(known.primaries - self.nodes.keys()):
            self._start_one(address)
        self._move_consumers(known)
        for address in self.nodes.keys() - known.primaries:
            if not self.nodes[address].key_router.consumers:
                node = self.nodes.pop(address)
                self._left.append(asyncio.create_task(_leave(node), name=f"leaving {address}"))

    async def _look(self) -> SlotMap:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._cluster.look)

    def _serving(self, prefix: str, known: SlotMap) -> Server | None:
        address = known.node_of(slot_of(prefix))
        return None if address is None else self.nodes.get(address)

    def _move_consumers(self, known: SlotMap) -> None:
        """Move each consumer to the server of its slot, all at once."""
        moves = Counter[tuple[Server, Server]]()
        for consumer, old in self._places.items():
            new = self._serving(consumer.store.database.prefix, known)
            if new is not None and new is not old:
                old.dismiss(consumer)
                new.receive(consumer)
                self._places[consumer] = new
                moves[old, new] += 1
        for (old, new), count in moves.items():
            logger.warning(
                "%s on %s now, and no longer on %s",
                plural(count, "partition is", "partitions are"), new.name, old.name,
                extra=event("failed over", server=new.name, before=old.name, partitions=count),
            )  # fmt: skip
            self._hooks.emit(FailedOver(server=new.name, before=old.name))

    # Nodes that come and go

    def _open(self, address: Address) -> Server:
        first = self._layout.prefix_of(0)
        self.nodes[address] = node = Server(
            self._settings,
            PinnedPrimary(SlotPrimary(self._cluster, slot_of(first)), address),
            first,
            self._layout.count,
            watchdog=self._watchdog,
            hooks=self._hooks,
            election=SubscriberElection(str(address), self._name),
            misplaced=self._misplaced,
        )
        return node

    def _start_one(self, address: Address) -> None:
        node = self._open(address)
        node.draw(self._names)
        if self._ended is not None:
            node.start(self._ended)

    # The election of subscribers

    async def _elect_subscribers(self) -> None:
        """Elect the subscribers of all servers three times a lease; first within a second.

        Those elected at the start may have been killed: then they have sent no heartbeat since this
        listener joined.
        """
        pause = self._settings.lease / claiming.BEATS_PER_LEASE
        await asyncio.sleep(min(pause, ALL_BEAT_WITHIN))
        while True:
            await self._draw(min(self._settings.lease / 2, time.monotonic() - self._joined))
            await asyncio.sleep(pause)

    async def _draw(self, within: float) -> None:
        """Elect subscribers among the listeners that sent a heartbeat within so many seconds.

        One partition is asked: every listener sends heartbeats to all.
        """
        for node in sorted(self.nodes.values(), key=lambda node: node.health.lasts):
            for consumer in node.key_router.consumers[:1]:
                try:
                    listeners = await consumer.store.run(inspection.list_listeners(MOST_NAMES))
                except ServerError:
                    continue
                self._names = [each.name for each in listeners if each.ago < within]
                for one in self.nodes.values():
                    one.draw(self._names)
                return

    # The end

    def fall_silent(self) -> None:
        """Send no more heartbeats, without leaving: all leases lapse. For any thread."""
        for node in list(self.nodes.values()):
            node.heartbeat.fall_silent()

    async def close(self) -> None:
        """Say goodbye to the nodes that answer, and close the connections."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        nodes = list(self.nodes.values())
        await asyncio.gather(*(node.close() for node in nodes), *self._left)
        await self.close_capabilities()
        for node in nodes:
            await node.connections.close()


async def _leave(node: Server) -> None:
    """Close a node that has no partition any more."""
    await node.connections.cut()
    await node.close()
    # A command may still have been sent there, over a new connection.
    await asyncio.sleep(ASK_EVERY)
    await node.connections.close()
