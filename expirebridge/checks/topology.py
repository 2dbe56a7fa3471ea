"""The checks of a cluster: whether each slot has a node, and what happens if one dies."""

from collections import Counter
from typing import Any

from redis import exceptions

from expirebridge.checks.finding import Finding, error, limit, ok, warning
from expirebridge.checks.server import setting
from expirebridge.connection.cluster import Cluster
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.slot_map import SLOTS, SlotMap
from expirebridge.connection.urls import Address
from expirebridge.model.partitions import Layout
from expirebridge.store import commands
from expirebridge.store.commands import Steps

_LOOK = "redis-cli --cluster check HOST:PORT"


def check_cluster(cluster: Cluster, layout: Layout) -> Finding:
    """Who serves what. It asks the nodes, and raises nothing."""
    try:
        known = cluster.look()
        homes = {prefix: cluster.find(slot_of(prefix)) for prefix in layout.prefixes()}
    except exceptions.RedisError as failure:
        return error("cluster", str(failure), _LOOK)
    where = _where(homes)
    served = sum(share.end - share.start + 1 for share in known.shares)
    if served < SLOTS:
        return warning(
            "cluster",
            f"{where}, but {SLOTS - served} other slots have no node",
            "redis-cli --cluster fix HOST:PORT; with `cluster-require-full-coverage no` the slots "
            "that have one work meanwhile",
        )
    if alone := sorted(set(homes.values()) & _without_replica(known)):
        named = ", ".join(map(str, alone))
        return warning(
            "cluster",
            f"{where}; no replica follows {named}: if it dies, nothing takes over",
            f"redis-cli --cluster add-node NEW_HOST:PORT {alone[0]} --cluster-slave",
        )
    return ok("cluster", f"{where}; {len(known.primaries)} primaries serve all slots")


def check_coverage() -> Steps[Finding]:
    """Whether a node goes on although other slots have none."""
    found = yield from setting("cluster-require-full-coverage")
    if found is None:
        return limit("coverage", "cluster-require-full-coverage is not known: it should be no")
    if found == "yes":
        return warning(
            "coverage",
            "cluster-require-full-coverage is yes: as soon as one slot has no node, no task runs "
            "on any",
            "CONFIG SET cluster-require-full-coverage no  (on each node)",
        )
    return ok("coverage", "a slot without a node does not stop the others")


def check_isolation() -> Steps[Finding]:
    """Whether a primary that is cut off from the others, and is replaced, takes writes."""
    info: dict[str, Any] = yield from commands.command("INFO", "replication")
    if not int(info.get("connected_slaves", 0)):
        return ok("failover", "nothing takes over from a primary without a replica")
    if "min_slaves_good_slaves" not in info:
        return warning(
            "failover",
            "min-replicas-to-write is 0: a primary that is cut off takes writes until it notices "
            "that, and they are lost",
            "CONFIG SET min-replicas-to-write 1  (on each node; with one replica each, the loss of "
            "one stops the writes of its primary)",
        )
    return ok("failover", "a primary without replicas takes no writes: min-replicas-to-write")


def _where(homes: dict[str, Address]) -> str:
    """At which nodes the partitions are."""
    if len(homes) == 1:
        [(prefix, node)] = homes.items()
        return f"slot {slot_of(prefix)} of {prefix} is at {node}"
    counts = sorted(Counter(homes.values()).items())
    each = ", ".join(f"{count} at {node}" for node, count in counts)
    return f"{len(homes)} partitions: {each}"


def _without_replica(known: SlotMap) -> set[Address]:
    return {share.primary for share in known.shares if not share.replicas}
