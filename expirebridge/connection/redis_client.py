"""Makes one client of redis-py from a URL, with the options that expirebridge needs."""

import re
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import redis
import redis.asyncio

from expirebridge.connection.connections import AsyncOverlappingClient, OverlappingClient
from expirebridge.connection.urls import refused, unknown_option
from expirebridge.store.tls import AsyncTlsConnection, TlsConnection

C = TypeVar("C", redis.Redis, redis.asyncio.Redis)

# The client does not report its own name: a login with few rights would be refused that at each
# connection, and refusals would fill the server's ACL LOG. redis-py 7.2 renamed the options.
NAMELESS: dict[str, None] = (
    {"driver_info": None}
    if hasattr(redis, "DriverInfo")
    else {"lib_name": None, "lib_version": None}
)
# RESP2 works alike on every server that we support, and what reads the replies of plain commands
# knows no other shape: a URL that asks for RESP3 gets RESP2, too. Replies stay bytes: one key that
# is not UTF-8 must not stop a listener.
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
_PROTOCOL = re.compile(r"(?<=[?&])protocol=[^&]*(?:&|$)")
_UNKNOWN = r"unexpected keyword argument '(\w+)'"
_WAITING_POOLS: dict[Any, Any] = {
    redis.Redis: redis.BlockingConnectionPool,
    redis.asyncio.Redis: redis.asyncio.BlockingConnectionPool,
    OverlappingClient: redis.BlockingConnectionPool,
    AsyncOverlappingClient: redis.asyncio.BlockingConnectionPool,
}


def made(plain: str, kind: type[C], url: str, **options: Any) -> C:
    """A client for a URL as redis-py reads it; `url` is what the user gave."""
    plain = _PROTOCOL.sub("", plain)
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
    if unknown := re.search(_UNKNOWN, text):
        return unknown_option(url, unknown[1])
    return f"an option has a value that it cannot have: {text}"
