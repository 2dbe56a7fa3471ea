"""The server of tests: an embedded one that ends with the process that started it."""

import os
import weakref

from expirebridge.embedded.server import Server

_OPTIONS = {"appendonly": "no"}
"""Its data is for one run."""


class TestServer:
    """An embedded server, started when its URL is first asked for."""

    __test__ = False  # pytest collects classes of such names

    def __init__(self) -> None:
        self._server: Server | None = None
        self._at_exit: weakref.finalize[..., TestServer] | None = None

    @property
    def url(self) -> str:
        """The URL of its database 1. Raises EmbeddedServerError if it does not start."""
        if self._server is None:
            self._start()
        assert self._server is not None  # noqa: S101 - for the type checker
        return self._server.url

    def _start(self) -> None:
        server = Server(options=_OPTIONS, ends_with_us=True)
        server.__enter__()
        self._server = server
        self._at_exit = weakref.finalize(self, _end, server, os.getpid())

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._at_exit is not None:
            self._at_exit()
        self._server = None


def _end(server: Server, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that a test forked
        server.__exit__(None, None, None)


SHARED = TestServer()
"""The one of this process: all tests in it use it, one after the other."""
