"""Clients of clusters that are not expirebridge's; each follows MOVED and ASK in its own way."""

import shutil
import subprocess
from functools import cache

import pytest
import redis

from tests.conformance.clients import (
    HERE,
    HOST,
    Cli,
    Client,
    Program,
    ReplyError,
    Word,
    text_of,
)


class ClusterCli(Cli):
    """redis-cli -c, a process for each command."""

    options = ("-c",)


class Python(Client):
    """The RedisCluster of redis-py."""

    def __init__(self, port: int) -> None:
        super().__init__(port, 0)
        self._cluster = redis.RedisCluster(host=HOST, port=port)

    def send(self, *command: Word) -> str:
        try:
            return text_of(self._cluster.execute_command(*command))
        except redis.RedisError as error:
            raise ReplyError(str(error)) from error

    def close(self) -> None:
        self._cluster.close()


NAMES = ("redis-cli -c", "ioredis", "node-redis", "php", "redis-py")


def cluster_client(name: str, port: int) -> Client:
    """The client of this name, which knows one node; skips the test if what it needs lacks."""
    match name:
        case "redis-cli -c":
            if shutil.which("redis-cli") is None:
                pytest.skip("needs redis-cli (Debian: redis-tools)")
            return ClusterCli(port, 0)
        case "ioredis" | "node-redis":
            module = "ioredis" if name == "ioredis" else "redis"
            if shutil.which("node") is None or not (HERE / "node_modules" / module).exists():
                pytest.skip(f"needs node, and {name}: make clients")
            return Program(port, 0, "node", HERE / "cluster.js", name, HOST, str(port))
        case "php":
            if not _has_php():
                pytest.skip("needs php-cli, and RedisCluster of php-redis")
            return Program(port, 0, "php", HERE / "cluster.php", f"{HOST}:{port}")
    return Python(port)


@cache
def _has_php() -> bool:
    if shutil.which("php") is None:
        return False
    words = ("php", "-r", "echo class_exists('RedisCluster');")
    return subprocess.check_output(words) == b"1"
