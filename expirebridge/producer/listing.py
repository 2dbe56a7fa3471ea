"""The walk of `list`: from the place of a cursor until it has found enough tasks.

Each partition has the tasks of a state in order; the walk takes the first of them in turn.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

from expirebridge.errors import InvalidTask, PartitionsDiffer
from expirebridge.model.task import LeftOut, Listing, State, Task, to_ms
from expirebridge.producer.streams import (
    SPOTS,
    Part,
    Spot,
    Stream,
    encode_spots,
    read_ranks,
    read_spots,
    rows_of_each,
    take,
)
from expirebridge.store import commands
from expirebridge.store.commands import LEFT_OUT, PARTITIONS, Steps

MAX_EXAMINED = 10_000
"""The most tasks that one `list` examines, even if its limit is small."""
Source = State | None
"""A state's set. None: the set of a tag, whatever the states of its tasks."""

_ANY = "any"
_PLACE = re.compile(rf"([a-z]+)\.({SPOTS})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listing continues."""

    source: Source
    spots: Sequence[Spot] = ()
    """Of each partition; none: at the beginning of all."""

    def encode(self) -> str:
        """The place as a cursor for users."""
        return f"{self.source or _ANY}.{encode_spots(self.spots)}"

    @classmethod
    def read(cls, text: object, sources: Sequence[Source]) -> Self:
        """Read a cursor. Raises InvalidTask unless it belongs to a listing of these sources."""
        named = {source or _ANY: source for source in sources}
        parts = _PLACE.fullmatch(text) if isinstance(text, str) else None
        if parts is None or parts[1] not in named:
            raise _foreign(text)
        # Of a tag the server chooses the cursors: any number.
        spots = read_spots(parts[2]) if parts[1] == _ANY else read_ranks(parts[2])
        if spots is None:
            raise _foreign(text)
        return cls(named[parts[1]], spots)


def _foreign(cursor: object) -> InvalidTask:
    return InvalidTask(
        f"cursor={cursor!r}: give the cursor of a listing with the same state and tag"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What is looked for."""

    func: str | None
    tag: str | None
    matches: Callable[[Task], bool]
    limit: int


def find(sources: Sequence[Source], place: Place, wanted: Wanted) -> Steps[Listing]:
    """Look for tasks, starting at `place`, in one source after the other."""
    while True:
        count = yield from PARTITIONS
        if place.spots and len(place.spots) != count:
            raise _foreign(place.encode())
        try:
            return (yield from _find(sources, place, wanted, count))
        except PartitionsDiffer:
            if (yield from PARTITIONS) == count:
                raise


def _find(sources: Sequence[Source], place: Place, wanted: Wanted, count: int) -> Steps[Listing]:
    tasks: list[Task] = []
    examined = 0
    left_out: tuple[LeftOut, ...] = ()
    spots = place.spots or [Spot()] * count
    for source in sources[sources.index(place.source) :]:
        streams = [
            Stream(partial(_read, source, wanted, number, count), partial(_order, source), spot)
            for number, spot in enumerate(spots)
        ]
        taken, looked = yield from take(
            streams, limit=wanted.limit - len(tasks), examine=MAX_EXAMINED - examined
        )
        tasks += taken
        examined += looked
        left_out = yield from LEFT_OUT
        if not all(stream.is_over for stream in streams):
            cursor = Place(source, [stream.spot for stream in streams]).encode()
            return Listing(
                tasks=tasks, examined=examined, complete=False, cursor=cursor, left_out=left_out
            )
        spots = [Spot()] * count
    return Listing(tasks=tasks, examined=examined, complete=not left_out, left_out=left_out)


def _read(
    source: Source, wanted: Wanted, number: int, count: int, cursor: str
) -> Steps[Part[Task] | None]:
    call = commands.list_page(
        state=source, func=wanted.func, tag=wanted.tag, cursor=cursor, count=rows_of_each(count)
    )
    page = yield from commands.at_if_there(call, number, hasty=True)
    if page is None:
        return None
    found = [task for task in page.tasks if wanted.matches(task)]
    return Part(found, page.cursor, page.examined)


def _order(source: Source, task: Task) -> float:
    """Waiting tasks come soonest first, finished ones latest first; those of a tag as they come."""
    if source is None:
        return 0
    if source.finished:
        return -to_ms(task.ended) if task.ended is not None else 0
    return to_ms(task.due)
