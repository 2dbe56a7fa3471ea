"""The code of a listener, as a station tells it to the fleet."""

from expirebridge.handlers.fingerprint import Fingerprint

STRANDED = "?"


class Code:
    """What this listener knows, and whether it passes over much that nobody knows.

    The event loop changes it; the heartbeat's thread reads it.
    """

    def __init__(self, fingerprint: Fingerprint) -> None:
        self.fingerprint = fingerprint
        self.stranded = False
        """Whether it passes over many tasks that no listener knows."""
        self.withholds = False
        """Whether it passes over tasks of a ledger, which it has not, or which is behind."""

    @property
    def text(self) -> str:
        """As scripts take it: the fingerprint, and a word that says so if tasks are stranded."""
        digest = self.fingerprint.digest
        return f"{digest} {STRANDED}" if self.stranded or self.withholds else digest

    def knows(self, func: str) -> bool:
        """Whether a handler here has this name."""
        return func in self.fingerprint.shapes
