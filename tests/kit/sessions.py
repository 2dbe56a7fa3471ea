"""Sessions of a partition without a listener, for tests of one role."""

from dataclasses import dataclass

import redis
import redis.asyncio

from expirebridge.handlers import Registry
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.listener.execution.condition import Condition
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.execution.leases import CodeVersion, HandlersDeclaration
from expirebridge.listener.session import PartitionSession, ServerClock, ServerHealth
from expirebridge.listener.wakeups import (
    ConnectionCounter,
    EventDemand,
    ResyncRequests,
    StopRequest,
)
from expirebridge.store.client import AsyncStore, Store


def session_with(
    store: AsyncStore | None = None, heart_store: Store | None = None
) -> PartitionSession:
    """A session with these stores; one that is left out has a client that never connects."""
    return PartitionSession(
        store=store or AsyncStore(redis.asyncio.Redis(), prefix="expirebridge"),
        heart_store=heart_store or Store(redis.Redis(), prefix="expirebridge"),
        server_clock=ServerClock(),
        health=ServerHealth(),
        resyncs=ResyncRequests(),
        event_demand=EventDemand(),
        connection_count=ConnectionCounter(),
    )


@dataclass
class FixedOwner:
    """Owner of one session, as roles take it."""

    session: PartitionSession

    @property
    def health(self) -> ServerHealth:
        """That of the session."""
        return self.session.health


def owner_of(store: AsyncStore | None = None, heart_store: Store | None = None) -> FixedOwner:
    """The owner of a session with these stores."""
    return FixedOwner(session_with(store, heart_store))


def code_without_handlers() -> CodeVersion:
    """What a listener without handlers tells its fleet."""
    return code_of(Registry({}))


def code_of(registry: Registry) -> CodeVersion:
    """What a listener with these handlers tells its fleet."""
    condition = Condition(StopRequest(), InFlight())
    fingerprint = Fingerprint.of(registry)
    return CodeVersion(fingerprint, HandlersDeclaration(), condition, concurrency=100, keys=())
