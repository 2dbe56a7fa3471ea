"""The connections of a server to one primary.

If another server becomes the primary, other connections replace them. Commands, heartbeats and the
subscription change to it together: otherwise leases would be renewed on one side and claimed on the
other.
"""

import contextlib
import socket

from expirebridge.connection import clients
from expirebridge.connection.sentinel import PinnedPrimary
from expirebridge.listener.session import (
    PartitionHealth,
    PartitionSession,
    ServerClock,
    ServerHealth,
    SubscriberElection,
)
from expirebridge.listener.wakeups import (
    ConnectionCounter,
    EventDemand,
    Responsiveness,
    ResyncRequests,
)
from expirebridge.settings import Settings
from expirebridge.store.client import AsyncStore, Store


class ServerConnections:
    """Clients of one primary, and the estimate of its clock.

    `pinned` is the address of the primary; None if the URL names it. `election` is for a node of a
    cluster.
    """

    def __init__(
        self,
        settings: Settings,
        pinned: PinnedPrimary | None,
        *,
        health: ServerHealth,
        resyncs: ResyncRequests,
        event_demand: EventDemand,
        election: SubscriberElection | None = None,
    ) -> None:
        # An answer that takes longer than this is no answer: the lease would be in danger.
        patience = max(settings.lease / 2, 1.0)
        url = settings.url
        self.pinned = pinned
        self._client = clients.listener_client(url, socket_timeout=patience, place=pinned)
        self._heart_client = clients.heartbeat_client(url, socket_timeout=patience, place=pinned)
        self._connection_count = ConnectionCounter()
        if settings.ledger is not None:
            self._connection_count.watch(self._client)
        self._server_clock = ServerClock()
        self._health = health
        self._resyncs = resyncs
        self._event_demand = event_demand
        self._election = election
        self._responsiveness = Responsiveness() if election else None

    def session_for(self, prefix: str, partitions: int = 1) -> PartitionSession:
        """The session of this prefix, whose database has so many partitions."""
        return PartitionSession(
            store=AsyncStore(self._client, prefix=prefix, partitions=partitions),
            heart_store=Store(self._heart_client, prefix=prefix, partitions=partitions),
            server_clock=self._server_clock,
            health=PartitionHealth(self._health, prefix) if self._election else self._health,
            resyncs=self._resyncs,
            event_demand=self._event_demand,
            connection_count=self._connection_count,
            may_be_demoted=self.pinned is not None,
            election=self._election,
            responsiveness=self._responsiveness,
        )

    async def cut(self) -> None:
        """Break its connections, as a network would: calls that wait for an answer get an error.

        redis-py's own `disconnect` would change a connection while another task reads it.
        """
        for connection in list(self._client.connection_pool._in_use_connections):
            if (writer := connection._writer) is not None:
                writer.transport.abort()
        for connected in list(self._heart_client.connection_pool._in_use_connections):
            if (sock := connected._sock) is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
        self._heart_client.connection_pool.disconnect(inuse_connections=False)
        await self._client.connection_pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Close its connections, once nobody uses them any more."""
        self._heart_client.close()
        await self._client.aclose()
