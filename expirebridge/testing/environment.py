"""The database of a test: empty when it is opened, and when it is closed."""

import asyncio
import contextvars
import os
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import redis

from expirebridge.bridge import forget_default_bridge, redirect_bridges
from expirebridge.checks import EVENT_FLAGS, check_server, events_are_on, refuse_unsuitable
from expirebridge.connection import clients
from expirebridge.connection.urls import safe_url
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.errors import ServerUnsuitable
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.testing.errors import TravelError

_URL = "EXPIREBRIDGE_URL"
_TIMEOUT = 10.0
_open: set[str] = set()
"""The URLs of those in use."""


@contextmanager
def empty_database(settings: Settings, *, is_ours: bool) -> Iterator[Store]:
    """Open the settings' database, empty, for a block; a server that is not ours is looked at.

    Raises TravelError if another test uses it, or it holds what no test left there, and
    ServerUnsuitable if the server sends no key events.
    """
    url = settings.url
    if url in _open:
        raise TravelError(f"another Clock uses {safe_url(url)}: end it first")
    client = clients.heartbeat_client(url, socket_timeout=_TIMEOUT)
    store = Store(client, prefix=settings.prefix)
    mark = f"{settings.prefix}:offset"
    _open.add(url)
    try:
        if not is_ours:
            _check(store, client, mark)
        client.flushdb()
        client.set(mark, 0)
        yield store
        client.flushdb()
    finally:
        _open.discard(url)
        store.close()


def _check(store: Store, client: redis.Redis, mark: str) -> None:
    findings = store.run(check_server(store.database))
    refuse_unsuitable(findings)
    if not events_are_on(findings):
        raise ServerUnsuitable(
            "a test notices plain EXPIRE and DEL by key events, and the server sends none: "
            f"CONFIG SET notify-keyspace-events {EVENT_FLAGS}"
        )
    if client.dbsize() and not client.exists(mark):
        raise TravelError(
            f"database {store.database.number} is not empty, and was not used by a test: it would "
            "be emptied. Name another one, or FLUSHDB it"
        )


@contextmanager
def led_to(url: str) -> Iterator[None]:
    """While the block runs, the program finds the database of this URL.

    So do the bridges that were made before with what the environment said then.
    """
    before = os.environ.get(_URL)
    _set_url(url)
    try:
        with redirect_bridges(url):
            yield
    finally:
        _set_url(before)


def _set_url(url: str | None) -> None:
    if url is None:
        os.environ.pop(_URL, None)
    else:
        os.environ[_URL] = url
    forget_default_bridge()


# The server of tests: an embedded one that ends with the process that started it.

_OPTIONS = {"appendonly": "no"}
"""Its data is for one run."""


class TestServer:
    """An embedded server, started when its URL is first asked for."""

    __test__ = False  # pytest collects classes of such names

    def __init__(self) -> None:
        self._server: EmbeddedServer | None = None
        self._at_exit: weakref.finalize[..., TestServer] | None = None

    @property
    def url(self) -> str:
        """The URL of its database 1. Raises EmbeddedServerError if it does not start."""
        if self._server is None:
            self._start()
        assert self._server is not None  # noqa: S101 - for the type checker
        return self._server.url

    def _start(self) -> None:
        server = EmbeddedServer(options=_OPTIONS, ends_with_us=True)
        server.__enter__()
        self._server = server
        self._at_exit = weakref.finalize(self, _end, server, os.getpid())

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._at_exit is not None:
            self._at_exit()
        self._server = None


def _end(server: EmbeddedServer, owner: int) -> None:
    if os.getpid() == owner:  # not in a process that a test forked
        server.__exit__(None, None, None)


SHARED = TestServer()
"""The one of this process: all tests in it use it, one after the other."""


# The event loop of a test that has none.

T = TypeVar("T")

INSIDE = "time cannot be moved while a handler runs"


@contextmanager
def unseen_loop() -> Iterator[None]:
    """For a block that awaits nothing, let no event loop seem to run: some code refuses to wait."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


def waiting_thread() -> Callable[[Callable[[], T]], Callable[[], Coroutine[Any, Any, T]]] | None:
    """What makes a plain function one to await, called in the thread that waits for this loop.

    None if none waits: only asgiref's `async_to_sync`, which Django's tests use, has such a thread.
    """
    asgiref: Any = sys.modules.get("asgiref.sync")
    if asgiref is None or getattr(asgiref.AsyncToSync.executors, "current", None) is None:
        return None
    made: Callable[[Callable[[], T]], Callable[[], Coroutine[Any, Any, T]]] = asgiref.sync_to_async
    return made


class OwnLoop:
    """Runs coroutines one after the other in one event loop, which is closed at the end."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._runs = False

    def run(self, coroutine: Coroutine[Any, Any, T], *, instead: str) -> T:
        """Run a coroutine to its end.

        Raises TravelError inside of a running event loop, and names what is to be called `instead`;
        and while it runs one.
        """
        reason = ""
        if self._runs:
            reason = INSIDE
        elif asyncio._get_running_loop() is not None:
            reason = f"an event loop is running here: await {instead}(...)"
        if reason:
            coroutine.close()
            raise TravelError(reason)
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._runs = True
        try:
            return self._runner.run(coroutine, context=contextvars.copy_context())
        finally:
            self._runs = False

    def close(self) -> None:
        """Close the event loop."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
