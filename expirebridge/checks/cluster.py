"""The check of a cluster: whether each slot has a node, and the node of ours a replica."""

from redis import exceptions

from expirebridge import wire
from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.slots import PARTITIONS_OF_CLUSTER, Layout
from expirebridge.topology.cluster import Cluster
from expirebridge.topology.cluster_clients import slot_of
from expirebridge.topology.slot_map import SLOTS


def check_cluster(cluster: Cluster, prefix: str) -> Finding:
    """Who serves what. It asks the nodes, and raises nothing."""
    if not wire.slot_of(prefix):
        prefix = Layout(prefix, PARTITIONS_OF_CLUSTER).prefix_of(0)
    slot = slot_of(prefix)
    try:
        node = cluster.find(slot)
        known = cluster.look()
    except exceptions.RedisError as failure:
        return error("cluster", str(failure), "redis-cli --cluster check HOST:PORT")
    served = sum(share.end - share.start + 1 for share in known.shares)
    where = f"slot {slot} of {prefix} is at {node}"
    if served < SLOTS:
        return warning(
            "cluster",
            f"{where}, but {SLOTS - served} other slots have no node",
            "redis-cli --cluster fix HOST:PORT; with `cluster-require-full-coverage no` the slots "
            "that have one work meanwhile",
        )
    if not any(share.replicas for share in known.shares if share.start <= slot <= share.end):
        return warning(
            "cluster",
            f"{where}, which has no replica: if it dies, nothing takes over",
            "redis-cli --cluster add-node NEW_HOST:PORT HOST:PORT --cluster-slave",
        )
    return ok("cluster", f"{where}; {len(known.primaries)} primaries serve all slots")
