"""Makes redis clients as expirebridge needs them."""

import re
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.retry import Retry

from expirebridge.errors import InvalidSetting
from expirebridge.store.plain_text import AsyncTlsConnection, TlsConnection, is_plain_text
from expirebridge.store.urls import check_url, refused, unknown_option

T = TypeVar("T")
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
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")

# A producer outlasts a short break: every script knows a resend by its nonce. What a server that
# hangs may cost stands in docs/guarantees.md.
_PRODUCER_RETRIES = 3
_PRODUCER_TIMES = {"socket_timeout": 3, "socket_connect_timeout": 3}
_LAST_ATTEMPT = 5.0
"""Seconds after which a producer begins no other attempt."""
_PROBE_PATIENCE = 2.0


class _TimelyRetry(Retry):
    """Does not repeat what cannot help, nor what would come too late."""

    def call_with_retry(
        self, do: Callable[[], T], fail: Callable[..., Any], *options: Any, **named: Any
    ) -> T:
        """Call `do` until it succeeds, or there is no more to be hoped for."""
        helps = _helps_until(monotonic() + _LAST_ATTEMPT)

        def fail_for_good(error: Exception, *count: int) -> None:
            fail(error, *count)
            if not helps(error):
                raise error

        return super().call_with_retry(do, fail_for_good, *options, **named)


class _AsyncTimelyRetry(AsyncRetry):
    """The same, to be awaited."""

    async def call_with_retry(
        self, do: Callable[[], Awaitable[T]], fail: Callable[..., Any], *options: Any, **named: Any
    ) -> T:
        """Await `do` until it succeeds, or there is no more to be hoped for."""
        helps = _helps_until(monotonic() + _LAST_ATTEMPT)

        async def fail_for_good(error: Exception, *count: int) -> None:
            await fail(error, *count)
            if not helps(error):
                raise error

        return await super().call_with_retry(do, fail_for_good, *options, **named)


def _helps_until(end: float) -> Callable[[Exception], bool]:
    return lambda error: monotonic() < end and not is_plain_text(error)


def producer_client(url: str) -> redis.Redis:
    """A client that sends a command again when the connection breaks."""
    retry = _TimelyRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), _PRODUCER_RETRIES)
    return _checked(url, redis.Redis, retry=retry, retry_on_error=_broken(), **_PRODUCER_TIMES)


def async_producer_client(url: str) -> redis.asyncio.Redis:
    """The same, to be awaited."""
    retry = _AsyncTimelyRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), _PRODUCER_RETRIES)
    return _checked(
        url, redis.asyncio.Redis, retry=retry, retry_on_error=_broken(), **_PRODUCER_TIMES
    )


def listener_client(url: str, *, socket_timeout: float) -> redis.asyncio.Redis:
    """A client that never repeats anything by itself: a listener must know of every break."""
    retry = AsyncRetry(NoBackoff(), 0)
    return _checked(url, redis.asyncio.Redis, retry=retry, socket_timeout=socket_timeout)


def heartbeat_client(url: str, *, socket_timeout: float) -> redis.Redis:
    """The same for the thread that beats."""
    return _checked(url, redis.Redis, retry=Retry(NoBackoff(), 0), socket_timeout=socket_timeout)


def probe_client(url: str) -> redis.Redis:
    """The same for a command that must answer soon, whatever the server does."""
    return _checked(url, redis.Redis, retry=Retry(NoBackoff(), 0), socket_timeout=_PROBE_PATIENCE)


def check_client(client: object, kind: type[redis.Redis] | type[redis.asyncio.Redis]) -> None:
    """Raise InvalidSetting for a caller's client that a bridge of this colour cannot use."""
    wanted = "redis.Redis" if kind is redis.Redis else "redis.asyncio.Redis"
    if isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster):
        reason = f"it is a cluster's, and a database is one server's; give a {wanted}"
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


def _broken() -> list[type[Exception]]:
    """The errors after which a command is sent again: redis-py 5 repeats nothing without them."""
    return [redis.ConnectionError, redis.TimeoutError]


def _checked(url: str, kind: type[C], **options: Any) -> C:
    check_url(url)
    parts = urlsplit(url)
    if parts.scheme == "rediss":
        # redis-py 5 would take the certificate of any host.
        options["ssl_check_hostname"] = ("ssl_cert_reqs", "none") not in parse_qsl(parts.query)
    try:
        client = kind.from_url(url, **_COMMON | options)
        pool = client.connection_pool
        pool.connection_class = _SPEAKING_TLS.get(pool.connection_class, pool.connection_class)
        pool.connection_class(**pool.connection_kwargs)  # looks at its options, and sends nothing
    except (ValueError, TypeError, AttributeError, redis.RedisError) as error:
        reason = _reason(url, str(error))
    else:
        return client
    raise refused(url, reason)


def _reason(url: str, text: str) -> str:
    """What redis-py has against the options of a URL."""
    if unknown := _UNKNOWN.search(text):
        return unknown_option(url, unknown[1])
    return f"an option has a value that it cannot have: {text}"
