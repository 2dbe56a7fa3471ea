"""What a station's role stands on, for tests of one role."""

import redis
import redis.asyncio

from expirebridge.handlers import Registry
from expirebridge.handlers.signatures import Fingerprint
from expirebridge.listener.execution.leases import Code
from expirebridge.listener.server_health import Outage
from expirebridge.listener.session import Footing, Ground, ServerClock
from expirebridge.listener.wakeups import Ears, Gaps, Links
from expirebridge.store.client import AsyncStore, Store


def ground_of(store: AsyncStore | None = None, heart_store: Store | None = None) -> Ground:
    """A node with these stores; one that is left out has a client that never connects."""
    return Ground(
        store=store or AsyncStore(redis.asyncio.Redis(), prefix="expirebridge"),
        heart_store=heart_store or Store(redis.Redis(), prefix="expirebridge"),
        server_clock=ServerClock(),
        outage=Outage(),
        gaps=Gaps(),
        ears=Ears(),
        links=Links(),
    )


def footing_on(store: AsyncStore | None = None, heart_store: Store | None = None) -> Footing:
    """The same, as a role takes it."""
    return Footing(ground_of(store, heart_store))


def code_without_handlers() -> Code:
    """What a listener without handlers tells its fleet."""
    return Code(Fingerprint.of(Registry({})))
