"""Makes redis clients as expirebridge needs them."""

import re
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.retry import Retry

from expirebridge.errors import InvalidSetting

C = TypeVar("C", redis.Redis, redis.asyncio.Redis)

# RESP2 works alike on every server that we support. Replies stay bytes: one key that is not UTF-8
# must not stop a listener. The client does not tell its own name (driver_info): a login with few
# rights would be refused that at each connection, and refusals would fill the server's ACL LOG.
_COMMON: dict[str, Any] = {
    "protocol": 2,
    "decode_responses": False,
    "socket_connect_timeout": 5,
    "driver_info": None,
}
_TLS_FILES = {"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"}
_SECRET = re.compile(r"(?<=[?&])((?:ssl_)?password)=[^&]*")

# A producer outlasts a short break: every script knows a resend by its nonce.
_PRODUCER_RETRIES = 3
_PROBE_PATIENCE = 2.0


def producer_client(url: str) -> redis.Redis:
    """A client that sends a command again when the connection breaks."""
    retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), _PRODUCER_RETRIES)
    return _checked(url, redis.Redis, retry=retry)


def async_producer_client(url: str) -> redis.asyncio.Redis:
    """The same, to be awaited."""
    retry = AsyncRetry(ExponentialWithJitterBackoff(base=0.05, cap=1.0), _PRODUCER_RETRIES)
    return _checked(url, redis.asyncio.Redis, retry=retry)


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


def _checked(url: str, kind: type[C], **options: Any) -> C:
    path, query = urlsplit(url)[2:4]
    if url.startswith(("redis://", "rediss://")) and path.strip("/") and not path[1:].isdigit():
        raise InvalidSetting(f"url={safe_url(url)!r}: {path[1:]!r} is not a database's number")
    for name, value in parse_qsl(query):
        if name in _TLS_FILES and not Path(value).exists():
            raise InvalidSetting(f"url={safe_url(url)!r}: {name}: there is no file {value}")
    try:
        return kind.from_url(url, **_COMMON, **options)
    except ValueError as error:
        raise InvalidSetting(f"url={safe_url(url)!r}: {error}") from error


def safe_url(url: str) -> str:
    """The URL without its passwords, for people to read."""
    url = _SECRET.sub(r"\1=***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, _, login = head.partition("://")
    user = login.partition(":")[0]
    return f"{scheme}://{user}:***@{tail}"
