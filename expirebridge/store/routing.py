"""Decides which partitions a call concerns.

A database is assumed to have one partition, and no call asks for that. The first call to one that
has several is refused, with their number, before anything is written; it is sent again to the
partitions that it concerns, and so are all others from then on.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from expirebridge import errors
from expirebridge.slots import Layout
from expirebridge.store.calls import PARTITIONS, Call, Runnable, Steps
from expirebridge.store.calls.routes import At, ByItem, Everywhere, OfId, Ready, Route
from expirebridge.wire import slot_of

T = TypeVar("T")

Request = tuple[Layout, int, Runnable[Any]]
"""The layout and the number of a partition, and what it is asked."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """A call whose reply is not read: that is left to whoever made it."""

    call: Call[Any]

    def __iter__(self) -> Steps[Any]:
        return (yield self.call)


class Routing:
    """Turns what is run into what each partition is asked."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.layout = Layout(prefix)
        """As far as is known."""

    def learn(self, refusal: errors.PartitionsDiffer) -> None:
        """Take note of how many partitions there are. Raises InvalidSetting if that cannot be."""
        if refusal.count > 1 and slot_of(self._prefix):
            raise errors.InvalidSetting(
                f"prefix={self._prefix!r}: that of one partition, of {refusal.count}; give it "
                "without the tag"
            )
        self.layout = Layout(self._prefix, refusal.count)

    def requests(self, runnable: Runnable[T]) -> Generator[Request, Any, T]:
        """What each partition is asked; each is answered with its result, or with a ServerError."""
        calls = iter(runnable)
        try:
            call = next(calls)
            while True:
                try:
                    answer = yield from self._answer(call)
                except errors.ServerError as error:
                    call = calls.throw(error)
                else:
                    call = calls.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _answer(self, call: Call[Any]) -> Generator[Request, Any, Any]:
        if call is PARTITIONS:
            return self.layout.count
        while True:
            layout = self.layout
            try:
                return (yield from _asked(layout, call, call.route))
            except errors.PartitionsDiffer as refusal:
                if refusal.asked != layout.count or refusal.count == layout.count:
                    raise
                self.learn(refusal)  # it was assumed, or the database was emptied and written again
                if isinstance(call.route, At):
                    raise


def _asked(layout: Layout, call: Call[Any], route: Route | None) -> Generator[Request, Any, Any]:
    match route:
        case None:
            return (yield layout, 0, _Raw(call))
        case At(number):
            return (yield layout, number, _Raw(call))
        case OfId(id):
            return (yield layout, layout.partition_of(id), _Raw(call))
        case Everywhere(join):
            results = []
            for number in range(layout.count):
                results.append((yield layout, number, call))
            return Ready(join(results))
        case ByItem():
            return (yield from _divided(layout, call, route))


def _divided(layout: Layout, call: Call[Any], route: ByItem) -> Generator[Request, Any, Any]:
    """Ask each partition for its own items, in the order in which they first appear."""
    places: dict[int, list[int]] = {}
    for place, item in enumerate(route.items):
        places.setdefault(layout.partition_of(route.id_of(item)), []).append(place)
    if len(places) <= 1:
        return (yield layout, next(iter(places), 0), _Raw(call))
    results: list[Any] = [None] * len(route.items)
    for number, own in places.items():
        part = route.call_of([route.items[place] for place in own])
        for place, result in zip(own, (yield layout, number, part), strict=True):
            results[place] = result
    return Ready(results)
