"""The servers of a listener, one or the primaries of a cluster, and the consumers on them."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import redis

from expirebridge.connection import several_servers
from expirebridge.connection.cluster import SLOTS, SlotMap, SlotPrimary, SlotRange
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.connection.urls import Address
from expirebridge.errors import (
    NotPermitted,
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
from expirebridge.listener.server.cluster_map import ClusterMap
from expirebridge.listener.server.elections import SubscriberElections
from expirebridge.listener.server.server import Server, report
from expirebridge.listener.session import SubscriberElection
from expirebridge.listener.wakeups import cancel_roles
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from expirebridge.store.routing import Routing
from expirebridge.task.calls import partitions as partitions_commands
from expirebridge.task.keys import hash_tag_of
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.texts import event, plural

T = TypeVar("T")

logger = logging.getLogger("expirebridge")

HERE = Address("", 0)
"""Stands for the address of one server, to which its URL leads."""
ALL_HERE = SlotMap([SlotRange(0, SLOTS - 1, HERE, ())], frozenset())
"""The map of one server, which never changes."""

ROLE = "the question which node serves which slot"
AWAY = (ServerUnreachable, SlotUnserved, SlotMoving)
"""Errors of a node that may be back soon: the listener starts without it."""
START_PATIENCE = 5.0
"""Seconds for which one server that is slow to answer is asked again at the start."""
RETRY_PAUSE = 0.2
ASK_EVERY = 1.0
ASK_SOON = 0.2
"""Seconds between questions, and while a node fails."""


class Servers:
    """Servers of a listener, and the consumers of all partitions on them.

    A server that the URL names, or its sentinels, has all partitions of `prefixes`, for good; so
    has a cluster's node if the prefix has a tag, and so one slot. If another server becomes the
    primary, its connections lead there.

    Else there is a Server for each primary of the cluster; consumers follow their slots. A node
    that appears gets all its roles; one that serves no slots any more is closed. A node's
    connections lead to its address for good, so commands, heartbeats and key events of a consumer
    change together. A node that is away holds up its own consumers only.

    Raises InvalidSetting for a URL that cannot be used.
    """

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
        self._settings = settings
        self._prefixes = prefixes
        self._name = name
        self._hooks = hooks
        self._capabilities = capabilities
        self._new_consumer = partial(
            PartitionConsumer, settings=settings, name=name, executor=executor, hooks=hooks,
            capabilities=capabilities,
        )  # fmt: skip
        self._new_server = partial(Server, settings, watchdog=watchdog, hooks=hooks)
        self.ready = asyncio.Event()
        """Is set once the doorbells of all servers are heard that answer."""
        self.consumers: list[PartitionConsumer] = []
        """None until `examine` finds out how many partitions there are."""
        self.nodes: dict[Address, Server] = {}
        """By the addresses of the primaries."""
        self._places: dict[PartitionConsumer, Server] = {}
        self._left: list[asyncio.Task[None]] = []
        """Those that close the nodes that are gone."""
        self._ended: asyncio.Future[None]
        """Gets the error of a role of a node."""
        self._elections: SubscriberElections | None = None
        self._misplaced: MisplacedKeys
        self._map = _map_of(settings)
        if self._map is None:
            primary = several_servers.to_follow(settings.url, prefixes[0])
            pinned = PinnedPrimary(primary) if primary else None
            self.nodes[HERE] = self._new_server(pinned, prefixes[0])

    # The start

    async def examine(self) -> None:
        """Find the consumers, check whether the servers can be used, and report problems.

        Raises a ServerError, and InvalidSetting for a prefix that is that of one partition.
        """
        await self.find_consumers()
        findings = await self._for_each(Server.examine)
        report(finding for some in findings for finding in some)

    async def find_consumers(self) -> None:
        """Begin a consumer for each partition. Raises as `examine`."""
        if self._map is None:
            known, [node] = ALL_HERE, self.nodes.values()
            for prefix in self._prefixes:
                layout = await _patiently(partial(_find_layout, node, prefix))
                self._add_consumers(layout, known)
            node.session = self.consumers[0].session
        else:
            known = await self._map.look()
            layout = await self._map.find_layout(known)
            self._misplaced = MisplacedKeys(layout, self._hooks)
            for address in sorted(known.primaries):
                self._open(self._map, address)
            self._add_consumers(layout, known)

    def _add_consumers(self, layout: PartitionLayout, known: SlotMap) -> None:
        for prefix in layout.prefixes():
            # If nobody serves its slot, any node will do: each answers with that error.
            node = self._serving(prefix, known) or next(iter(self.nodes.values()))
            consumer = self._new_consumer(node.session_for(prefix, layout.count))
            self.consumers.append(consumer)
            self._places[consumer] = node
            node.add(consumer)

    async def begin(self) -> None:
        """Send the first heartbeats, before anything is claimed. Raises a ServerError.

        From the first on, others see this listener: a connection that breaks does not end it.
        """
        self._ended = asyncio.get_running_loop().create_future()
        if self._map is not None:
            self._elections = SubscriberElections(self.nodes, self._settings.lease)
        await self._for_each(lambda node: node.heartbeat.begin(), answered=True)
        if self._elections is not None:
            await self._elections.draw(self._settings.lease / 2)

    async def _for_each(
        self, do: Callable[[Server], Awaitable[T]], *, answered: bool = False
    ) -> list[T]:
        """Return the results of the nodes that answer. Raises a ServerError if none answers, or if
        one that answers cannot be used. One server is asked patiently; nodes of a cluster are not.
        """
        nodes = list(self.nodes.values())
        if self._map is None:
            return [await _patiently(partial(do, node), answered=answered) for node in nodes]
        results = await asyncio.gather(*map(do, nodes), return_exceptions=True)
        faults = [each for each in results if isinstance(each, BaseException)]
        for node, fault in zip(nodes, results, strict=True):
            if isinstance(fault, AWAY) and len(faults) < len(nodes):
                node.heartbeat.fail(fault)
            elif isinstance(fault, BaseException):
                raise fault
        return [each for each in results if not isinstance(each, BaseException)]

    # Running

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role of servers and consumers, by its name."""
        roles = {"servers": self._run_nodes()}
        if self._map is not None and self._elections is not None:
            roles["nodes of the cluster"] = self._follow_slots(self._map, self._elections)
            roles["subscriber election"] = self._elections.run()
        for consumer in self.consumers:
            prefix = consumer.store.database.prefix
            roles |= {f"{role} of {prefix}": run for role, run in consumer.roles().items()}
        return roles

    async def stop(self) -> None:
        """Claim no more; what runs goes on."""
        await asyncio.gather(*(consumer.stop() for consumer in self.consumers))

    async def suspend(self) -> None:
        """Claim no more until `resume`; what runs goes on."""
        await asyncio.gather(*(consumer.suspend() for consumer in self.consumers))

    def resume(self) -> None:
        """Claim again."""
        for consumer in self.consumers:
            consumer.resume()

    async def _run_nodes(self) -> None:
        """Run the roles of all nodes, until one fails. Raises its error."""
        for node in self.nodes.values():
            node.start(self._ended)
        ready = asyncio.create_task(self._await_readiness())
        try:
            await self._ended
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
        self.ready.set()

    # Nodes that come and go

    async def _follow_slots(self, cluster: ClusterMap, elections: SubscriberElections) -> None:
        """Ask who serves what, and follow it, for ever."""
        while True:
            fails = any(node.health.lasts for node in self.nodes.values())
            await asyncio.sleep(ASK_SOON if fails else ASK_EVERY)
            try:
                known = await cluster.look()
            except ServerError as error:
                cluster.health.failed(ROLE, error)
                continue
            cluster.health.answered(ROLE)
            for address in sorted(known.primaries - self.nodes.keys()):
                node = self._open(cluster, address)
                node.draw(elections.names)
                node.start(self._ended)
            self._move_consumers(known)
            for address in self.nodes.keys() - known.primaries:
                if not self.nodes[address].key_router.consumers:
                    left = _leave(self.nodes.pop(address))
                    self._left.append(asyncio.create_task(left, name=f"leaving {address}"))

    def _open(self, cluster: ClusterMap, address: Address) -> Server:
        first = cluster.layout.prefix_of(0)
        self.nodes[address] = node = self._new_server(
            PinnedPrimary(SlotPrimary(cluster.cluster, slot_of(first)), address),
            first,
            cluster.layout.count,
            election=SubscriberElection(str(address), self._name),
            misplaced=self._misplaced,
        )
        return node

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

    # The end

    def fall_silent(self) -> None:
        """Send no more heartbeats, without leaving: all leases lapse. For any thread."""
        for node in list(self.nodes.values()):
            node.heartbeat.fall_silent()

    async def close(self) -> None:
        """Say goodbye to the servers that answer, and close the connections."""
        if self._map is not None:
            self._map.close()
        nodes = list(self.nodes.values())
        await asyncio.gather(*(node.close() for node in nodes), *self._left)
        for each in self._capabilities:
            if each.close is not None:
                await asyncio.to_thread(each.close)
        for node in nodes:
            await node.connections.close()


def _map_of(settings: Settings) -> ClusterMap | None:
    """The map of a cluster; None if there is one server, or the prefix has one slot."""
    cluster = several_servers.cluster_of(settings.url)
    if cluster is None or hash_tag_of(settings.prefix):
        return None
    return ClusterMap(cluster, settings)


async def _leave(node: Server) -> None:
    """Close a node that has no partition any more."""
    await node.connections.cut()
    await node.close()
    # A command may still have been sent there, over a new connection.
    await asyncio.sleep(ASK_EVERY)
    await node.connections.close()


async def _find_layout(node: Server, prefix: str) -> PartitionLayout:
    """How many partitions a database on one server has."""
    routing = Routing(prefix)
    try:
        await node.session_for(prefix).store.run(partitions_commands.read_partitions())
    except PartitionsDiffer as told:
        routing.correct(told)
    except NotPermitted:
        pass  # the check of the rights says what is missing
    return routing.layout


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
