"""Serves the metrics by HTTP: to few connections at a time, and to none for long.

They take file descriptors of the listener's process, which cannot work without any.
"""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST_CONNECTIONS = 16
"""A scrape needs one. What comes beyond these is closed at once."""
TO_ASK = 5.0
"""Seconds from the connection's beginning in which the head of the request must arrive."""
TO_ANSWER = 60.0
"""Seconds from then on in which the answer must be made, and read: no scrape takes longer."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Calls a WSGI application, each time in a thread.

    Raises OSError if the address cannot be used.
    """

    daemon_threads = True

    def __init__(self, app: Callable[..., Any], host: str, port: int) -> None:
        [(self.address_family, *_, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self._ends: dict[socket.socket, float] = {}
        """The deadline of each connection."""
        self._lock = threading.Lock()
        super().__init__((str(address[0]), port), _Request)
        self.set_app(app)

    def start(self) -> None:
        """Serve until the process ends."""
        threading.Thread(target=self.serve_forever, name="metrics", daemon=True).start()

    def give(self, connection: socket.socket, seconds: float) -> None:
        """Set the deadline of a connection to so many seconds from now."""
        with self._lock:
            self._ends[connection] = time.monotonic() + seconds

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection if there are too many."""
        with self._lock:
            is_full = len(self._ends) >= MOST_CONNECTIONS
        if is_full:
            self.shutdown_request(request)
            return
        self.give(request, TO_ASK)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Twice a second: end what lasts too long. Its thread then meets the end of the stream."""
        now = time.monotonic()
        with self._lock:
            late = [connection for connection, end in self._ends.items() if end <= now]
        for connection in late:
            with contextlib.suppress(OSError):  # it has ended itself
                connection.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, which makes room for another."""
        with self._lock:
            self._ends.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or was cut off, is no news."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Request(WSGIRequestHandler):
    server: MetricsServer

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        self.server.give(self.connection, TO_ANSWER)
        return is_whole

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape is no news."""
