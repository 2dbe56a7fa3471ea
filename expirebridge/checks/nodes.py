"""The servers of a database: one, or the primaries of a cluster, and the partitions on each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import redis

from expirebridge.checks.finding import Finding, Level, error
from expirebridge.connection.cluster_client import ClusterClient
from expirebridge.connection.several_servers import primaries_of
from expirebridge.errors import FormatTooNew, NotPermitted, PartitionsDiffer, ServerUnreachable
from expirebridge.store.client import Store
from expirebridge.store.partitions import Partitions
from expirebridge.task.calls import partitions
from expirebridge.task.keys import hash_tag_of
from expirebridge.task.texts import plural

_SHOWN = 5
"""Nodes that a finding names at most."""


@dataclass(frozen=True, slots=True)
class CheckedServer:
    """One server, and what is on it."""

    name: str
    """Its address; "" if it is the only one."""
    client: redis.Redis
    store: Partitions | Store
    """Runs what concerns the server; its scripts are those of the first partition there."""
    prefixes: Sequence[str]
    """Of the partitions there; a node of a cluster may have none."""


class CheckedServers:
    """All servers of a database, and which of them do not answer.

    Raises a ServerError if no server can say how many partitions there are.
    """

    def __init__(self, store: Partitions | Store) -> None:
        self.all = _nodes_of(store)
        self.silent: dict[str, ServerUnreachable] = {}
        """Why nothing is known of a node, by its address: it is not asked again."""

    @property
    def are_several(self) -> bool:
        """True if they are the nodes of a cluster, among which partitions are divided."""
        return self.all[0].name != ""

    @property
    def answering(self) -> list[CheckedServer]:
        """Those that answer, as far as is known."""
        return [node for node in self.all if node.name not in self.silent]

    def look(self, at: Callable[[CheckedServer], list[Finding]]) -> list[Finding]:
        """The findings at each node that answers; equal findings of several nodes once.

        Raises ServerUnreachable if none answers.
        """
        if not self.are_several:
            return at(self.all[0])
        found = dict[str, list[Finding]]()
        for node in self.answering:
            try:
                found[node.name] = at(node)
            except ServerUnreachable as failure:
                self.silent[node.name] = failure
        if not found:
            raise next(iter(self.silent.values()))
        return list(_joined(found))

    def missing(self) -> list[Finding]:
        """A finding for each node that does not answer."""
        at = next((one.name for one in self.answering), "HOST:PORT")
        remedy = f"redis-cli --cluster check {at}"
        return [
            error("nodes", f"{name} was not looked at: {failure}", remedy)
            for name, failure in self.silent.items()
        ]


def _nodes_of(store: Partitions | Store) -> list[CheckedServer]:
    client, database = store.client, store.database
    if not isinstance(client, ClusterClient) or hash_tag_of(database.layout.prefix):
        return [CheckedServer("", client, store, database.layout.prefixes())]
    with suppress(FormatTooNew, NotPermitted, PartitionsDiffer):  # the checks find these
        store.run(partitions.read_partitions())
    layout = store.database.layout
    homes = {prefix: str(client.node_of(prefix)) for prefix in layout.prefixes()}
    nodes = []
    for name, one in primaries_of(client).items():
        own = [prefix for prefix, home in homes.items() if home == name]
        first = own[0] if own else layout.prefix_of(0)
        here = Store(one, prefix=first, partitions=layout.count)
        nodes.append(CheckedServer(name, one, here, own))
    return nodes


def _joined(found: Mapping[str, list[Finding]]) -> Iterator[Finding]:
    """Merge equal findings of several nodes, and keep OK findings of the first node only."""
    checks = dict[str, dict[Finding, list[str]]]()
    for name, findings in found.items():
        for finding in findings:
            checks.setdefault(finding.check, {}).setdefault(finding, []).append(name)
    for some in checks.values():
        faults = {one: names for one, names in some.items() if one.level is not Level.OK}
        for one, names in faults.items():
            yield replace(one, message=f"{_named(names, len(found))}: {one.message}")
        if not faults:
            one, names = next(iter(some.items()))
            others = len(found) - len(names)
            well = f"; the other {plural(others, 'is', 'are')} well, too" if others else ""
            yield replace(one, message=f"{_named(names, len(found))}: {one.message}{well}")


def _named(names: Sequence[str], count: int) -> str:
    if len(names) == count > 1:
        return f"all {count} nodes"
    more = f" and {plural(len(names) - _SHOWN, 'other', 'others')}" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
