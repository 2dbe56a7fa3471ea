"""Which node serves which slot, as one node of a cluster says it."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from expirebridge.connection.urls import Address

SLOTS = 16384
_UNKNOWN = {b"", b"?", None}
"""How a node says that it does not know under which name it is reached: as it was reached."""


class Share(NamedTuple):
    """Slots that stand side by side and are served by one primary."""

    start: int
    end: int
    primary: Address
    replicas: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class SlotMap:
    """The shares of a cluster's primaries, in the order of their slots."""

    shares: Sequence[Share]
    names: frozenset[str]
    """What the cluster calls its nodes."""
    is_well: bool = True
    """Whether the node that said this takes commands: one in a minority does not."""
    moved: Mapping[int, Address] = field(default_factory=dict)
    """Slots that have another primary by the word of the one that they had."""

    @property
    def replicas(self) -> frozenset[Address]:
        """The nodes that follow others."""
        return frozenset(replica for share in self.shares for replica in share.replicas)

    @property
    def primaries(self) -> frozenset[Address]:
        """The nodes that serve slots."""
        return frozenset(share.primary for share in self.shares)

    def node_of(self, slot: int) -> Address | None:
        """The primary that serves a slot; None if nobody does."""
        if slot in self.moved:
            return self.moved[slot]
        place = bisect_right(self.shares, slot, key=lambda share: share.start) - 1
        share = self.shares[place] if place >= 0 else None
        return share.primary if share is not None and slot <= share.end else None

    def corrected(self, slot: int, primary: Address) -> "SlotMap":
        """The same, but for a slot that has another primary."""
        return replace(self, moved={**self.moved, slot: primary})


def read_slots(reply: Sequence[Any], asked: Address, *, is_well: bool) -> SlotMap:
    """What a node answered to CLUSTER SLOTS; `asked` is where it was reached."""
    shares, names = list[Share](), set[str]()
    for start, end, primary, *others in reply:
        replicas = tuple(_address(node, asked) for node in others)
        shares.append(Share(start, end, _address(primary, asked), replicas))
        names |= {node[2].decode() for node in (primary, *others)}
    shares.sort(key=lambda share: share.start)
    return SlotMap(shares, frozenset(names), is_well)


def _address(node: Sequence[Any], asked: Address) -> Address:
    host, port = node[:2]
    return Address(asked.host if host in _UNKNOWN else host.decode(), port)
