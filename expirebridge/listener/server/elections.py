"""Elects the listeners that hear the key events of each node of a cluster."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from expirebridge.errors import ServerError
from expirebridge.listener.server.server import Server
from expirebridge.task.calls import claiming, inspection

ALL_BEAT_WITHIN = 1.0
"""Seconds within which all live listeners send a heartbeat once another one has joined."""
MOST_NAMES = 1000
"""Listeners among which the subscribers of each server are elected, at most."""


class SubscriberElections:
    """Elects the subscribers of all nodes three times a lease; first within a second.

    It is made before the first heartbeat of this listener. Those elected at the start may have been
    killed: then they have sent no heartbeat since.
    """

    def __init__(self, nodes: Mapping[Any, Server], lease: float) -> None:
        self._nodes = nodes
        self._lease = lease
        self._joined = time.monotonic()
        self.names: Iterable[str] = ()
        """The names of the live listeners."""

    async def run(self) -> None:
        """Elect, for ever."""
        pause = self._lease / claiming.BEATS_PER_LEASE
        await asyncio.sleep(min(pause, ALL_BEAT_WITHIN))
        while True:
            await self.draw(min(self._lease / 2, time.monotonic() - self._joined))
            await asyncio.sleep(pause)

    async def draw(self, within: float) -> None:
        """Elect subscribers among the listeners that sent a heartbeat within so many seconds.

        One partition is asked: every listener sends heartbeats to all.
        """
        for node in sorted(self._nodes.values(), key=lambda node: node.health.lasts):
            for consumer in node.key_router.consumers[:1]:
                try:
                    listeners = await consumer.store.run(inspection.list_listeners(MOST_NAMES))
                except ServerError:
                    continue
                self.names = [each.name for each in listeners if each.ago < within]
                for one in self._nodes.values():
                    one.draw(self.names)
                return
