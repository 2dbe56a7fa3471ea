"""Six real nodes, and what happens to them: they die, are promoted, and hand on their slots."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from expirebridge.embedded import cluster
from expirebridge.embedded.server import HOST, EmbeddedServer
from tests.kit.patience import PATIENCE, until
from tests.kit.servers import is_stopped

TAG = "{eb}"
PREFIX = f"{TAG}expirebridge"
_GIVEN_UP = 6.0
"""Seconds after which a replica that was asked to take over has given it up, and does not say so:
a primary, or a majority, that was too busy to answer it."""
NODE_TIMEOUT_MS = 2000
"""For how long a node is silent before the others take it for dead."""


class Cluster:
    """Three primaries, each with a replica; both change places, so ask which is which.

    A server stands for the node that it is. `hanging` in tests/kit/servers.py stops one.
    """

    def __init__(
        self, binary: Path, *, replicas: int = 1, options: Mapping[str, str] | None = None
    ) -> None:
        all_options = {
            "cluster-node-timeout": str(NODE_TIMEOUT_MS),
            "appendonly": "no",
            **(options or {}),
        }
        self._cluster = cluster.EmbeddedCluster(
            replicas=replicas, binary=binary, options=all_options
        )
        self.url = self._cluster.url

    @property
    def nodes(self) -> Sequence[EmbeddedServer]:
        """All nodes, whether they run or not."""
        return self._cluster.nodes

    @contextmanager
    def client(self, node: EmbeddedServer) -> Iterator[redis.Redis]:
        """A plain client of one node, whatever its role, which follows and repeats nothing."""
        once = Retry(NoBackoff(), 0)
        with redis.Redis(host=HOST, port=node.port, socket_timeout=PATIENCE, retry=once) as client:
            yield client

    def ask(self, node: EmbeddedServer, *words: Any) -> Any:
        """What a node answers to a command."""
        with self.client(node) as client:
            return client.execute_command(*words)

    # Who is what

    def id_of(self, node: EmbeddedServer) -> str:
        """What the cluster calls a node."""
        return str(self.ask(node, "CLUSTER", "MYID").decode())

    def slot_of(self, key: str) -> int:
        """The slot of a key; any node computes it."""
        return int(self.ask(self._awake()[0], "CLUSTER", "KEYSLOT", key))

    def primary_of(self, slot: int, *, asked: EmbeddedServer | None = None) -> EmbeddedServer:
        """The node that serves a slot, by the word of one node."""
        for start, end, primary, *_ in self.ask(asked or self._awake()[0], "CLUSTER", "SLOTS"):
            if start <= slot <= end:
                return self._at(primary[1])
        raise LookupError(f"nobody serves {slot}")

    def replica_of(self, primary: EmbeddedServer) -> EmbeddedServer:
        """A node that follows this one."""
        for line in self.ask(primary, "CLUSTER", "REPLICAS", self.id_of(primary)):
            return self._at(line.split()[1].partition(b"@")[0].rpartition(b":")[2])
        raise LookupError(f"nobody follows {primary.port}")

    def slot_at(self, node: EmbeddedServer) -> int:
        """A slot that a node serves."""
        slots = (each for each in self.ask(node, "CLUSTER", "SLOTS") if each[2][1] == node.port)
        return int(next(slots)[0])

    def until_served_by(self, slot: int, node: EmbeddedServer) -> None:
        """Wait until every node that runs says that this one serves the slot."""

        def served() -> bool:
            with suppress(redis.RedisError, LookupError):
                return {self.primary_of(slot, asked=one) for one in self._awake()} == {node}
            return False

        until(served, f"{node.port} to serve slot {slot}")

    def until_well(self) -> None:
        """Wait until all nodes, all of which run, agree, and replicas follow."""
        self._cluster.until_agreed()

    def until_listed(self) -> None:
        """Wait until each node names all nodes to clients.

        It leaves out a replica of which it has not heard yet that it has received something.
        """

        def are_listed() -> bool:
            known = (self.ask(node, "CLUSTER", "SLOTS") for node in self.nodes)
            named = ({member[1] for row in rows for member in row[2:]} for rows in known)
            return all(len(ports) == len(self.nodes) for ports in named)

        until(are_listed, "each node to name all nodes")

    def until_in_step(self, primary: EmbeddedServer, replica: EmbeddedServer | None = None) -> None:
        """Wait until the replica of this node has all that was written there before.

        One that has just become it is to be named: the primary may not know it yet.
        """
        wanted = int(self.ask(primary, "INFO", "replication")["master_repl_offset"])
        follower = replica or self.replica_of(primary)

        def in_step() -> bool:
            told = self.ask(follower, "INFO", "replication")
            return int(told.get("slave_repl_offset", -1)) >= wanted

        until(in_step, f"{follower.port} to have what {primary.port} has")

    # What happens to nodes

    def kill(self, node: EmbeddedServer) -> None:
        """Kill a node, as a crash would."""
        node.kill()

    def restart(self, node: EmbeddedServer) -> None:
        """Start a node again with what it had on disk, and wait until all is well."""
        node.start()
        self.until_well()

    def fail_over(self, primary: EmbeddedServer) -> EmbeddedServer:
        """Let a primary and its replica change places, in order; return the new primary."""
        replica, slot = self.replica_of(primary), self.slot_at(primary)

        asked = -_GIVEN_UP

        def took_over() -> bool:
            nonlocal asked
            is_primary = bool(self.ask(replica, "ROLE")[0] == b"master")
            if not is_primary and time.monotonic() > asked + _GIVEN_UP:
                asked = time.monotonic()
                with suppress(redis.ResponseError):  # its link to the primary is down
                    self.ask(replica, "CLUSTER", "FAILOVER")
            return is_primary

        until(took_over, f"{replica.port} to take over")
        self.until_served_by(slot, replica)
        return replica

    # What happens to slots

    def migrate(self, slot: int, target: EmbeddedServer) -> None:
        """Move a slot at once, with all that is in it (Valkey 9)."""
        source = self.primary_of(slot)
        words = ("SLOTSRANGE", slot, slot, "NODE", self.id_of(target))
        self.ask(source, "CLUSTER", "MIGRATESLOTS", *words)
        self.until_served_by(slot, target)

    def begin_move(self, slot: int, target: EmbeddedServer, *, keys: int = 0) -> None:
        """Begin to move a slot key by key, as before Valkey 9, and stop after so many keys."""
        source = self.primary_of(slot)
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.id_of(source))
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.id_of(target))
        self._hand_over(slot, source, target, keys)

    def finish_move(self, slot: int, target: EmbeddedServer) -> None:
        """Move what is left of a slot, and tell all nodes."""
        source = self.primary_of(slot)
        self._hand_over(slot, source, target)
        for node in (target, source):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", self.id_of(target))
        self.until_served_by(slot, target)

    def undo_move(self, slot: int, target: EmbeddedServer) -> None:
        """End a move by which no key was moved yet; others can only be finished."""
        assert self.ask(target, "CLUSTER", "COUNTKEYSINSLOT", slot) == 0
        for node in (target, self.primary_of(slot)):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "STABLE")

    def _hand_over(
        self, slot: int, source: EmbeddedServer, target: EmbeddedServer, most: int | None = None
    ) -> None:
        count = self.ask(source, "CLUSTER", "COUNTKEYSINSLOT", slot)
        limit = count if most is None else most
        if keys := self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, limit):
            self.ask(source, "MIGRATE", HOST, target.port, "", 0, 5000, "KEYS", *keys)

    def _at(self, port: bytes | int) -> EmbeddedServer:
        for node in self.nodes:
            if node.port == int(port):
                return node
        raise LookupError(f"no node of ours is at port {int(port)}")

    def _awake(self) -> Sequence[EmbeddedServer]:
        """The nodes that run, and do not hang: however slow, they answer."""
        return [node for node in self.nodes if node.pid is not None and not is_stopped(node.pid)]

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cluster.__exit__(kind, error, trace)
