"""Routes calls to partitions.

A database on one server is assumed to have one partition, and one in a cluster to have 16; no call
asks for that. The first call to one that has another number is refused, with that, before anything
is written; it is sent again to the partitions that it concerns, and so are all others from then on.
In a cluster, a partition in which nothing was written yet has no number: the others are asked.
"""

from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from expirebridge import errors
from expirebridge.store import script_loader
from expirebridge.store.errors import CountUnknown
from expirebridge.store.partition_availability import (
    UNAVAILABLE_ERRORS,
    NodeOf,
    Request,
    Requests,
    UnavailablePartitions,
)
from expirebridge.store.partition_count import NothingWritten, PartitionCount, too_few
from expirebridge.task.calls.call import (
    Anywhere,
    At,
    ByItem,
    Command,
    Creation,
    Everywhere,
    IfAvailable,
    Joined,
    Known,
    KnownPartitions,
    OfId,
    Outside,
    Runnable,
    Steps,
    expand,
)
from expirebridge.task.keys import hash_tag_of
from expirebridge.task.partitions import PARTITIONS_OF_CLUSTER, PartitionLayout

if TYPE_CHECKING:
    from expirebridge.task.listings import LeftOut

T = TypeVar("T")


class _Ask(Protocol):
    """Asks one partition."""

    def __call__(
        self, number: int, runnable: Runnable[Any], *, fail_fast: bool = False
    ) -> Requests[Any]:
        """Ask the partition of this number; `fail_fast` as in `Request`."""
        ...


class _Raw:
    """A call whose reply stays raw: the steps that yielded it read it."""

    def __init__(self, call: Command[Any] | Outside[Any]) -> None:
        self._call: Any = call

    def __iter__(self) -> Steps[Any]:
        return (yield self._call)


_MAX_CORRECTIONS = 2
"""The most corrections in one run: after more, the partitions contradict each other."""


class Routing:
    """Turns calls into requests to partitions.

    `node_of` says which node serves the names of a prefix, if partitions may be on several.
    """

    def __init__(
        self, prefix: str, *, clustered: bool = False, node_of: NodeOf | None = None
    ) -> None:
        self.prefix = prefix
        self.spread = clustered and not hash_tag_of(prefix)
        """True if the partitions are on several nodes."""
        self.unavailable = UnavailablePartitions(node_of)
        self.partition_count = PartitionCount(prefix, self.spread, self.unavailable)
        self.layout = PartitionLayout(prefix, PARTITIONS_OF_CLUSTER if self.spread else 1)
        """The partitions, as far as is known."""

    def correct(self, refusal: errors.PartitionsDiffer) -> None:
        """Correct the number of partitions. Raises InvalidSetting if that cannot be."""
        if refusal.count > 1 and hash_tag_of(self.prefix):
            raise errors.InvalidSetting(
                f"prefix={self.prefix!r}: that of one partition, of {refusal.count}; give it "
                "without the tag"
            )
        if refusal.count == 1 and self.spread:
            raise too_few(self.prefix)
        self.layout = PartitionLayout(self.prefix, refusal.count)

    def requests(self, runnable: Runnable[T]) -> Requests[T]:
        """Turn a call, or steps, into requests to partitions."""
        return expand(iter(runnable), _Run(self).answer, errors.ServerError)


class _Run:
    """The routing of one call, or of steps that belong together."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._unavailable, self._partition_count = routing.unavailable, routing.partition_count
        self._spread = routing.spread
        self._left_out: dict[int, LeftOut] = {}
        self._corrections = 0
        self._nodes = dict[int, object]()
        """The node of each partition at its last request: it may have moved since."""

    def answer(self, call: Command[Any] | Outside[Any] | Known[Any]) -> Requests[Any]:
        """Route one call, and return the answer."""
        routing = self._routing
        if isinstance(call, Known):
            left_out = tuple(self._left_out[number] for number in sorted(self._left_out))
            unavailable = self._unavailable.numbers(routing.layout)
            return call.read(KnownPartitions(routing.layout, left_out, unavailable))
        if isinstance(call, Outside):  # any store calls it: no partition is asked
            return (yield Request(routing.layout, 0, _Raw(call)))
        sure = False
        while True:
            layout = routing.layout
            try:
                return (yield from self._asked(layout, call, sure=sure))
            except errors.PartitionsDiffer as refusal:
                if refusal.asked != layout.count or refusal.count == layout.count:
                    raise
                if self._corrections == _MAX_CORRECTIONS:
                    raise
                self._corrections += 1
                routing.correct(refusal)  # it was assumed, or the database was recreated
                if isinstance(call.route, At | IfAvailable | Creation):
                    raise
            except NothingWritten:
                sure = True

    def _asked(self, layout: PartitionLayout, call: Command[Any], *, sure: bool) -> Requests[Any]:
        def ask(number: int, runnable: Runnable[Any], *, fail_fast: bool = False) -> Requests[Any]:
            """Ask one partition; if it lacks the number of partitions, find that out first."""
            if self._spread:
                self._nodes[number] = self._unavailable.node_of(layout, number)
            try:
                result = yield Request(layout, number, runnable, sure, fail_fast)
            except CountUnknown:
                yield from self._partition_count.mark(layout, number, reads=reads(call))
                result = yield Request(layout, number, runnable, sure=True)
            self._unavailable.clear(layout, number)
            return result

        match call.route:
            case Creation(count) if self._spread:
                if fault := (yield from self._partition_count.create(count)):
                    raise fault
                return Joined(None)
            case None | Creation():
                return (yield from ask(0, _Raw(call)))
            case At(number):
                return (yield from ask(number, _Raw(call)))
            case OfId(id):
                return (yield from ask(layout.partition_of(id), _Raw(call)))
            case IfAvailable(number, fail_fast):
                try:
                    asked = self._if_available(layout, number, ask, _Raw(call), fail_fast)
                    return (yield from asked)
                except UNAVAILABLE_ERRORS as fault:
                    self._leave_out(layout, number, fault)
                    if len(self._left_out) == layout.count:
                        raise  # nothing is left to answer with
                    return Joined(None)
            case Anywhere():
                return (yield from self._anywhere(layout, call, ask))
            case Everywhere():
                return (yield from self._everywhere(layout, call, call.route, ask))
            case ByItem():
                return (yield from self._divided(layout, call, call.route, ask))

    def _if_available(
        self,
        layout: PartitionLayout,
        number: int,
        ask: _Ask,
        runnable: Runnable[Any],
        fail_fast: bool,
    ) -> Requests[Any]:
        """Ask, unless the partition was unavailable a moment ago."""
        if recent := self._unavailable.fault_of(layout, number):
            fault = copy(recent)
            fault.nothing_written = True
            raise fault from recent
        return (yield from ask(number, runnable, fail_fast=fail_fast and self._spread))

    def _leave_out(self, layout: PartitionLayout, number: int, fault: errors.ServerError) -> None:
        """Go on without a partition. Raises the fault if all are on one server."""
        if not self._spread:
            raise fault
        node = self._nodes.get(number)
        self._left_out[number] = self._unavailable.note(layout, number, fault, node)

    def _anywhere(self, layout: PartitionLayout, call: Command[Any], ask: _Ask) -> Requests[Any]:
        """Ask one partition after the other until one answers. Raises the fault of the last."""
        fault: errors.ServerError | None = None
        for number in range(layout.count):
            try:
                asked = self._if_available(layout, number, ask, _Raw(call), fail_fast=True)
                return (yield from asked)
            except UNAVAILABLE_ERRORS as error:
                self._leave_out(layout, number, error)
                fault = error
        assert fault is not None  # noqa: S101 - for the type checker
        raise fault

    def _everywhere(
        self, layout: PartitionLayout, call: Command[Any], route: Everywhere, ask: _Ask
    ) -> Requests[Any]:
        """Ask each partition. What only reads goes on without unavailable ones."""
        results = []
        fault: errors.ServerError | None = None
        for number in range(layout.count):
            try:
                if reads(call):
                    asked = self._if_available(layout, number, ask, call, fail_fast=True)
                    result = yield from asked
                else:
                    result = yield from ask(number, call)
            except UNAVAILABLE_ERRORS as error:
                if not reads(call):
                    raise
                self._leave_out(layout, number, error)
                fault = error
            else:
                results.append(result)
        if fault is not None and not results:
            raise fault
        return Joined(route.join(results))

    def _divided(
        self, layout: PartitionLayout, call: Command[Any], route: ByItem, ask: _Ask
    ) -> Requests[Any]:
        """Ask each partition for its own items. Raises PartlyDone if some are unavailable."""
        places = _places_of(layout, route)
        if len(places) <= 1 and not (route.bulk and self._spread):
            number = next(iter(places), 0)
            try:
                fail_fast = route.random_ids and self._spread
                return (yield from ask(number, _Raw(call), fail_fast=fail_fast))
            except UNAVAILABLE_ERRORS as error:
                self._leave_out(layout, number, error)
                raise
        done: list[Any] = [None] * len(route.items)
        undone, faults = list[int](), list[errors.ServerError]()
        for number, own in places.items():
            part = route.call_of([route.items[place] for place in own])
            try:
                results = yield from self._if_available(layout, number, ask, part, fail_fast=False)
            except UNAVAILABLE_ERRORS as error:
                self._leave_out(layout, number, error)
                undone += own
                faults.append(error)
                continue
            for place, result in zip(own, results, strict=True):
                done[place] = result
        if faults:
            partly = errors.PartlyDone(done, sorted(undone), faults[0])
            partly.nothing_written = all(fault.nothing_written for fault in faults)
            raise partly from faults[0]
        return Joined(done)


def reads(call: Command[Any]) -> bool:
    """True if a call writes nothing."""
    return "no-writes" in script_loader.load(call.name).flags


def _places_of(layout: PartitionLayout, route: ByItem) -> dict[int, list[int]]:
    """The positions of the items of each partition, in the order of first appearance."""
    places: dict[int, list[int]] = {}
    for place, item in enumerate(route.items):
        places.setdefault(layout.partition_of(route.id_of(item)), []).append(place)
    return places
