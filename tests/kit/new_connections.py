"""Opens connections with every client of the package, and counts those that fail.

    python -m tests.kit.new_connections rediss://localhost:6379/0 1000

The tests run it as a process: which parser redis-py uses is decided when that is imported.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import redis
from redis.utils import HIREDIS_AVAILABLE

from expirebridge.connection import clients, several_servers
from expirebridge.connection.sentinel import PinnedPrimary

FAST = Path(sys.prefix) / "fast"
"""Where `make test` puts hiredis: the tests' own process reads replies without it."""


def failures(url: str, count: int) -> dict[str, dict[str, int]]:
    """Why connections failed, and how many did, by the client that opened them."""
    found = {name: _count(once, url, count) for name, once in _waiting(url).items()}
    for name, once in _AWAITED.items():
        found[name] = asyncio.run(_count_awaited(once, url, count))
    return found


def _count(once: Callable[[str], object], url: str, count: int) -> dict[str, int]:
    faults = Counter[str]()
    for _ in range(count):
        try:
            once(url)
        except redis.RedisError as error:
            faults[str(error)] += 1
    return faults


async def _count_awaited(
    once: Callable[[str], Awaitable[object]], url: str, count: int
) -> dict[str, int]:
    faults = Counter[str]()
    for _ in range(count):
        try:
            await once(url)
        except redis.RedisError as error:
            faults[str(error)] += 1
    return faults


def _waiting(url: str) -> Mapping[str, Callable[[str], object]]:
    kinds: dict[str, Callable[[str], object]] = {
        "producer": lambda url: _ping(clients.producer_client(url)),
        "probe": lambda url: _ping(clients.probe_client(url)),
        "heartbeat": lambda url: _ping(
            clients.heartbeat_client(url, socket_timeout=3, place=_place(url))
        ),
    }
    if "+sentinel" in url:
        kinds["sentinels"] = _ask_sentinels
    if "+cluster" in url:
        kinds["nodes"] = _ask_nodes
    return kinds


def _ping(client: redis.Redis) -> None:
    with client:
        client.execute_command("PING")


def _ask_sentinels(url: str) -> None:
    sentinels = several_servers.sentinels_of(url)
    assert sentinels is not None
    for answer in sentinels.answers():
        if answer.primary is None:
            raise redis.ConnectionError(answer.fault)


def _ask_nodes(url: str) -> None:
    cluster = several_servers.cluster_of(url)
    assert cluster is not None
    cluster.look()


def _place(url: str) -> PinnedPrimary | None:
    followed = several_servers.to_follow(url, "{eb}expirebridge")
    return None if followed is None else PinnedPrimary(followed)


async def _produce(url: str) -> None:
    await _ping_awaited(clients.async_producer_client(url))


async def _listen(url: str) -> None:
    await _ping_awaited(clients.listener_client(url, socket_timeout=3, place=_place(url)))


async def _ping_awaited(client: Any) -> None:
    async with client:
        await client.execute_command("PING")


_AWAITED: Mapping[str, Callable[[str], Awaitable[object]]] = {
    "async producer": _produce,
    "listener": _listen,
}

if __name__ == "__main__":
    where, number = sys.argv[1:]
    told = {"hiredis": HIREDIS_AVAILABLE, "failed": failures(where, int(number))}
    sys.stdout.write(json.dumps(told) + "\n")
