"""The footing: where a station stands now."""

from dataclasses import dataclass

from expirebridge.listener.ears import Ears
from expirebridge.listener.gaps import Gaps
from expirebridge.listener.links import Links
from expirebridge.listener.lot import Lot
from expirebridge.listener.pulse import Pulse
from expirebridge.listener.server_clock import ServerClock
from expirebridge.listener.server_health import Outage
from expirebridge.store.client import AsyncStore, Store


@dataclass(frozen=True, slots=True)
class Ground:
    """One partition of one node, as far as the roles of a station use it."""

    store: AsyncStore
    heart_store: Store
    """The same for the thread that beats, with a connection of its own."""
    server_clock: ServerClock
    outage: Outage
    gaps: Gaps
    ears: Ears
    links: Links
    """How many connections `store` has made; not counted without a ledger."""
    may_be_demoted: bool = False
    """Whether another server may become the primary while this one goes on as its replica."""
    lot: Lot | None = None
    """Who hears its key events, among several nodes; None: the rank says that."""
    pulse: Pulse | None = None
    """Whether it answers at once; None: there is no other node that could lack room."""

    @property
    def is_away(self) -> bool:
        """Whether the node does not answer this station now."""
        return self.outage.lasts or (self.pulse is not None and self.pulse.weak)


class Footing:
    """The ground of a station, which changes when its partition moves to another node.

    A role takes `now` once for each exchange with the server, so that it never meets the store of
    one node and the clock of another.
    """

    __slots__ = ("now",)

    def __init__(self, ground: Ground) -> None:
        self.now = ground
