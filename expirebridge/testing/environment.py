"""The database of a test: empty when it is opened, and when it is closed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from expirebridge.checks import EVENT_FLAGS, check_server, events_are_on, refuse_unsuitable
from expirebridge.connection import clients
from expirebridge.connection.urls import safe_url
from expirebridge.errors import ServerUnsuitable
from expirebridge.producer.bridge import forget_default_bridge, leading_to
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
        with leading_to(url):
            yield
    finally:
        _set_url(before)


def _set_url(url: str | None) -> None:
    if url is None:
        os.environ.pop(_URL, None)
    else:
        os.environ[_URL] = url
    forget_default_bridge()
