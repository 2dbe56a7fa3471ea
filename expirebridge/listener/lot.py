"""The lot: which listeners hear the key events of a node."""

from collections.abc import Iterable
from hashlib import sha1


class Lot:
    """A listener's place among those that may hear a node of a cluster, by rendezvous.

    Each listener has a weight at each node, which everybody can compute. So nodes have different
    ears, and when a listener comes or goes, only those nodes change theirs that it hears.
    """

    def __init__(self, node: str, listener: str) -> None:
        self._node = node
        self._listener = listener
        self.place = 0
        """How many others come first; 0 until it is drawn."""

    def draw(self, listeners: Iterable[str]) -> None:
        """Take the place among these listeners, which beat."""
        own = self._weight(self._listener)
        self.place = sum(self._weight(other) < own for other in listeners)

    def _weight(self, listener: str) -> bytes:
        return sha1(f"{self._node} {listener}".encode(), usedforsecurity=False).digest()
