"""Does around each attempt what Django does around each request; a listener has none.

Without it, a connection that the database has closed would fail each later attempt in its thread,
and with DEBUG the queries of all attempts would be kept.
"""

import functools
import inspect
from collections.abc import Awaitable, Sequence
from contextvars import ContextVar
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.cache import caches
from django.db import close_old_connections, connections, reset_queries
from django.db.backends.signals import connection_created

from expirebridge.task.framework import AnyFunction

_opened: ContextVar[list[Any] | None] = ContextVar("expirebridge_opened", default=None)
"""The connections that the async handler has opened which runs in this context."""


def surround(function: AnyFunction, /, *, is_async: bool) -> AnyFunction:
    """Call a handler with fresh connections, and close those that need not stay open after it."""
    if is_async:

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await _in_own_thread(function(*args, **kwargs))

    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            _refresh()
            left = list[str]()
            try:
                result = function(*args, **kwargs)
            finally:
                left += _drop_left_open()
                close_old_connections()
                caches.close_all()
            _refuse(left)
            # A plain wrapper around an async function returns its coroutine.
            return _in_own_thread(result) if inspect.isawaitable(result) else result

    return call


def _refresh() -> None:
    """Close connections of this thread that are broken or old; let others be checked when used.

    Django leaves those in an atomic block alone, such as those of a TestCase.
    """
    reset_queries()
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        # Handlers may run hours apart, so also without CONN_HEALTH_CHECKS.
        connection.health_check_enabled = True


def _drop_left_open() -> list[str]:
    """Close connections in whose atomic blocks the handler has ended; returns their aliases.

    Nobody can leave such a block any more. Django never closes them, and they would swallow what
    later attempts in this thread write.
    """
    left = [one for one in connections.all(initialized_only=True) if one.in_atomic_block]
    for connection in left:
        connection.close()
        del connections[connection.alias]
    return [connection.alias for connection in left]


def _refuse(left: Sequence[str]) -> None:
    """Raise RuntimeError if a handler that succeeds has left transactions open."""
    if left:
        raise RuntimeError(
            f"the handler left a transaction of the database {', '.join(map(repr, left))} open, "
            "and its changes are rolled back: use `with transaction.atomic():`"
        )


async def _in_own_thread(handler: Awaitable[Any]) -> Any:
    """Await a handler that has a thread of its own for what is not async, if it needs one.

    It is so in each request of Django's ASGI handler. In a thread that all share, one handler would
    close another's connection between two of its queries, or wait for them.
    """
    opened: list[Any] = []
    left: list[str] = []
    token = _opened.set(opened)
    try:
        async with ThreadSensitiveContext():
            try:
                result = await handler
            finally:
                if opened or caches.all(initialized_only=True):  # the thread ends now
                    left += await sync_to_async(_close)(opened)
    finally:
        _opened.reset(token)
    _refuse(left)
    return result


def _close(opened: list[Any]) -> list[str]:
    """Close connections and caches; returns the aliases of those in an atomic block."""
    left = []
    for connection in connections.all(initialized_only=True):
        if connection in opened:
            left += [connection.alias] if connection.in_atomic_block else []
            connection.close()
    caches.close_all()
    return left


def _note(*, connection: Any, **_: Any) -> None:
    opened = _opened.get()
    if opened is not None:
        opened.append(connection)


connection_created.connect(_note, dispatch_uid="expirebridge.database_connections")
