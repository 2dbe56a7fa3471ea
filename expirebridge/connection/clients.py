"""Makes redis clients as expirebridge needs them, for every kind of URL."""

import re
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
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
    AsyncOverlappingClient,
    AsyncTimelyRetry,
    DirectClient,
    FollowingConnection,
    FollowingTls,
    OverlappingClient,
    TimelyRetry,
)
from expirebridge.connection.sentinel import Endpoint, Primary, Sentinels
from expirebridge.connection.urls import (
    Address,
    SentinelUrl,
    check_url,
    plain_url,
    read_cluster_url,
    read_sentinel_url,
    refused,
    safe_url,
    unknown_option,
)
from expirebridge.errors import InvalidSetting
from expirebridge.model import keys
from expirebridge.model.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout
from expirebridge.store.errors import translated
from expirebridge.store.tls import AsyncTlsConnection, TlsConnection

C = TypeVar("C", redis.Redis, redis.asyncio.Redis)

# The client does not report its own name: a login with few rights would be refused that at each
# connection, and refusals would fill the server's ACL LOG. redis-py 7.2 renamed the options.
NAMELESS: dict[str, None] = (
    {"driver_info": None}
    if hasattr(redis, "DriverInfo")
    else {"lib_name": None, "lib_version": None}
)
# RESP2 works alike on every server that we support. Replies stay bytes: one key that is not UTF-8
# must not stop a listener.
_COMMON: dict[str, Any] = {
    "protocol": 2,
    "decode_responses": False,
    "socket_connect_timeout": 5,
    **NAMELESS,
}
_SPEAKING_TLS: dict[Any, Any] = {
    redis.SSLConnection: TlsConnection,
    redis.asyncio.SSLConnection: AsyncTlsConnection,
}
_FOLLOWING: dict[Any, Any] = {
    redis.Connection: FollowingConnection,
    redis.asyncio.Connection: AsyncFollowing,
    TlsConnection: FollowingTls,
    AsyncTlsConnection: AsyncFollowingTls,
}
_ONCE: dict[Any, Any] = {redis.Redis: Retry, redis.asyncio.Redis: AsyncRetry}
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")

# A producer outlasts a short break: every script recognizes a resend by its nonce. For the cost
# of a server that hangs, see docs/explanation/guarantees.md.
_PRODUCER_RETRIES = 3
# Where another server may become the primary, all of the time is used: a failover takes seconds.
_FOLLOWING_RETRIES = 12
# So many of its calls are on their way at once, each on a connection, and others wait for one of
# these, up to `timeout` seconds.
_PRODUCER: dict[str, Any] = {
    "socket_timeout": 3, "socket_connect_timeout": 3, "max_connections": 100, "timeout": 20,
}  # fmt: skip
_WAITING_POOLS: dict[Any, Any] = {
    redis.Redis: redis.BlockingConnectionPool,
    redis.asyncio.Redis: redis.asyncio.BlockingConnectionPool,
    OverlappingClient: redis.BlockingConnectionPool,
    AsyncOverlappingClient: redis.asyncio.BlockingConnectionPool,
}
# A listener has as many as its partitions need: since version 8, redis-py refuses more than 100.
_LISTENER: dict[str, Any] = {"max_connections": 2**31}
_PROBE_PATIENCE = 2.0
_SENTINEL_PATIENCE = 1.0
"""Seconds that one sentinel, or a server that is asked for its role, has to answer."""
_FAIL_FAST = _PRODUCER | {"socket_timeout": 2, "socket_connect_timeout": 2}
"""How long a node of a cluster has to answer what others can answer without it."""
_ASKING: dict[str, Any] = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
"""How long a node of a cluster has to answer who serves what."""


def producer_client(url: str, prefix: str = "") -> redis.Redis:
    """A client that sends a command again when the connection breaks.

    In a cluster, commands that concern no key go to the node that serves the slot of `prefix`, or
    its first partition.
    """
    if cluster := cluster_of(url):
        router = ClusterRouter(cluster, home=_home_of(prefix), patience=LAST_ATTEMPT)
        fail_fast = _cluster_client(
            url, ClusterRouter(cluster, home=_home_of(prefix), patience=0), _FAIL_FAST
        )
        return _cluster_client(url, router, _PRODUCER, fail_fast)
    retries, errors = _repeats(url)
    retry = TimelyRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), retries)
    return _checked(url, OverlappingClient, retry=retry, retry_on_error=errors, **_PRODUCER)


def async_producer_client(url: str, prefix: str = "") -> redis.asyncio.Redis:
    """The same, to be awaited."""
    if cluster := cluster_of(url):
        router = ClusterRouter(cluster, home=_home_of(prefix), patience=LAST_ATTEMPT)
        fail_fast = _async_cluster_client(
            url, ClusterRouter(cluster, home=_home_of(prefix), patience=0), _FAIL_FAST
        )
        return _async_cluster_client(url, router, _PRODUCER, fail_fast)
    retries, errors = _repeats(url)
    retry = AsyncTimelyRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), retries)
    return _checked(url, AsyncOverlappingClient, retry=retry, retry_on_error=errors, **_PRODUCER)


def listener_client(
    url: str, *, socket_timeout: float, place: Endpoint | None = None
) -> redis.asyncio.Redis:
    """A client that never repeats anything by itself: a listener must know of every break.

    `place` is where its connections lead, if the URL names sentinels.
    """
    retry = AsyncRetry(NoBackoff(), 0)
    return _checked(
        url, DirectClient, place, retry=retry, socket_timeout=socket_timeout, **_LISTENER
    )


def heartbeat_client(
    url: str, *, socket_timeout: float, place: Endpoint | None = None
) -> redis.Redis:
    """The same for the heartbeat thread."""
    retry = Retry(NoBackoff(), 0)
    return _checked(
        url, redis.Redis, place, retry=retry, socket_timeout=socket_timeout, **_LISTENER
    )


def probe_client(url: str, prefix: str = "") -> redis.Redis:
    """The same for a command that must return soon, even if the server hangs."""
    times: dict[str, Any] = {"socket_timeout": _PROBE_PATIENCE}
    if cluster := cluster_of(url):
        return _cluster_client(
            url, ClusterRouter(cluster, home=_home_of(prefix), patience=0), times
        )
    return _checked(url, redis.Redis, retry=Retry(NoBackoff(), 0), **times)


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
    named = read_cluster_url(url)
    if named is None:
        return None
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


def primary_known_to(client: redis.Redis | redis.asyncio.Redis) -> str | None:
    """The address of a client's connections, if sentinels named it and it has connected."""
    place: Endpoint | None = client.connection_pool.connection_kwargs.get("place")
    return None if place is None or place.known is None else str(place.known)


def server_of(client: redis.Redis | redis.asyncio.Redis) -> str:
    """Which server a client's connections lead to: `host:port`, or the path of a socket."""
    options = client.get_connection_kwargs()
    plain = options.get("path") or str(Address(options.get("host", ""), options.get("port", 6379)))
    return primary_known_to(client) or str(plain)


def shown_server(url: str, client: redis.Redis | redis.asyncio.Redis) -> str:
    """The server for people to read: the URL without passwords, and the primary if it is one."""
    primary = primary_known_to(client)
    return f"{safe_url(url)} (primary {primary})" if primary else safe_url(url)


def check_client(client: object, kind: type[redis.Redis] | type[redis.asyncio.Redis]) -> None:
    """Raise InvalidSetting for a caller's client that a bridge of this colour cannot use."""
    wanted = "redis.Redis" if kind is redis.Redis else "redis.asyncio.Redis"
    if isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster):
        hosts = ",".join(_startup_nodes(client))
        other = "AsyncBridge" if kind is redis.asyncio.Redis else "Bridge"
        reason = f"it is a cluster's; give the URL instead: {other}('redis+cluster://{hosts}')"
    elif not isinstance(client, redis.Redis | redis.asyncio.Redis):
        reason = f"give a {wanted}, not a {type(client).__name__}"
    elif not isinstance(client, kind):
        other = "AsyncBridge" if kind is redis.Redis else "Bridge"
        reason = f"it is one for {other}; give a {wanted}"
    elif client.get_encoder().decode_responses:
        reason = (
            "it decodes replies, and expirebridge reads bytes; make it with decode_responses=False"
        )
    else:
        return
    raise InvalidSetting(f"client: {reason}")


def _startup_nodes(client: redis.RedisCluster | redis.asyncio.RedisCluster) -> list[str]:
    nodes: list[Any] = list(client.nodes_manager.startup_nodes.values())
    return [str(Address(node.host, node.port)) for node in nodes][:3]


def _repeats(url: str) -> tuple[int, list[type[Exception]]]:
    """How often a producer repeats a command, and after which errors: redis-py 5 repeats nothing
    without them. What a demoted primary refuses is sent to its successor.
    """
    check_url(url)
    broken: list[type[Exception]] = [redis.ConnectionError, redis.TimeoutError]
    if read_sentinel_url(url):
        return _FOLLOWING_RETRIES, [*broken, redis.ReadOnlyError]
    return _PRODUCER_RETRIES, broken


def _primary(named: SentinelUrl, url: str) -> Primary:
    def doubt(address: Address) -> str:
        """Why this server cannot be the primary, or nothing."""
        options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": _SENTINEL_PATIENCE}
        with _made(named.primary_url, redis.Redis, url, **options) as client:
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
        named, [_made(each, redis.Redis, url, **options) for each in named.sentinel_urls]
    )


def _checked(url: str, kind: type[C], place: Endpoint | None = None, **options: Any) -> C:
    check_url(url)
    sentinels, cluster = read_sentinel_url(url), read_cluster_url(url)
    if sentinels is not None:
        client = _made(sentinels.primary_url, kind, url, **options)
        place = place or _primary(sentinels, url)
    elif cluster is not None:
        client = _made(cluster.node_url, kind, url, **options)
    else:
        return _made(plain_url(url), kind, url, **options)
    pool = client.connection_pool
    pool.connection_class = _FOLLOWING[pool.connection_class]
    pool.connection_kwargs["place"] = place
    return client


def _home_of(prefix: str) -> int:
    """The slot of all names of a prefix, or of those of its first partition."""
    if keys.slot_of(prefix):
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
        client = _made(named.node_url, kind, url, retry=_ONCE[kind](NoBackoff(), 0), **times)
        client.connection_pool.connection_kwargs |= node._asdict()
        return client

    make(Address("", 0))  # sends nothing, and refuses a bad URL
    return make


def _made(plain: str, kind: type[C], url: str, **options: Any) -> C:
    """A client for a URL as redis-py reads it; `url` is what the user gave."""
    parts = urlsplit(plain)
    if parts.scheme == "rediss":
        # redis-py 5 would take the certificate of any host.
        options["ssl_check_hostname"] = ("ssl_cert_reqs", "none") not in parse_qsl(parts.query)
    try:
        client = _with_pool(plain, kind, _COMMON | options)
        pool = client.connection_pool
        pool.connection_class = _SPEAKING_TLS.get(pool.connection_class, pool.connection_class)
        pool.connection_class(**pool.connection_kwargs)  # looks at its options, and sends nothing
    except (ValueError, TypeError, AttributeError, redis.RedisError) as error:
        reason = _reason(url, str(error))
    else:
        return client
    raise refused(url, reason)


def _with_pool(plain: str, kind: type[C], options: dict[str, Any]) -> C:
    """A client; with a `timeout` a producer's, whose calls wait for a connection."""
    if "timeout" in options:
        pool = _WAITING_POOLS[kind].from_url(plain, **options)
        client: C = kind.from_pool(pool)
        return client
    return kind.from_url(plain, **options)


def _reason(url: str, text: str) -> str:
    """The reason for redis-py's refusal of a URL's options."""
    if unknown := _UNKNOWN.search(text):
        return unknown_option(url, unknown[1])
    return f"an option has a value that it cannot have: {text}"
