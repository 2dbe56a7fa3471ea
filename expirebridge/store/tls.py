"""Connections with TLS that say so when the server speaks plain text.

Such a server takes the client's greeting for the beginning of a command, and waits for the rest of
it, while the client waits for an answer.

With TLS 1.3 a server sends session tickets after the handshake. redis-py refuses a connection with
something left to read, and since version 8, with hiredis, it looks at the socket: there the tickets
look like a reply. The first read consumes them. The awaited connections look at what is decrypted.
"""

import asyncio
import socket
from typing import Any

import redis
import redis.asyncio
from redis import exceptions

_LIMIT = 1.0
"""Seconds in which a server must answer a PING to be called one."""


class PlainText(exceptions.ConnectionError):
    """The server does not speak TLS."""


class TlsConnection(redis.SSLConnection):
    """One that waits."""

    _is_unused = False
    """Whether nothing was sent since it was opened: then there is no reply to be left unread."""

    def _connect(self) -> socket.socket:
        self._is_unused = True
        try:
            return super()._connect()  # type: ignore[no-any-return,no-untyped-call]
        except TimeoutError:
            _refuse_plain_text(self.host, self.port)
            raise

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        """Send a command; from now on there may be a reply to it."""
        super().send_packed_command(command, check_health)  # type: ignore[no-untyped-call]
        self._is_unused = False

    def can_read(self, timeout: float = 0) -> bool:
        """Whether there is something to read; session tickets are nothing."""
        return not self._is_unused and super().can_read(timeout)


class AsyncTlsConnection(redis.asyncio.SSLConnection):
    """One that is awaited."""

    async def _connect(self) -> None:
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            await asyncio.to_thread(_refuse_plain_text, self.host, self.port)
            raise


def is_plain_text(error: BaseException) -> bool:
    """Whether this is why there is no connection; the async client wraps the error."""
    return isinstance(error, PlainText) or isinstance(error.__cause__, PlainText)


def _refuse_plain_text(host: str, port: int) -> None:
    """Raise PlainText if a PING without TLS is answered as Redis does."""
    try:
        with socket.create_connection((host, port), timeout=_LIMIT) as plain:
            plain.settimeout(_LIMIT)
            plain.sendall(b"PING\r\n")
            answered = plain.recv(1) in {b"+", b"-"}
    except OSError:
        return
    if answered:
        raise PlainText(f"{host}:{port} answers in plain text")
