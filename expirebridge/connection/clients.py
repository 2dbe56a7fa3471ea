"""Makes redis clients as expirebridge needs them, for every kind of URL."""

from typing import TYPE_CHECKING, Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.retry import Retry

from expirebridge.connection.connections import (
    AsyncOverlappingClient,
    AsyncTimelyRetry,
    DirectClient,
    OverlappingClient,
    TimelyRetry,
)
from expirebridge.connection.redis_client import C, made
from expirebridge.connection.urls import (
    Address,
    check_url,
    plain_url,
    read_cluster_url,
    read_sentinel_url,
    safe_url,
)
from expirebridge.errors import InvalidSetting

if TYPE_CHECKING:
    from expirebridge.connection.sentinel import Endpoint

# Most servers are at their URL. The module that finds others is imported when a URL asks for it.

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
# A listener has as many as its partitions need: since version 8, redis-py refuses more than 100.
_LISTENER: dict[str, Any] = {"max_connections": 2**31}
_PROBE_PATIENCE = 2.0


def producer_client(url: str, prefix: str = "") -> redis.Redis:
    """A client that sends a command again when the connection breaks.

    In a cluster, commands that concern no key go to the node that serves the slot of `prefix`, or
    its first partition.
    """
    if _is_of_cluster(url):
        from expirebridge.connection.several_servers import cluster_producer  # noqa: PLC0415 - see above

        return cluster_producer(url, prefix, _PRODUCER)
    retries, errors = _repeats(url)
    retry = TimelyRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), retries)
    return _checked(url, OverlappingClient, retry=retry, retry_on_error=errors, **_PRODUCER)


def async_producer_client(url: str, prefix: str = "") -> redis.asyncio.Redis:
    """The same, to be awaited."""
    if _is_of_cluster(url):
        from expirebridge.connection.several_servers import async_cluster_producer  # noqa: PLC0415 - see above

        return async_cluster_producer(url, prefix, _PRODUCER)
    retries, errors = _repeats(url)
    retry = AsyncTimelyRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), retries)
    return _checked(url, AsyncOverlappingClient, retry=retry, retry_on_error=errors, **_PRODUCER)


def listener_client(
    url: str, *, socket_timeout: float, place: "Endpoint | None" = None
) -> redis.asyncio.Redis:
    """A client that never repeats anything by itself: a listener must know of every break.

    `place` is where its connections lead, if the URL names sentinels.
    """
    retry = AsyncRetry(NoBackoff(), 0)
    return _checked(
        url, DirectClient, place, retry=retry, socket_timeout=socket_timeout, **_LISTENER
    )


def heartbeat_client(
    url: str, *, socket_timeout: float, place: "Endpoint | None" = None
) -> redis.Redis:
    """The same for the heartbeat thread."""
    retry = Retry(NoBackoff(), 0)
    return _checked(
        url, redis.Redis, place, retry=retry, socket_timeout=socket_timeout, **_LISTENER
    )


def probe_client(url: str, prefix: str = "") -> redis.Redis:
    """The same for a command that must return soon, even if the server hangs."""
    times: dict[str, Any] = {"socket_timeout": _PROBE_PATIENCE}
    if _is_of_cluster(url):
        from expirebridge.connection.several_servers import cluster_probe  # noqa: PLC0415 - see above

        return cluster_probe(url, prefix, times)
    return _checked(url, redis.Redis, retry=Retry(NoBackoff(), 0), **times)


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


def _is_of_cluster(url: str) -> bool:
    check_url(url)
    return read_cluster_url(url) is not None


def _checked(url: str, kind: type[C], place: "Endpoint | None" = None, **options: Any) -> C:
    check_url(url)
    if read_sentinel_url(url) is None and read_cluster_url(url) is None:
        return made(plain_url(url), kind, url, **options)
    from expirebridge.connection.several_servers import following_client  # noqa: PLC0415 - see above

    return following_client(url, kind, place, **options)
