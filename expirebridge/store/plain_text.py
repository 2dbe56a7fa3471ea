"""Connections with TLS that say so when the server speaks plain text.

Such a server takes the client's greeting for the beginning of a command, and waits for the rest of
it, while the client waits for an answer.
"""

import asyncio
import socket

import redis
import redis.asyncio
from redis import exceptions

_LIMIT = 1.0
"""Seconds in which a server must answer a PING to be called one."""


class PlainText(exceptions.ConnectionError):
    """The server does not speak TLS."""


class TlsConnection(redis.SSLConnection):
    """One that waits."""

    def _connect(self) -> socket.socket:
        try:
            return super()._connect()  # type: ignore[no-any-return,no-untyped-call]
        except TimeoutError:
            _refuse_plain_text(self.host, self.port)
            raise


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
