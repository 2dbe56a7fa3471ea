"""Clients that begin a request and never end it, or never read its answer."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

from tests.kit.patience import PATIENCE


@contextmanager
def half_open(url: str, count: int, sent: bytes = b"GET / HT") -> Iterator[list[socket.socket]]:
    """So many connections, on each of which this was sent; they read nothing."""
    address = urlsplit(url)
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = socket.create_connection((address.hostname, address.port or 80), PATIENCE)
            clients.append(stack.enter_context(client))
            client.sendall(sent)
        yield clients


def until_closed(client: socket.socket) -> None:
    """Wait until the other side has closed this connection."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:  # closed before it had read all
        pass
