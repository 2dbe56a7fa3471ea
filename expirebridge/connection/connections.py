"""Connections that look for their server each time they are opened.

redis-py has such connections for Sentinel, too. They ask the first sentinel that answers, which
may be the one that was cut off; do not ask the server what it is; and stay where they are until
they break. See docs/adr/0032-one-generation-per-node.md.
"""

import asyncio
import socket
from typing import Any

import redis
import redis.asyncio

from expirebridge.connection.sentinel import Place
from expirebridge.connection.urls import Address
from expirebridge.store.tls import AsyncTlsConnection, TlsConnection


class _Follows(redis.Connection):
    """One that waits."""

    _address: Address | None = None

    def __init__(self, *, place: Place, **options: Any) -> None:
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
    """One that is awaited; the sentinels are asked in a thread."""

    _address: Address | None = None

    def __init__(self, *, place: Place, **options: Any) -> None:
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


class Following(_Follows):
    """Without TLS."""


class FollowingTls(_Follows, TlsConnection):
    """With TLS."""


class AsyncFollowing(_AsyncFollows):
    """Without TLS."""


class AsyncFollowingTls(_AsyncFollows, AsyncTlsConnection):
    """With TLS."""
