"""Small objects through which the roles of a listener notify each other."""

import asyncio
from collections.abc import Sequence
from typing import Any

# Requests to scan a server again, after events may have been missed.


class ResyncRequests:
    """Requests for a full scan of a server; the scanner waits for them."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._noticed = asyncio.Event()

    def request(self, reason: str) -> None:
        """Request a scan soon, with a reason: events may have been missed."""
        self._reasons.append(reason)
        self._noticed.set()

    def look_again(self) -> None:
        """Request a scan soon, for a reason that was reported before and lasts."""
        self._noticed.set()

    async def take(self) -> list[str]:
        """Wait until a scan is wanted; the reasons are new ones, each once."""
        await self._noticed.wait()
        self._noticed.clear()
        reasons, self._reasons = self._reasons, []
        return list(dict.fromkeys(reasons))


# The demand for keyspace events of a server.


class EventDemand:
    """Tracks whether any partition needs keyspace events; the subscriber waits for changes."""

    def __init__(self) -> None:
        self._wanted_by: set[object] = set()
        self._changed = asyncio.Event()

    @property
    def open(self) -> bool:
        """True while any partition needs key events."""
        return bool(self._wanted_by)

    def want(self, who: object, wants: bool) -> None:
        """Set whether this consumer needs key events from now on."""
        before = self.open
        (self._wanted_by.add if wants else self._wanted_by.discard)(who)
        if self.open != before:
            self._changed.set()

    def look_again(self) -> None:
        """Have the subscriber compare its channels: the server has other partitions now."""
        self._changed.set()

    async def change(self) -> None:
        """Wait until the demand or the partitions of the server change."""
        await self._changed.wait()
        self._changed.clear()


# The connections made to a server.


class ConnectionCounter:
    """Counts the connections that a client has made.

    A new one may lead to a server that has lost something, or to another server.
    """

    def __init__(self) -> None:
        self.made = 0

    def watch(self, client: Any) -> None:
        """Count the connections of this client of redis-py, which has made none yet."""
        client.connection_pool.connection_kwargs["redis_connect_func"] = self._connected

    async def _connected(self, connection: Any) -> None:
        """Called by redis-py instead of the connection's own handshake."""
        self.made += 1
        await connection.on_connect()


# The circuit breaker of a server.

PATIENCE = 0.25
"""Seconds for which a claim that is not answered keeps its places. A server that works takes
milliseconds; the other nodes' tasks are late by this once if a node hangs."""


class Responsiveness:
    """Circuit breaker of one server among several: claims wait while it does not answer.

    While it is lost, the consumers of its partitions acquire no capacity and send it a PING.
    """

    def __init__(self) -> None:
        self.lost = False


# Cancelling asyncio tasks for good.


async def cancel_roles(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel tasks until they have ended."""
    waiting = set(tasks)
    while waiting:
        # Once is not always enough: before Python 3.12 asyncio.wait_for, which redis-py uses, loses
        # a cancellation that arrives together with its result.
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=0.1)


# The end of a listener.


class StopRequest:
    """Request to stop the listener, and its cause: a caller, or a stuck handler."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self.asked = False
        """True once a caller has asked the listener to stop."""
        self.stuck: str | None = None
        """The first function that did not end a grace time after its timeout, if one did not."""

    @property
    def begun(self) -> bool:
        """True once the listener must end."""
        return self._begun.is_set()

    def ask(self) -> None:
        """Have the listener stop."""
        self.asked = True
        self._begun.set()

    def give_up(self, func: str) -> None:
        """Have it end because a handler does not: only a new process frees its place."""
        self.stuck = self.stuck or func
        self._begun.set()

    async def wait(self) -> None:
        """Wait until the listener is to end."""
        await self._begun.wait()
