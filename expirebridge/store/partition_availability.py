"""Remembers unavailable partitions, so that later calls do not wait for each of them again."""

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from expirebridge import errors
from expirebridge.task.calls.call import Runnable
from expirebridge.task.partitions import PartitionLayout

if TYPE_CHECKING:
    from expirebridge.task.listings import LeftOut

UNAVAILABLE_ERRORS = (errors.ServerUnreachable, errors.SlotUnserved, errors.SlotMoving)
"""The errors of an unavailable partition."""
RETRY_AFTER = 5.0
"""Seconds after which calls that can do without an unavailable partition ask it again."""
_WHY = {errors.SlotMoving: "moving", errors.SlotUnserved: "unserved"}

NodeOf = Callable[[str], object]
"""Finds the node that serves the names of a prefix; None if unknown."""


class UnavailablePartitions:
    """The cache of unavailable partitions. Safe for threads."""

    def __init__(self, node_of: NodeOf | None) -> None:
        self._node_of = node_of
        self._faults: dict[object, tuple[float, errors.ServerError]] = {}
        """By the node that does not answer, or by the prefix of a partition."""
        self._left_out: dict[tuple[PartitionLayout, int], LeftOut] = {}

    def fault_of(self, layout: PartitionLayout, number: int) -> errors.ServerError | None:
        """The recent error of an unavailable partition; None if it is believed available."""
        for key in self._keys(layout, number) if self._faults else ():
            end, fault = self._faults.get(key, (0.0, None))
            if time.monotonic() < end:
                return fault
        return None

    def node_of(self, layout: PartitionLayout, number: int) -> object:
        """The node that serves a partition; None if unknown."""
        return self._node_of(layout.prefix_of(number)) if self._node_of is not None else None

    def note(
        self, layout: PartitionLayout, number: int, fault: errors.ServerError, node: object
    ) -> "LeftOut":
        """Record that a partition is unavailable, at this node."""
        from expirebridge.task.listings import LeftOut  # noqa: PLC0415 - rare

        own = layout.prefix_of(number)
        node = node or self.node_of(layout, number)  # it was not known before it was asked
        of_node = isinstance(fault, errors.ServerUnreachable)
        if isinstance(fault, errors.SlotUnserved):
            of_node = fault.of_node
        key = node if of_node and node is not None else own
        if self.fault_of(layout, number) is None:
            self._faults[key] = (time.monotonic() + RETRY_AFTER, fault)
        noted = self._left_out[layout, number] = LeftOut(
            partition=number,
            tag=layout.hash_tag_of(number),
            why=_WHY.get(type(fault), "unreachable"),
            error=str(fault),
        )
        return noted

    def clear(self, layout: PartitionLayout, number: int) -> None:
        """Record that a partition answered."""
        if self._left_out or self._faults:
            self._left_out.pop((layout, number), None)
            for key in self._keys(layout, number):
                self._faults.pop(key, None)

    def left_out(self, layout: PartitionLayout) -> "tuple[LeftOut, ...]":
        """The partitions that are left out of answers at present."""
        found = [one for (of, _), one in list(self._left_out.items()) if of == layout]
        return tuple(sorted(found, key=lambda one: one.partition))

    def numbers(self, layout: PartitionLayout) -> frozenset[int]:
        """The numbers of the unavailable partitions, as far as is known."""
        if not self._faults:
            return frozenset()
        return frozenset(n for n in range(layout.count) if self.fault_of(layout, n))

    def _keys(self, layout: PartitionLayout, number: int) -> tuple[object, object]:
        return layout.prefix_of(number), self.node_of(layout, number)


# A request to one partition.

T = TypeVar("T")


class Request(NamedTuple):
    """A request to one partition."""

    layout: PartitionLayout
    number: int
    runnable: Runnable[Any]
    sure: bool = False
    """True to take the number of partitions as certain if the partition does not know it."""
    fail_fast: bool = False
    """True not to wait for a failover of its node."""


Requests = Generator[Request, Any, T]
"""Requests to partitions; each is sent its result, or a ServerError."""
