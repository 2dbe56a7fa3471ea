"""The standing of a listener among those of its partition."""

from collections.abc import Sequence

from expirebridge.listener.lot import Lot
from expirebridge.settings import Doorbells

EARS = 2
"""Listeners that hear key events: one, and another in case it dies (see docs/adr/0004)."""


class Standing:
    """What a listener's rank means for it; each heartbeat brings its current rank."""

    def __init__(self, doorbell: Doorbells, lot: Lot | None = None) -> None:
        self._doorbell = doorbell
        self.rank = 0
        self.listeners = 1
        """How many listeners beat."""
        self.codes: Sequence[tuple[str, int]] = ()
        """If they run more than one code: each fingerprint, and how many of them run it."""
        self.lot = lot
        """Its place among those that may hear its node, among several nodes."""

    @property
    def hears(self) -> bool:
        """Whether it hears key events."""
        if self._doorbell is Doorbells.CLOCK:
            return False
        return self._place < EARS or self._doorbell is Doorbells.EVENTS

    @property
    def looks(self) -> bool:
        """Whether it scans while the server sends no key events. As many look as would hear; with
        the clock alone, nobody expects that edits are noticed.
        """
        return self._place < EARS and self._doorbell is not Doorbells.CLOCK

    @property
    def _place(self) -> int:
        return self.rank if self.lot is None else self.lot.place
