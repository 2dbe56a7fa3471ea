"""Follows the primary after a failover."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from redis.exceptions import RedisError

from expirebridge.connection.cluster import SlotPrimary
from expirebridge.connection.sentinel import PinnedPrimary, Primary
from expirebridge.connection.urls import Address
from expirebridge.hooks import FailedOver, Hooks
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.server.connections import ServerConnections
from expirebridge.listener.session import SessionOwner
from expirebridge.listener.wakeups import ResyncRequests
from expirebridge.store.errors import translated
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

ASK_EVERY = 1.0
ASK_SOON = 0.2
"""Seconds between questions, and while the server fails."""


class FollowingServer(SessionOwner, Protocol):
    """A server whose connections can lead to another primary."""

    connections: ServerConnections
    resyncs: ResyncRequests

    def renew(self, pinned: PinnedPrimary) -> ServerConnections:
        """Connect to another primary; return the connections to the former one."""


class FailoverMonitor(PeriodicRole):
    """Watches for a new primary, and moves the server's connections to it.

    All consumers use the new connections before anything else is sent. An answer of the old primary
    that comes later is ignored, and its call is sent again to the new one.
    """

    role = "the question where the primary is"
    retry_pause = ASK_SOON

    def __init__(
        self, primary: Primary | SlotPrimary, node: FollowingServer, *, hooks: Hooks
    ) -> None:
        super().__init__(node)
        self._primary = primary
        self._node = node
        self._left: ServerConnections | None = None
        """The previous connections: a command may still be sent there, over a new connection."""
        self._hooks = hooks
        # Of its own: handlers may have taken all threads of the event loop's.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="expirebridge-sentinels")

    async def wait(self, pause: float) -> None:
        """Wait for the next question, which comes sooner while the server fails any role."""
        await super().wait(ASK_SOON if self._node.health.lasts else max(pause, ASK_EVERY))

    async def run_once(self) -> float:
        """Ask, and follow; returns the seconds to pause. Raises a ServerError."""
        address = await self._ask()
        if self._is_news(address):
            await self.follow(address)
        return ASK_EVERY

    async def _ask(self) -> Address:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, self._primary.find)
        except RedisError as error:
            raise translated(error) from error

    def _is_news(self, address: Address) -> bool:
        pinned = self._node.connections.pinned
        return pinned is not None and pinned.known != address

    async def follow(self, address: Address) -> None:
        """Change to the primary at this address."""
        old = self._node.renew(PinnedPrimary(self._primary, address))
        self._node.resyncs.request("another server is the primary")
        before = str(old.pinned.known) if old.pinned else ""
        logger.warning(
            "the primary is now %s; it was %s", address, before,
            extra=event("failed over", server=str(address), before=before),
        )  # fmt: skip
        self._hooks.emit(FailedOver(server=str(address), before=before))
        await old.cut()
        await self._close_left()
        self._left = old

    async def close(self) -> None:
        """Ask no more, and close the connections to the former primary."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._close_left()

    async def _close_left(self) -> None:
        if self._left is not None:
            await self._left.close()
