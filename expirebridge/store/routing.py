"""Decides which partitions a call concerns.

A database on one server is assumed to have one partition, and one in a cluster to have 16; no call
asks for that. The first call to one that has another number is refused, with that, before anything
is written; it is sent again to the partitions that it concerns, and so are all others from then on.
In a cluster, a partition in which nothing was written yet knows no number: its sisters are asked.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from expirebridge import errors
from expirebridge.slots import PARTITIONS_OF_CLUSTER, Layout
from expirebridge.store import calls, scripts
from expirebridge.store.calls import PARTITIONS, Call, Runnable, Steps
from expirebridge.store.calls.routes import At, ByItem, Creation, Everywhere, OfId, Ready
from expirebridge.store.translation import Unmarked
from expirebridge.wire import slot_of

T = TypeVar("T")


class Request(NamedTuple):
    """What one partition is asked."""

    layout: Layout
    number: int
    runnable: Runnable[Any]
    sure: bool = False
    """Whether to take the number of partitions as certain if the partition does not know it."""


Requests = Generator[Request, Any, T]
"""What partitions are asked; each is answered with its result, or with a ServerError."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """A call whose reply is not read: that is left to whoever made it."""

    call: Call[Any]

    def __iter__(self) -> Steps[Any]:
        return (yield self.call)


class _NothingWritten(Exception):
    """No partition knows how many there are: the database is new."""


class Routing:
    """Turns what is run into what each partition is asked."""

    def __init__(self, prefix: str, *, clustered: bool = False) -> None:
        self._prefix = prefix
        self._spread = clustered and not slot_of(prefix)
        """Whether the partitions are on several nodes."""
        self.layout = Layout(prefix, PARTITIONS_OF_CLUSTER if self._spread else 1)
        """As far as is known."""

    def learn(self, refusal: errors.PartitionsDiffer) -> None:
        """Take note of how many partitions there are. Raises InvalidSetting if that cannot be."""
        if refusal.count > 1 and slot_of(self._prefix):
            raise errors.InvalidSetting(
                f"prefix={self._prefix!r}: that of one partition, of {refusal.count}; give it "
                "without the tag"
            )
        if refusal.count == 1 and self._spread:
            raise _too_few(self._prefix)
        self.layout = Layout(self._prefix, refusal.count)

    def requests(self, runnable: Runnable[T]) -> Requests[T]:
        """What each partition is asked."""
        steps = iter(runnable)
        try:
            call = next(steps)
            while True:
                try:
                    answer = yield from self._answer(call)
                except errors.ServerError as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _answer(self, call: Call[Any]) -> Requests[Any]:
        if call is PARTITIONS:
            return self.layout.count
        sure = False
        while True:
            layout = self.layout
            try:
                return (yield from self._asked(layout, call, sure=sure))
            except errors.PartitionsDiffer as refusal:
                if refusal.asked != layout.count or refusal.count == layout.count:
                    raise
                self.learn(refusal)  # it was assumed, or the database was emptied and written again
                if isinstance(call.route, At | Creation):
                    raise
            except _NothingWritten:
                sure = True

    def _asked(self, layout: Layout, call: Call[Any], *, sure: bool) -> Requests[Any]:
        def ask(number: int, runnable: Runnable[Any]) -> Requests[Any]:
            try:
                return (yield Request(layout, number, runnable, sure))
            except Unmarked:
                yield from self._mark(layout, number, call)
            return (yield Request(layout, number, runnable, sure=True))

        match call.route:
            case Creation(count, lease) if self._spread:
                if fault := (yield from self._create(count, lease)):
                    raise fault
                return Ready(None)
            case None | Creation():
                return (yield from ask(0, _Raw(call)))
            case At(number):
                return (yield from ask(number, _Raw(call)))
            case OfId(id):
                return (yield from ask(layout.partition_of(id), _Raw(call)))
            case Everywhere(join):
                results = []
                for number in range(layout.count):
                    results.append((yield from ask(number, call)))
                return Ready(join(results))
            case ByItem():
                places = _places_of(layout, call.route)
                if len(places) <= 1:
                    return (yield from ask(next(iter(places), 0), _Raw(call)))
                done: list[Any] = [None] * len(call.route.items)
                for number, own in places.items():
                    part = call.route.call_of([call.route.items[place] for place in own])
                    results = yield from ask(number, part)
                    for place, result in zip(own, results, strict=True):
                        done[place] = result
                return Ready(done)

    # Partitions that do not know how many there are

    def _mark(self, layout: Layout, number: int, call: Call[Any]) -> Requests[None]:
        """Tell a partition that does not know it how many there are, unless the call only reads.

        Raises PartitionsDiffer if its sisters know another number, and _NothingWritten for a call
        that only reads a new database.
        """
        known = yield from self._is_known(layout)
        if "no-writes" in scripts.load(call.name).flags:
            if not known:
                raise _NothingWritten
        elif known:
            yield Request(layout, number, calls.raise_format(lease=0), sure=True)
        else:
            yield from self._create(layout.count, lease=0)  # those that are away are told later

    def _is_known(self, layout: Layout) -> Requests[bool]:
        """Whether any partition knows how many there are, and it is this number.

        Those of 16 are asked in any case: of each lesser number, all partitions are among them, and
        of each greater one, some. Raises PartitionsDiffer for another number, and a ServerError if
        none knows it, but not all answer.
        """
        asked = layout if layout.count > PARTITIONS_OF_CLUSTER else self._least()
        fault: errors.ServerError | None = None
        known = False
        for number in range(asked.count):
            try:
                count = yield Request(asked, number, calls.read_partitions())
            except Unmarked:
                continue
            except errors.PartitionsDiffer as other:
                count = other.count
            except errors.ServerError as error:
                fault = error
                continue
            known = True
            if count != layout.count:
                raise errors.PartitionsDiffer(count, layout.count)
        if fault is not None and not known:
            raise fault
        return known

    def _least(self) -> Layout:
        return Layout(self._prefix, PARTITIONS_OF_CLUSTER)

    def _create(self, count: int, lease: float) -> Requests[errors.ServerError | None]:
        """Fix the number of partitions: the first one decides, then each is told.

        Returns why one could not be told. Raises PartitionsDiffer for another number.
        """
        if count == 1:
            raise _too_few(self._prefix)
        layout = Layout(self._prefix, count)
        if not (yield from self._is_known(layout)):
            first = layout if self._spread else Layout(self._prefix)
            try:
                yield Request(first, 0, calls.create_partitions(count, lease), sure=True)
            except errors.PartitionsDiffer as other:
                raise errors.PartitionsDiffer(other.count, count) from other
        fault = None
        for number in range(count):
            try:
                yield Request(layout, number, calls.raise_format(lease), sure=True)
            except errors.ServerError as error:
                fault = error
        return fault


def _places_of(layout: Layout, route: ByItem) -> dict[int, list[int]]:
    """Where the items of each partition are, in the order in which they first appear."""
    places: dict[int, list[int]] = {}
    for place, item in enumerate(route.items):
        places.setdefault(layout.partition_of(route.id_of(item)), []).append(place)
    return places


def _too_few(prefix: str) -> errors.InvalidSetting:
    return errors.InvalidSetting(
        f"prefix={prefix!r}: in a cluster there are at least 2 partitions; with a hash tag of your "
        f"own, such as '{{eb}}{prefix}', there is one, and all names are in one slot"
    )
