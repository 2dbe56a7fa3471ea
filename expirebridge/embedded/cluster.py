"""The embedded cluster: real nodes on ports in a row, for development and tests."""

import random
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from expirebridge.embedded.server import HOST, EmbeddedServer, free_port
from expirebridge.errors import EmbeddedServerError

SLOTS = 16384
FEWEST = 3
"""Primaries of the smallest cluster whose majority outlives one of them."""
BUS = 10_000
"""The distance from a node's port to its second one, for the other nodes."""
_CHOICE = (10_000, 22_000)
"""Among which the first port is chosen: systems take those of outgoing connections from above."""
_PATIENCE = 30.0
_PAUSE = 0.05
_BAD_FLAGS = {"fail", "fail?", "handshake", "noaddr"}
_OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": "5000",
    # The slots of a dead node must not stop the tasks of the others.
    "cluster-require-full-coverage": "no",
    # Else a replica with nothing to copy waits five seconds for others to join.
    "repl-diskless-sync-delay": "0",
}


class EmbeddedCluster:
    """A cluster whose nodes run during its `with` block.

    It has `primaries` primaries, each with `replicas` replicas. The ports are in a row, the first
    is `port`; without it some are chosen that are free. `directory` holds a folder for the data of
    each node, named by its port, from which the cluster starts again; without it the data is
    removed at the end. `binary` and `options` are those of `EmbeddedServer`. The nodes end even if
    this process is killed.
    """

    def __init__(
        self,
        primaries: int = FEWEST,
        *,
        replicas: int = 0,
        binary: Path | None = None,
        port: int | None = None,
        directory: Path | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        self._primaries = primaries
        self.directory = directory
        count = primaries * (1 + replicas)
        self._ports = range(port, port + count) if port else free_ports(count)
        self.nodes: Sequence[EmbeddedServer] = [
            EmbeddedServer(
                binary=binary,
                port=each,
                directory=directory and directory / str(each),
                options=_OPTIONS | (options or {}),
                ends_with_us=True,
            )
            for each in self._ports
        ]
        """The primaries, as they were made, then their replicas."""

    @property
    def url(self) -> str:
        """Its URL, with all nodes that were made as primaries."""
        hosts = ",".join(f"{HOST}:{node.port}" for node in self.nodes[: self._primaries])
        return f"redis+cluster://{hosts}"

    def start(self) -> None:
        """Start the nodes, and wait until all agree on a cluster that works.

        Raises EmbeddedServerError if a port is taken, the directory holds another cluster, a node
        does not start, or they do not agree in 30 s.
        """
        self._check_directory()
        self._check_ports()
        with ExitStack() as stack:
            stack.callback(self._remove)
            stack.callback(self.kill)
            for node in self.nodes:
                node.start()
            if not self._is_made():
                self._make()
            self.until_agreed()
            self._check_roles()
            stack.pop_all()

    def until_agreed(self) -> None:
        """Wait until all nodes agree on a cluster that works, and replicas follow their primaries.

        Raises EmbeddedServerError if they do not in 30 s.
        """
        self._until(lambda: self._are_acquainted() and all(map(self._is_well, self.nodes)))

    def ended(self) -> Iterator[tuple[EmbeddedServer, int]]:
        """Wait for nodes that end by themselves, up to the last; give each with its exit code."""
        alive = list(self.nodes)
        while alive:
            for node in list(alive):
                if (code := node.exit_code) is not None:
                    alive.remove(node)
                    node.kill()
                    yield node, code
            time.sleep(_PAUSE)

    def stop(self) -> None:
        """Stop the nodes in order; their data is on disk then. Raises EmbeddedServerError."""
        with ExitStack() as stack:
            for node in self.nodes:
                node.ask_to_stop()  # all at once: a primary waits for its replicas
                stack.callback(node.stop)

    def kill(self) -> None:
        """Kill the nodes, as a crash of the machine would."""
        for node in self.nodes:
            node.kill()

    def _remove(self) -> None:
        for node in self.nodes if self.directory is None else []:
            shutil.rmtree(node.directory, ignore_errors=True)

    def ask(self, node: EmbeddedServer, *words: str | int) -> Any:
        """Send a command to a node and return its reply. Raises a RedisError."""
        once = Retry(NoBackoff(), 0)
        with redis.Redis(host=HOST, port=node.port, socket_timeout=10, retry=once) as client:
            return client.execute_command(*words)

    # Ports that must be free

    def _check_directory(self) -> None:
        if self.directory is None or not self.directory.is_dir():
            return
        found = sorted(int(each.name) for each in self.directory.iterdir() if each.name.isdigit())
        if found and found != list(self._ports):
            raise EmbeddedServerError(
                f"{self.directory} holds a cluster of {len(found)} nodes, which begin at port "
                f"{found[0]}, and not of {len(self._ports)} that begin at {self._ports[0]}: start "
                "it as it was made, or choose another directory"
            )

    def _check_ports(self) -> None:
        taken = [each for base in self._ports for each in (base, base + BUS) if not _is_free(each)]
        if taken:
            first, last = self._ports[0], self._ports[-1]
            raise EmbeddedServerError(
                f"port {', '.join(map(str, taken))}: in use; {len(self._ports)} nodes need "
                f"{first} to {last}, and {first + BUS} to {last + BUS} to talk among themselves: "
                "stop what listens there, or choose another first port"
            )

    # Making it

    def _is_made(self) -> bool:
        """True if every node knows the others, and who serves each slot."""
        return all(
            state["cluster_known_nodes"] == str(len(self.nodes))
            and state["cluster_slots_assigned"] == str(SLOTS)
            for state in map(self._state, self.nodes)
        )

    def _make(self) -> None:
        """Make a cluster of new nodes, or of what was left when a start was interrupted."""
        primaries = self.nodes[: self._primaries]
        for number, node in enumerate(self.nodes):
            # Refused by a node with keys: what was once a cluster with data is not lost.
            self._order(node, "CLUSTER", "RESET", "HARD")
            self._order(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(primaries):
            start, end = (SLOTS * each // self._primaries for each in (number, number + 1))
            self._order(node, "CLUSTER", "ADDSLOTS", *range(start, end))
        for node in self.nodes[1:]:
            self._order(self.nodes[0], "CLUSTER", "MEET", HOST, node.port)
        self._until(self._are_acquainted)
        for number, node in enumerate(self.nodes[self._primaries :]):
            primary = self.ask(primaries[number % self._primaries], "CLUSTER", "MYID")
            self._order(node, "CLUSTER", "REPLICATE", primary.decode())

    def _order(self, node: EmbeddedServer, *words: str | int) -> None:
        try:
            self.ask(node, *words)
        except redis.RedisError as error:
            raise EmbeddedServerError(
                f"the node on port {node.port} refused {' '.join(map(str, words[:2]))}: {error}"
            ) from error

    # Agreement

    def _are_acquainted(self) -> bool:
        views = [self._view(node) for node in self.nodes]
        return all(view == views[0] and len(view) == len(self.nodes) for view in views)

    def _is_well(self, node: EmbeddedServer) -> bool:
        if self._state(node)["cluster_state"] != "ok":
            return False
        link: str = self.ask(node, "INFO", "replication").get("master_link_status", "up")
        return link == "up"

    def _view(self, node: EmbeddedServer) -> frozenset[tuple[str, ...]]:
        """The members as a node sees them: id, role, primary and slots. Empty: not yet sure."""
        view = set()
        for line in self.ask(node, "CLUSTER", "NODES").decode().splitlines():
            id, _, flags, primary, _, _, _, link, *slots = line.split()
            role = set(flags.split(",")) - {"myself"}
            if role & _BAD_FLAGS or link != "connected":
                return frozenset()
            settled = (slot for slot in slots if not slot.startswith("["))
            view.add((id, *sorted(role), primary, *settled))
        return frozenset(view)

    def _check_roles(self) -> None:
        primaries = sum("master" in node for node in self._view(self.nodes[0]))
        if primaries != self._primaries:
            raise EmbeddedServerError(
                f"{self.directory} holds a cluster of {primaries} primaries among "
                f"{len(self.nodes)} nodes, and not of {self._primaries}: start it as it was made, "
                "or choose another directory"
            )

    def _state(self, node: EmbeddedServer) -> dict[str, str]:
        lines = self.ask(node, "CLUSTER", "INFO").decode().split()
        return dict(line.split(":", 1) for line in lines)

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        fault = ""
        while time.monotonic() < deadline:
            try:
                if holds():
                    return
            except redis.RedisError as error:
                fault = f": {error}"
            time.sleep(_PAUSE)
        raise EmbeddedServerError(
            f"the {len(self.nodes)} nodes from port {self._ports[0]} do not agree on a cluster "
            f"after {_PATIENCE:g} s{fault}"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self._remove()


def free_ports(count: int) -> range:
    """Reserve this many free ports in a row, and those of the bus, as `free_port` does."""
    while True:
        first = random.randrange(*_CHOICE)  # noqa: S311 - to keep out of each other's way
        ports = range(first, first + count)
        with suppress(OSError):
            for port in ports:
                free_port(port)
                free_port(port + BUS)
            return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections that were closed a moment ago do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
