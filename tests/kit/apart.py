"""A cluster whose database has 16 partitions: which node has which of them."""

from collections.abc import Iterable

from expirebridge import Bridge
from expirebridge.connection.cluster_client import slot_of
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout
from tests.kit.cluster import Cluster

LAYOUT = PartitionLayout("expirebridge", PARTITIONS_OF_CLUSTER)


def slot_of_task(id: str) -> int:
    """The slot of all names of the partition to which a task belongs."""
    return slot_of(LAYOUT.prefix_of(LAYOUT.partition_of(id)))


def homes_of(cluster: Cluster, ids: Iterable[str]) -> dict[str, EmbeddedServer]:
    """The node that has each task."""
    by_slot = {slot: cluster.primary_of(slot) for slot in {slot_of_task(id) for id in ids}}
    return {id: by_slot[slot_of_task(id)] for id in ids}


def make_notes(bridge: Bridge, ids: Iterable[str], delay: float) -> None:
    """Make tasks of these ids, all due at once."""
    bridge.make_tasks([{"func": "test.note", "args": [id], "delay": delay, "id": id} for id in ids])
