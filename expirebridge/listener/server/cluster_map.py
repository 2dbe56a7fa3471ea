"""Which node of a cluster serves which partitions of a database."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

from redis.exceptions import RedisError

from expirebridge.connection import clients
from expirebridge.connection.cluster import Cluster, SlotMap, SlotPrimary
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.errors import PartitionsDiffer, ServerError
from expirebridge.listener.session import ServerHealth
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore
from expirebridge.store.errors import CountUnknown, translated
from expirebridge.store.partitions import AsyncPartitions
from expirebridge.task.calls import partitions as partitions_commands
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout

PATIENCE = 2.0
"""Seconds for which one node is asked for the number of partitions, before another."""


class ClusterMap:
    """Asks the nodes of a cluster who serves what, and how many partitions a database has."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster = cluster
        self.health = ServerHealth()
        """Whether any node answers who serves what."""
        self.layout = PartitionLayout(settings.prefix, PARTITIONS_OF_CLUSTER)
        """The partitions, as far as is known."""
        self._settings = settings
        # Of its own: handlers may have taken all threads of the event loop's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="expirebridge-cluster")

    async def look(self) -> SlotMap:
        """Ask who serves which slot. Raises a ServerError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self.cluster.look)
        except RedisError as error:
            raise translated(error) from error

    async def find_layout(self, known: SlotMap) -> PartitionLayout:
        """The number of partitions, from the first node that has it; a new database gets 16.

        Raises a ServerError if none that answers has it, and some do not answer.
        """
        self.layout = await self._find_layout(known)
        return self.layout

    async def _find_layout(self, known: SlotMap) -> PartitionLayout:
        fault: ServerError | None = None
        for prefix in self.layout.prefixes():
            async with self._asked(known, prefix) as store:
                try:
                    await store.run(partitions_commands.read_partitions())
                except PartitionsDiffer as told:
                    return PartitionLayout(self._settings.prefix, told.count)
                except CountUnknown:
                    continue
                except ServerError as error:
                    fault = error
                else:
                    return self.layout
        if fault is not None:
            raise fault
        return await self._create()

    @contextlib.asynccontextmanager
    async def _asked(self, known: SlotMap, prefix: str) -> AsyncIterator[AsyncStore]:
        slot = slot_of(prefix)
        pinned = PinnedPrimary(SlotPrimary(self.cluster, slot), known.node_of(slot))
        client = clients.listener_client(self._settings.url, socket_timeout=PATIENCE, place=pinned)
        try:
            yield AsyncStore(client, prefix=prefix, partitions=PARTITIONS_OF_CLUSTER, assumed=True)
        finally:
            await client.aclose()

    async def _create(self) -> PartitionLayout:
        client = clients.async_producer_client(self._settings.url, self._settings.prefix)
        partitions = AsyncPartitions(client, prefix=self._settings.prefix)
        try:
            with contextlib.suppress(PartitionsDiffer):  # another listener was faster
                await partitions.run(partitions_commands.create_partitions(PARTITIONS_OF_CLUSTER))
            await partitions.run(partitions_commands.read_partitions())
        finally:
            await partitions.aclose()
        return partitions.layout

    def close(self) -> None:
        """Ask no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
