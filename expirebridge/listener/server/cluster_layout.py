"""Finds out how many partitions a database in a cluster has."""

import contextlib
from collections.abc import AsyncIterator

from expirebridge.connection import clients
from expirebridge.connection.cluster import Cluster, SlotPrimary
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.sentinel import Berth
from expirebridge.connection.slot_map import SlotMap
from expirebridge.errors import PartitionsDiffer, ServerError
from expirebridge.model.partitions import PARTITIONS_OF_CLUSTER, Layout
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.client import AsyncStore
from expirebridge.store.errors import Unmarked
from expirebridge.store.partitions import AsyncPartitions

PATIENCE = 2.0
"""Seconds for which one node is asked, before another."""


async def find_layout(cluster: Cluster, known: SlotMap, settings: Settings) -> Layout:
    """How many partitions there are, by the word of the first that knows; a new database gets 16.

    Raises a ServerError if none that answers knows it, and some do not answer.
    """
    layout = Layout(settings.prefix, PARTITIONS_OF_CLUSTER)
    fault: ServerError | None = None
    for prefix in layout.prefixes():
        async with _asked(cluster, known, settings, prefix) as store:
            try:
                await store.run(commands.read_partitions())
            except PartitionsDiffer as told:
                return Layout(settings.prefix, told.count)
            except Unmarked:
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
    berth = Berth(SlotPrimary(cluster, slot), known.node_of(slot))
    client = clients.listener_client(settings.url, socket_timeout=PATIENCE, place=berth)
    try:
        yield AsyncStore(client, prefix=prefix, partitions=PARTITIONS_OF_CLUSTER, assumed=True)
    finally:
        await client.aclose()


async def _create(settings: Settings) -> Layout:
    client = clients.async_producer_client(settings.url, settings.prefix)
    partitions = AsyncPartitions(client, prefix=settings.prefix)
    try:
        with contextlib.suppress(PartitionsDiffer):  # somebody else was faster, and it knows now
            await partitions.run(commands.create_partitions(PARTITIONS_OF_CLUSTER))
        await partitions.run(commands.read_partitions())
    finally:
        await partitions.aclose()
    return partitions.layout
