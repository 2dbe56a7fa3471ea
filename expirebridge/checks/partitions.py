"""Checks of a database with several partitions: whether each answers, and is like the others."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

import redis

from expirebridge.checks.finding import Finding, Level, error, ok, warning
from expirebridge.errors import PartitionsDiffer
from expirebridge.model.keys import InvalidKey, TriggerKey, parse_key
from expirebridge.model.partitions import Layout
from expirebridge.model.task import texts_of
from expirebridge.store import commands
from expirebridge.store.commands import LEFT_OUT, PARTITIONS, Steps

_MOST_KEYS = 1_000_000
_SHOWN = 5
_TRIGGER_KEYS = r"*:\?*\?*"


def check_partitions(lease: float) -> Steps[list[Finding]]:
    """Whether each partition answers, and knows the same number of them; what waits in each."""
    if (yield from PARTITIONS) == 1:
        return []
    try:
        count = yield from commands.read_partitions()
    except PartitionsDiffer as differ:
        return [
            error(
                "partitions",
                f"not all partitions have the same number of sisters: {differ}",
                "expirebridge partitions show; do the nodes belong to two clusters, or does one "
                "hold the data of another database?",
            )
        ]
    overdue = []
    for number in range(count):
        counts = yield from commands.at_if_there(commands.count(lease), number, hasty=True)
        if counts is not None and counts.overdue:
            overdue.append(f"{number}: {counts.overdue:,}")
    left_out = yield from LEFT_OUT
    found = [
        error("partitions", f"cannot be asked: {text}", "redis-cli --cluster check HOST:PORT")
        for text in texts_of(left_out)
    ]
    waits = f"; overdue in {', '.join(overdue)}" if overdue else ""
    return found or [ok("partitions", f"all {count} answer{waits}")]


def named(findings: list[Finding], node: object) -> list[Finding]:
    """What is wrong at another node of a cluster, under its name."""
    return [
        replace(one, message=f"{node}: {one.message}")
        for one in findings
        if one.level in {Level.WARNING, Level.ERROR}
    ]


def check_misplaced(nodes: Mapping[str, redis.Redis], layout: Layout) -> Finding:
    """Whether a node holds trigger keys whose tag is wrong, or missing. It walks over all keys."""
    found = list[TriggerKey]()
    silent = []
    for node, client in nodes.items():
        try:
            found += islice(_misplaced(client, layout), _SHOWN + 1)
        except redis.RedisError as failure:
            silent.append(f"{node}: {failure}")
    if found:
        examples = "; ".join(
            f"{key.slot}{key.id}:?{key.func}?... must begin with "
            f"{layout.slot_of(layout.partition_of(key.id))}{key.id}:"
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
    return ok("misplaced keys", f"none at {len(nodes)} nodes")


def _misplaced(client: redis.Redis, layout: Layout) -> Iterator[TriggerKey]:
    names = client.scan_iter(match=_TRIGGER_KEYS, count=1000)
    for name in islice(names, _MOST_KEYS):
        try:
            key = parse_key(name)
        except InvalidKey:
            continue
        if key is not None and key.slot != layout.slot_of(layout.partition_of(key.id)):
            yield key
