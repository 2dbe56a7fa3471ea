"""Connections that look for their server each time they are opened.

redis-py has such connections for Sentinel, too. They ask the first sentinel that answers, which
may be the one that was cut off; do not ask the server what it is; and stay where they are until
they break. See docs/adr/0032-connections-to-one-primary.md.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.retry import Retry

from expirebridge.connection.urls import Address
from expirebridge.store.tls import AsyncTlsConnection, TlsConnection, is_plain_text

if TYPE_CHECKING:
    from expirebridge.connection.sentinel import Endpoint


class _Follows(redis.Connection):
    """A blocking connection that follows the primary."""

    _address: Address | None = None

    def __init__(self, *, place: "Endpoint", **options: Any) -> None:
        self._place = place
        super().__init__(**options)  # type: ignore[no-untyped-call]

    def _connect(self) -> socket.socket:
        self._address = address = self._place.locate()
        self.host, self.port = address
        return super()._connect()  # type: ignore[no-any-return,no-untyped-call]

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if check_health and self._address is not None:
            if self._place.is_due:
                self._place.refresh()
            if not self._place.is_at(self._address):
                self.disconnect()  # type: ignore[no-untyped-call]
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]


class _AsyncFollows(redis.asyncio.Connection):
    """An asyncio connection that follows the primary; a thread asks the sentinels."""

    _address: Address | None = None

    def __init__(self, *, place: "Endpoint", **options: Any) -> None:
        self._place = place
        super().__init__(**options)

    async def _connect(self) -> None:
        self._address = address = await asyncio.to_thread(self._place.locate)
        self.host, self.port = address
        await super()._connect()  # type: ignore[no-untyped-call]

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if check_health and self._address is not None:
            if self._place.is_due:
                await asyncio.to_thread(self._place.refresh)
            if not self._place.is_at(self._address):
                await self.disconnect(nowait=True)
        await super().send_packed_command(command, check_health)


class FollowingConnection(_Follows):
    """A blocking connection without TLS, which follows the primary."""


class FollowingTls(_Follows, TlsConnection):
    """A blocking connection with TLS, which follows the primary."""


class AsyncFollowing(_AsyncFollows):
    """An asyncio connection without TLS, which follows the primary."""


class AsyncFollowingTls(_AsyncFollows, AsyncTlsConnection):
    """An asyncio connection with TLS, which follows the primary."""


# A client that awaits its connections itself, and does nothing else around a command.
#
# redis-py's own client does much for each command that a listener does not need: locks of its
# pool, retries, metrics, and a task of asyncio to write under a timeout. Those were half of the
# time that a command took (see docs/internals/performance.md).


class DirectClient(redis.asyncio.Redis):
    """Sends a command once, on a connection of its pool, with one timeout around the exchange.

    Connections are opened, greeted, checked and closed by redis-py, each step under its own
    timeouts. One on which an exchange fails, or is cancelled, is closed, as redis-py does it.
    """

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        """Send a command and return its reply. Raises a RedisError."""
        pool = self.connection_pool
        connection = pool.get_available_connection()  # type: ignore[no-untyped-call]
        patience = connection.socket_timeout
        try:
            # Private, for redis-py has no test for a closed connection that costs no await.
            if not connection.is_connected or connection._reader.at_eof():
                await pool.ensure_connection(connection)
            # The timeout below is for writing and reading; with this one, each has its own.
            connection.socket_timeout = None
            async with asyncio.timeout(patience):
                await connection.send_command(*words)
                return await self.parse_response(connection, words[0], **options)
        except TimeoutError:
            raise redis.TimeoutError(f"no answer within {patience:g} s") from None
        finally:
            connection.socket_timeout = patience
            # Private, for the pool's `release` awaits a lock, hooks and metrics: see above.
            pool._in_use_connections.remove(connection)
            pool._available_connections.append(connection)


# Clients of producers.


class OverlappingClient(redis.Redis):
    """A client that can do something else while the server works on a command.

    This overrides redis-py's reading of a reply, since it makes `make_tasks` faster: in ten paired
    runs of 5,000 tasks by 37 %, awaited by 27 %, with hiredis by 45 and 25 %, where client and
    server have a core each. Where all cores are busy, it makes no difference.

    `execute_command` calls `meanwhile` between sending the command and reading the reply; if the
    command is sent again, it calls that again.
    """

    overlaps = True

    def parse_response(
        self,
        connection: Any,
        command_name: Any,
        meanwhile: Callable[[], object] | None = None,
        **options: Any,
    ) -> Any:
        """Read the reply to a command that was sent."""
        if meanwhile is not None:
            try:
                meanwhile()
            except BaseException:
                connection.disconnect()  # its reply was not read
                raise
        return super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]


class AsyncOverlappingClient(redis.asyncio.Redis):
    """The asyncio `OverlappingClient`."""

    overlaps = True

    async def parse_response(
        self,
        connection: Any,
        command_name: Any,
        meanwhile: Callable[[], object] | None = None,
        **options: Any,
    ) -> Any:
        """Read the reply to a command that was sent."""
        if meanwhile is not None:
            try:
                meanwhile()
            except BaseException:
                await connection.disconnect(nowait=True)  # its reply was not read
                raise
        return await super().parse_response(connection, command_name, **options)


# How producers repeat a command that failed.

T = TypeVar("T")

LAST_ATTEMPT = 5.0
"""Seconds after which a producer begins no other attempt."""


class TimelyRetry(Retry):
    """A retry policy that stops at errors that a retry cannot fix, and after `LAST_ATTEMPT`."""

    def call_with_retry(
        self, do: Callable[[], T], fail: Callable[..., Any], *options: Any, **named: Any
    ) -> T:
        """Call `do` until it succeeds, or a retry cannot help."""
        helps = _helps_until(monotonic() + LAST_ATTEMPT)

        def fail_for_good(error: Exception, *count: int) -> None:
            fail(error, *count)
            if not helps(error):
                raise error

        return super().call_with_retry(do, fail_for_good, *options, **named)


class AsyncTimelyRetry(AsyncRetry):
    """The asyncio `TimelyRetry`."""

    async def call_with_retry(
        self, do: Callable[[], Awaitable[T]], fail: Callable[..., Any], *options: Any, **named: Any
    ) -> T:
        """Await `do` until it succeeds, or a retry cannot help."""
        helps = _helps_until(monotonic() + LAST_ATTEMPT)

        async def fail_for_good(error: Exception, *count: int) -> None:
            await fail(error, *count)
            if not helps(error):
                raise error

        return await super().call_with_retry(do, fail_for_good, *options, **named)


def _helps_until(end: float) -> Callable[[Exception], bool]:
    def helps(error: Exception) -> bool:
        is_refusal = isinstance(error, redis.AuthenticationError) or is_plain_text(error)
        return monotonic() < end and not is_refusal

    return helps
