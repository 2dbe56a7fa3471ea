"""Keeps Django's database connections usable for handlers, as Django does for requests.

Django does this at the begin and end of each request, and a listener has none: without it, a
connection that the database has closed would fail each later attempt in its thread.
"""

import functools
import inspect
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import close_old_connections, connections
from django.db.backends.signals import connection_created

from expirebridge.model.project import AnyFunction

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
            try:
                result = function(*args, **kwargs)
            finally:
                close_old_connections()
            # A plain wrapper around an async function returns its coroutine.
            return _in_own_thread(result) if inspect.isawaitable(result) else result

    return call


def _refresh() -> None:
    """Close connections of this thread that are broken or old; let others be checked when used.

    Django leaves those in an atomic block alone, such as those of a TestCase.
    """
    close_old_connections()
    for connection in connections.all(initialized_only=True):
        # Handlers may run hours apart, so also without CONN_HEALTH_CHECKS.
        connection.health_check_enabled = True


async def _in_own_thread(handler: Awaitable[Any]) -> Any:
    """Await a handler that has a thread of its own for what is not async, if it needs one.

    It is so in each request of Django's ASGI handler. In a thread that all share, one handler would
    close another's connection between two of its queries, or wait for them.
    """
    opened: list[Any] = []
    token = _opened.set(opened)
    try:
        async with ThreadSensitiveContext():
            try:
                return await handler
            finally:
                if opened:  # the thread ends now
                    await sync_to_async(_close)(opened)
    finally:
        _opened.reset(token)


def _close(opened: list[Any]) -> None:
    for connection in connections.all(initialized_only=True):
        if connection in opened:
            connection.close()


def _note(*, connection: Any, **_: Any) -> None:
    opened = _opened.get()
    if opened is not None:
        opened.append(connection)


connection_created.connect(_note, dispatch_uid="expirebridge.database_connections")
