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
    """A blocking TLS connection that reports a server without TLS."""

    _is_unused = False
    """True if nothing was sent since it was opened, so that no reply can be left unread."""

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
        """True if there is data to read; session tickets do not count."""
        return not self._is_unused and super().can_read(timeout)


class AsyncTlsConnection(redis.asyncio.SSLConnection):
    """An asyncio TLS connection that reports a server without TLS."""

    async def _connect(self) -> None:
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            await asyncio.to_thread(_refuse_plain_text, self.host, self.port)
            raise


def is_plain_text(error: BaseException) -> bool:
    """True if the server speaks plain text; the async client wraps the error."""
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


# The remedy if there is no connection with TLS, or one without TLS is refused.
#
# The cause is in the text alone: redis-py, the sentinels and the nodes of a cluster pass on no
# more.

_FILES = "ssl_certfile=/path/client.pem&ssl_keyfile=/path/client.key"
_OF_SSL = "_ssl.c"
"""The text that every error of Python's ssl has."""
_REMEDIES = {
    "certificate has expired": (
        "renew the server's certificate, or set this machine's clock if that is wrong"
    ),
    "certificate is not yet valid": (
        "set this machine's clock, or the one of the machine that issues certificates"
    ),
    "mismatch, certificate is not valid for": (
        "write a name that the server's certificate is for in the URL, and let sentinels and nodes "
        "of a cluster announce such a name; or have a certificate issued for this one"
    ),
    "CERTIFICATE_VERIFY_FAILED": (
        "name the file with its CA's certificate in the URL: "
        "rediss://host:6379/1?ssl_ca_certs=/path/ca.pem"
    ),
    "NO_CERTIFICATE_OR_CRL_FOUND": "the file that ssl_ca_certs= names holds no certificate",
    "KEY_VALUES_MISMATCH": "ssl_keyfile= names the key of another certificate than ssl_certfile=",
    "PEM lib": (
        "ssl_certfile= must name a file with a certificate in PEM form, and ssl_keyfile= names the "
        "file with its key"
    ),
    "CERTIFICATE_REQUIRED": f"the server asks clients for a certificate: name yours, {_FILES}",
    "ALERT_HANDSHAKE_FAILURE": (
        f"if the server asks clients for a certificate, name yours: {_FILES}; else its log says why"
    ),
    "ALERT_UNKNOWN_CA": (
        "the server refuses the client's certificate: name one in ssl_certfile= whose CA is in the "
        "server's tls-ca-cert-file"
    ),
    "EOF occurred": (
        f"is it running? If it asks clients for a certificate, name one whose CA it knows: {_FILES}"
    ),
    "answers in plain text": (
        "begin the URL with redis in place of rediss: redis://, redis+sentinel:// or "
        "redis+cluster://; or name the port on which it speaks TLS"
    ),
    **dict.fromkeys(
        ("reset by peer", "Connection closed by server"),  # so end connections that it cannot read
        "if the server speaks TLS there, begin the URL with rediss in place of redis: rediss://, "
        "rediss+sentinel:// or rediss+cluster://",
    ),
}
"""The remedies, by words of the error; the first match counts."""


def is_of_tls(text: str) -> bool:
    """True for an error of TLS."""
    return _OF_SSL in text


def advice(text: str) -> str:
    """The remedy for the error of a connection, to be written behind it; or empty."""
    remedy = next((remedy for words, remedy in _REMEDIES.items() if words in text), "")
    return f"; {remedy}" if remedy else ""
