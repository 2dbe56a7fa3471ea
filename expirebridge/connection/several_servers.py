"""Clients whose server is found first: the primary that sentinels name, or nodes of a cluster."""

from collections.abc import Callable
from typing import Any, NamedTuple

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from expirebridge.connection.cluster import Cluster, SlotPrimary, slots_at
from expirebridge.connection.cluster_client import (
    AsyncClusterClient,
    ClusterClient,
    ClusterRouter,
    NodeClients,
    slot_of,
)
from expirebridge.connection.connections import (
    LAST_ATTEMPT,
    AsyncFollowing,
    AsyncFollowingTls,
    FollowingConnection,
    FollowingTls,
)
from expirebridge.connection.redis_client import C, made
from expirebridge.connection.sentinel import Endpoint, Primary, Sentinels
from expirebridge.connection.urls import (
    Address,
    SentinelUrl,
    check_url,
    read_cluster_url,
    read_sentinel_url,
)
from expirebridge.store.errors import translated
from expirebridge.store.tls import AsyncTlsConnection, TlsConnection
from expirebridge.task import keys
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout

_FOLLOWING: dict[Any, Any] = {
    redis.Connection: FollowingConnection,
    redis.asyncio.Connection: AsyncFollowing,
    TlsConnection: FollowingTls,
    AsyncTlsConnection: AsyncFollowingTls,
}
_ONCE: dict[Any, Any] = {redis.Redis: Retry, redis.asyncio.Redis: AsyncRetry}
_SENTINEL_PATIENCE = 1.0
"""Seconds that one sentinel, or a server that is asked for its role, has to answer."""
_FAIL_FAST: dict[str, Any] = {"socket_timeout": 2, "socket_connect_timeout": 2}
"""How long a node of a cluster has to answer a producer what others can answer without it."""
_ASKING: dict[str, Any] = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
"""How long a node of a cluster has to answer who serves what."""


def cluster_producer(url: str, prefix: str, times: dict[str, Any]) -> ClusterClient:
    """A client of a cluster that sends a command again; `times` are the options of each node's."""
    patient, fail_fast = _routers(url, prefix)
    at_once = _cluster_client(url, fail_fast, times | _FAIL_FAST)
    return _cluster_client(url, patient, times, at_once)


def async_cluster_producer(url: str, prefix: str, times: dict[str, Any]) -> AsyncClusterClient:
    """The same, to be awaited."""
    patient, fail_fast = _routers(url, prefix)
    at_once = _async_cluster_client(url, fail_fast, times | _FAIL_FAST)
    return _async_cluster_client(url, patient, times, at_once)


def cluster_probe(url: str, prefix: str, times: dict[str, Any]) -> ClusterClient:
    """The same for a command that is sent once."""
    return _cluster_client(url, _routers(url, prefix).fail_fast, times)


class _Routers(NamedTuple):
    patient: ClusterRouter
    """It waits for a failover."""
    fail_fast: ClusterRouter


def _routers(url: str, prefix: str) -> _Routers:
    cluster, home = _cluster_at(url), _home_of(prefix)
    return _Routers(
        patient=ClusterRouter(cluster, home=home, patience=LAST_ATTEMPT),
        fail_fast=ClusterRouter(cluster, home=home, patience=0),
    )


def following_client(url: str, kind: type[C], place: Endpoint | None, **options: Any) -> C:
    """A client whose connections lead to the primary, wherever that is."""
    sentinels, cluster = read_sentinel_url(url), read_cluster_url(url)
    if sentinels is not None:
        client = made(sentinels.primary_url, kind, url, **options)
        place = place or _primary(sentinels, url)
    else:
        assert cluster is not None  # noqa: S101 - for the type checker
        client = made(cluster.node_url, kind, url, **options)
    pool = client.connection_pool
    pool.connection_class = _FOLLOWING[pool.connection_class]
    pool.connection_kwargs["place"] = place
    return client


def primary_of(url: str) -> Primary | None:
    """Return the tracker of the primary of a Sentinel URL; None if the URL names no sentinels.

    Raises InvalidSetting for a URL that cannot be used.
    """
    check_url(url)
    named = read_sentinel_url(url)
    return None if named is None else _primary(named, url)


def to_follow(url: str, prefix: str) -> Primary | SlotPrimary | None:
    """Return the tracker of the server of this prefix; None if the URL names the server itself.

    In a cluster the prefix begins with a hash tag.

    Raises InvalidSetting for a URL that cannot be used.
    """
    if cluster := cluster_of(url):
        return SlotPrimary(cluster, _home_of(prefix))
    return primary_of(url)


def cluster_of(url: str) -> Cluster | None:
    """The cluster of a URL; None if it names none. Raises InvalidSetting."""
    check_url(url)
    return None if read_cluster_url(url) is None else _cluster_at(url)


def _cluster_at(url: str) -> Cluster:
    named = read_cluster_url(url)
    assert named is not None  # noqa: S101 - for the type checker
    nodes = NodeClients(_node_clients(url, redis.Redis, _ASKING))
    return Cluster(named.nodes, lambda node: slots_at(nodes.at(node), node))


def sentinels_of(url: str) -> Sentinels | None:
    """The sentinels of a URL; None if it names the server itself. Raises InvalidSetting."""
    check_url(url)
    named = read_sentinel_url(url)
    return None if named is None else _sentinels(named, url)


def primaries_of(client: redis.Redis) -> dict[str, redis.Redis]:
    """A client for each primary of a cluster, by its address; of a server, its own, as "".

    Raises a ServerError if no node of the cluster says which these are.
    """
    if not isinstance(client, ClusterClient):
        return {"": client}
    try:
        return {str(node): one for node, one in client.primaries().items()}
    except redis.RedisError as error:
        raise translated(error) from error


def _primary(named: SentinelUrl, url: str) -> Primary:
    def doubt(address: Address) -> str:
        """Why this server cannot be the primary, or nothing."""
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": _SENTINEL_PATIENCE}
        with made(named.primary_url, redis.Redis, url, **options) as client:
            client.connection_pool.connection_kwargs |= address._asdict()
            return _doubt(client)

    return Primary(_sentinels(named, url), doubt)


def _doubt(client: redis.Redis) -> str:
    try:
        role: Any = client.execute_command("ROLE")  # type: ignore[no-untyped-call]
    except (redis.AuthenticationError, NoPermissionError):
        return ""  # the error says nothing about its role; connecting will
    except redis.RedisError as error:
        return f"does not answer: {error}"
    return "" if role[0] == b"master" else "is a replica"


def _sentinels(named: SentinelUrl, url: str) -> Sentinels:
    options = named.sentinel_login | {
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": _SENTINEL_PATIENCE,
        "socket_connect_timeout": _SENTINEL_PATIENCE,
        "decode_responses": True,
    }
    return Sentinels(
        named, [made(each, redis.Redis, url, **options) for each in named.sentinel_urls]
    )


def _home_of(prefix: str) -> int:
    """The slot of all names of a prefix, or of those of its first partition."""
    if keys.hash_tag_of(prefix):
        return slot_of(prefix)
    return slot_of(PartitionLayout(prefix, PARTITIONS_OF_CLUSTER).prefix_of(0))


def _cluster_client(
    url: str,
    router: ClusterRouter,
    times: dict[str, Any],
    fail_fast: ClusterClient | None = None,
) -> ClusterClient:
    nodes = NodeClients(_node_clients(url, redis.Redis, times))
    return ClusterClient.of(nodes.at(router.cluster.seeds[0]), nodes, router, fail_fast)


def _async_cluster_client(
    url: str,
    router: ClusterRouter,
    times: dict[str, Any],
    fail_fast: AsyncClusterClient | None = None,
) -> AsyncClusterClient:
    nodes = NodeClients(_node_clients(url, redis.asyncio.Redis, times))
    return AsyncClusterClient.of(nodes.at(router.cluster.seeds[0]), nodes, router, fail_fast)


def _node_clients(url: str, kind: type[C], times: dict[str, Any]) -> Callable[[Address], C]:
    """Makes clients of single nodes of the cluster of a URL, which repeat nothing."""
    named = read_cluster_url(url)

    def make(node: Address) -> C:
        assert named is not None  # noqa: S101 - for the type checker
        client = made(named.node_url, kind, url, retry=_ONCE[kind](NoBackoff(), 0), **times)
        client.connection_pool.connection_kwargs |= node._asdict()
        return client

    make(Address("", 0))  # sends nothing, and refuses a bad URL
    return make
