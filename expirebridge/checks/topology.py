"""The checks of a cluster: whether each slot has a node, and what happens if one dies."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import redis
from redis import exceptions

from expirebridge.checks.finding import Finding, error, not_shown, ok, warning
from expirebridge.checks.server import setting
from expirebridge.connection.cluster import SLOTS, Cluster, SlotMap
from expirebridge.connection.cluster_client import slot_of
from expirebridge.connection.sentinel import Sentinels, leader_of
from expirebridge.connection.urls import Address
from expirebridge.errors import LimitsNeedOnePartition, PartitionsDiffer
from expirebridge.handlers.definition import Handler
from expirebridge.task.calls import looking, partitions
from expirebridge.task.calls.call import LEFT_OUT, PARTITIONS, Steps, at_if_available, command
from expirebridge.task.keys import InvalidKey, TriggerKey, parse_key
from expirebridge.task.listings import texts_of
from expirebridge.task.partitions import PartitionLayout
from expirebridge.task.texts import plural

_LOOK = "redis-cli --cluster check HOST:PORT"


def check_cluster(cluster: Cluster, layout: PartitionLayout) -> Finding:
    """The owners of slots, as the nodes report them. Raises nothing."""
    try:
        known = cluster.look()
        homes = {prefix: cluster.find(slot_of(prefix)) for prefix in layout.prefixes()}
    except exceptions.RedisError as failure:
        return error("cluster", str(failure), _LOOK)
    where = _where(homes)
    served = sum(one.end - one.start + 1 for one in known.ranges)
    if served < SLOTS:
        return warning(
            "cluster",
            f"{where}, but {plural(SLOTS - served, 'other slot has', 'other slots have')} no node",
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
    return ok(
        "cluster",
        f"{where}; {plural(len(known.primaries), 'primary serves', 'primaries serve')} all slots",
    )


def check_coverage() -> Steps[Finding]:
    """Check whether a node goes on although other slots have none."""
    found = yield from setting("cluster-require-full-coverage")
    if found is None:
        return not_shown("coverage", "cluster-require-full-coverage is not known: it should be no")
    if found == "yes":
        return warning(
            "coverage",
            "cluster-require-full-coverage is yes: as soon as one slot has no node, no task runs "
            "on any",
            "CONFIG SET cluster-require-full-coverage no  (on each node)",
        )
    return ok("coverage", "a slot without a node does not stop the others")


def check_isolation() -> Steps[Finding]:
    """Check whether a primary that is cut off from the others, and is replaced, takes writes."""
    info: dict[str, Any] = yield from command("INFO", "replication")
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
    return f"{plural(len(homes), 'partition', 'partitions')}: {each}"


def _without_replica(known: SlotMap) -> set[Address]:
    return {one.primary for one in known.ranges if not one.replicas}


# The checks of a database whose server sentinels name.


def check_sentinels(sentinels: Sentinels) -> Finding:
    """Which sentinels answer what. It asks each of them, and raises nothing."""
    answers = list(sentinels.answers())
    leader, votes = leader_of(answers)
    agreed = f"{votes} of {len(answers)} sentinels name {leader}"
    others = "; ".join(str(answer) for answer in answers if answer.primary != leader)
    if leader is None or 2 * votes <= len(answers):
        return error(
            "sentinels",
            f"no majority of the sentinels agrees on the primary: {'; '.join(map(str, answers))}",
            "start the sentinels that are down; the known primary stays until most agree",
        )
    if votes < len(answers):
        return warning(
            "sentinels",
            f"{agreed}, but {others}",
            "look at those: with fewer, no failover is possible",
        )
    return ok("sentinels", agreed)


def check_failover() -> Steps[Finding]:
    """Check whether a replica could take over, and whether its old primary would take writes."""
    info: dict[str, Any] = yield from command("INFO", "replication")
    replicas = int(info.get("connected_slaves", 0))
    if not replicas:
        return warning(
            "failover",
            "the primary has no replica: if it dies, nothing takes over",
            "start a replica: REPLICAOF HOST PORT",
        )
    if "min_slaves_good_slaves" not in info:
        return warning(
            "failover",
            "min-replicas-to-write is 0: a primary that is replaced takes writes until it "
            "learns of that, and they are lost",
            "CONFIG SET min-replicas-to-write 1  (on each server; needs two replicas, or the loss "
            "of one stops all writes)",
        )
    return ok("failover", "a primary without replicas takes no writes: min-replicas-to-write")


# Checks of a database with several partitions: whether each answers, and is like the others.

_MOST_KEYS = 1_000_000
_SHOWN = 5
_TRIGGER_KEYS = r"*:\?*\?*"


def check_partitions(lease: float) -> Steps[list[Finding]]:
    """Check that partitions answer and agree on their number, and report what waits in each."""
    if (yield from PARTITIONS) == 1:
        return []
    try:
        count = yield from partitions.read_partitions()
    except PartitionsDiffer as differ:
        return [
            error(
                "partitions",
                f"partitions disagree about how many there are: {differ}",
                "expirebridge partitions show; do the nodes belong to two clusters, or does one "
                "hold the data of another database?",
            )
        ]
    overdue = []
    for number in range(count):
        counts = yield from at_if_available(looking.count(lease), number, fail_fast=True)
        if counts is not None and counts.overdue:
            overdue.append(f"{number}: {counts.overdue:,}")
    left_out = yield from LEFT_OUT
    found = [
        error("partitions", f"cannot be asked: {text}", "redis-cli --cluster check HOST:PORT")
        for text in texts_of(left_out)
    ]
    waits = f"; overdue in {', '.join(overdue)}" if overdue else ""
    return found or [ok("partitions", f"all {count} answer{waits}")]


def refuse_limits(handlers: Iterable[Handler]) -> Steps[None]:
    """Raise LimitsNeedOnePartition if a listener with these handlers would not start here."""
    count = yield from PARTITIONS
    if count > 1 and any(handler.limits for handler in handlers):
        raise LimitsNeedOnePartition(count)


def check_misplaced(nodes: Mapping[str, redis.Redis], layout: PartitionLayout) -> Finding:
    """Check whether a node holds trigger keys with a wrong tag, or none. It scans all keys."""
    found = list[TriggerKey]()
    silent = []
    for node, client in nodes.items():
        try:
            found += islice(_misplaced(client, layout), _SHOWN + 1)
        except redis.RedisError as failure:
            silent.append(f"{node}: {failure}")
    if found:
        examples = "; ".join(
            f"{key.hash_tag}{key.id}:?{key.func}?... must begin with "
            f"{layout.hash_tag_of(layout.partition_of(key.id))}{key.id}:"
            for key in found[:_SHOWN]
        )
        more = " and others" if len(found) > _SHOWN else ""
        return warning(
            "misplaced keys",
            f"trigger keys in the wrong place are not run: {examples}{more}",
            "expirebridge key ID FUNC ARGS prints the right name",
        )
    if silent:
        return warning("misplaced keys", f"not looked for everywhere: {'; '.join(silent)}", "")
    return ok("misplaced keys", f"none at {plural(len(nodes), 'node', 'nodes')}")


def _misplaced(client: redis.Redis, layout: PartitionLayout) -> Iterator[TriggerKey]:
    names = client.scan_iter(match=_TRIGGER_KEYS, count=1000)
    for name in islice(names, _MOST_KEYS):
        try:
            key = parse_key(name)
        except InvalidKey:
            continue
        if key is not None and key.hash_tag != layout.hash_tag_of(layout.partition_of(key.id)):
            yield key
