"""A cluster of which one primary is in a network of its own, which can be cut off from the others.

The network is a namespace of Linux with a pair of virtual devices: only root can make it. Nothing
passes while it is cut, and neither side is told; the processes there go on.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from tests.kit.history import now
from tests.kit.patience import PATIENCE, until
from tests.kit.process_logs import noted

NODE_TIMEOUT_MS = 3000
SLOTS = 16384
PORT = 7000
_NAME = f"eb{os.getpid()}"
_THIRD, _FOURTH = divmod(os.getpid() % 16384 * 4, 256)
NEAR, FAR = f"10.210.{_THIRD}.{_FOURTH + 1}", f"10.210.{_THIRD}.{_FOURTH + 2}"
"""The addresses of the majority, here, and of the other side."""
SERVICE = f"10.211.{_THIRD}.{_FOURTH}"
"""The address of the node there, on which it can be reached there even while it is cut off."""


@cache
def can_divide() -> bool:
    """Whether networks can be made here."""
    if shutil.which("ip") is None:
        return False
    made = subprocess.run(["ip", "netns", "add", f"{_NAME}try"], capture_output=True, check=False)
    if made.returncode:
        return False
    _ip("netns", "delete", f"{_NAME}try")
    return True


class DividedCluster:
    """Three primaries, of which the first one, alone in its network, has a replica here."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._stack = ExitStack()
        hosts = {PORT: SERVICE, PORT + 1: NEAR, PORT + 2: NEAR, PORT + 3: NEAR}
        self.nodes = [(host, port) for port, host in hosts.items()]
        """The primary that is cut off, two others, and its replica."""

    @property
    def url(self) -> str:
        """The URL for those here: of the nodes here."""
        return "redis+cluster://" + ",".join(f"{host}:{port}" for host, port in self.nodes[1:3])

    @property
    def far_url(self) -> str:
        """The URL for those there: of the node there."""
        return f"redis+cluster://{SERVICE}:{PORT}"

    @staticmethod
    def there(*words: str | Path) -> Sequence[str | Path]:
        """The words that run a command on the other side."""
        return ["ip", "netns", "exec", _NAME, *words]

    def ask(self, node: tuple[str, int], *words: Any) -> Any:
        """What a node answers to a command."""
        with redis.Redis(host=node[0], port=node[1], socket_timeout=2) as client:
            return client.execute_command(*words)

    @contextmanager
    def divided(self) -> Iterator[None]:
        """Let nothing pass between the two sides while the block runs."""
        _ip("-n", _NAME, "link", "set", f"{_NAME}f", "down")
        try:
            yield
        finally:
            _ip("-n", _NAME, "link", "set", f"{_NAME}f", "up")
            _ip("-n", _NAME, "route", "replace", "default", "via", NEAR)

    def until_served_by(self, node: tuple[str, int], *, asked: tuple[str, int]) -> None:
        """Wait until a node says that this one serves the first slots."""

        def served() -> bool:
            with suppress(redis.RedisError):
                for start, _, primary, *_ in self.ask(asked, "CLUSTER", "SLOTS"):
                    if start == 0:
                        return bool(primary[0].decode() == node[0] and primary[1] == node[1])
            return False

        until(served, f"{node} to serve the first slots")

    def until_promoted(self) -> int:
        """Wait until the replica is a primary; return when it was none yet."""
        deadline = time.monotonic() + PATIENCE
        before = now()
        while time.monotonic() < deadline:
            asked = now()
            if self.ask(self.nodes[3], "ROLE")[0] == b"master":
                return before
            before = asked
            time.sleep(0.01)
        raise AssertionError("the replica was not promoted")

    def until_in_step(self) -> None:
        """Wait until the replica has what was written so far."""
        wanted = self.ask(self.nodes[0], "INFO", "replication")["master_repl_offset"]
        until(lambda: self.ask(self.nodes[3], "INFO", "replication").get("slave_repl_offset", 0)
               >= wanted, "the replica to have it all")  # fmt: skip

    # The start

    def _divide(self) -> None:
        _ip("netns", "add", _NAME)
        self._stack.callback(_ip, "netns", "delete", _NAME)
        far = ("type", "veth", "peer", "name", f"{_NAME}f", "netns", _NAME)
        _ip("link", "add", f"{_NAME}n", *far)
        # Before the namespace, which goes with its device only a while after it was deleted.
        self._stack.callback(_ip, "link", "delete", f"{_NAME}n")
        _ip("addr", "add", f"{NEAR}/30", "dev", f"{_NAME}n")
        _ip("link", "set", f"{_NAME}n", "up")
        _ip("-n", _NAME, "addr", "add", f"{FAR}/30", "dev", f"{_NAME}f")
        _ip("-n", _NAME, "addr", "add", f"{SERVICE}/32", "dev", "lo")
        for device in ("lo", f"{_NAME}f"):
            _ip("-n", _NAME, "link", "set", device, "up")
        _ip("route", "add", f"{SERVICE}/32", "via", FAR)
        _ip("-n", _NAME, "route", "add", "default", "via", NEAR)

    def _launch(self, host: str, port: int) -> None:
        directory = self._folder / str(port)
        directory.mkdir()
        options = {
            "port": port, "bind": host, "dir": directory, "save": "", "appendonly": "no",
            "protected-mode": "no", "notify-keyspace-events": "Exg", "cluster-enabled": "yes",
            "cluster-node-timeout": NODE_TIMEOUT_MS, "cluster-announce-ip": host,
            "cluster-require-full-coverage": "no", "repl-diskless-sync-delay": 0,
        }  # fmt: skip
        words = [str(self._binary), *(w for k, v in options.items() for w in (f"--{k}", str(v)))]
        with noted(directory / "log").open("wb") as log:
            process = subprocess.Popen(
                self.there(*words) if host == SERVICE else words, stdout=log, stderr=log
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)

    def _make(self) -> None:
        first, *others = self.nodes
        for number, node in enumerate(self.nodes[:3]):
            start, end = (SLOTS * each // 3 for each in (number, number + 1))
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            self.ask(node, "CLUSTER", "ADDSLOTS", *range(start, end))
        for host, port in others:
            self.ask(first, "CLUSTER", "MEET", host, port)
        id = self.ask(first, "CLUSTER", "MYID").decode()

        def is_replica() -> bool:
            with suppress(redis.RedisError):  # it does not know the primary yet
                return self.ask(self.nodes[3], "CLUSTER", "REPLICATE", id) is not None
            return False

        until(is_replica, "the replica to know its primary")
        until(lambda: all(map(self._is_well, self.nodes)), "the nodes to agree")

    def _is_well(self, node: tuple[str, int]) -> bool:
        info = self.ask(node, "CLUSTER", "INFO")
        link = self.ask(node, "INFO", "replication").get("master_link_status", "up")
        known = [len(slots) for slots in self.ask(node, "CLUSTER", "SLOTS")]
        return b"cluster_state:ok" in info and link == "up" and sorted(known) == [3, 3, 4]

    def __enter__(self) -> Self:
        with ExitStack() as failing:
            failing.callback(self._stack.close)
            self._divide()
            for node in self.nodes:
                self._launch(*node)
            for node in self.nodes:
                until(partial(self._answers, node), f"{node} to answer")
            self._make()
            failing.pop_all()
        return self

    def _answers(self, node: tuple[str, int]) -> bool:
        with suppress(redis.RedisError):
            return bool(self.ask(node, "PING"))
        return False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"ip {' '.join(words)}: {done.stderr}")
