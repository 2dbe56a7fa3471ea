"""The walk of `list`: from the place of a cursor until it has found enough tasks.

Each partition has the tasks of a state in order; the walk takes the first of them in turn.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, Self, TypeVar

from expirebridge.errors import InvalidTask, PartitionsDiffer
from expirebridge.task.calls import looking
from expirebridge.task.calls.call import CHUNK, LEFT_OUT, PARTITIONS, Steps, at_if_available
from expirebridge.task.calls.pages import BEGINNING
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.listings import LeftOut, Listing
from expirebridge.task.task import State, Task, to_ms

# Streams: what several partitions hold in order, taken as one.

T = TypeVar("T")

SMALLEST_PAGE = 10
"""The least number of rows that one request reads of a partition."""
LAST_RANK = 2**52
"""Beyond all ranks. The scripts, which count on from a rank, know no whole numbers over 2**53."""
_OVER = "x"
SPOTS = r"(?:S(?:-S){0,255})".replace("S", r"(?:(?:0|[1-9][0-9]{0,19})\.(?:0|[1-9][0-9]{0,8})|x)")
"""The output of `encode_spots`, as a regular expression."""
_SPOTS = re.compile(SPOTS, re.ASCII)


class PageCursor(NamedTuple):
    """The position of a listing in a partition."""

    cursor: str = BEGINNING
    """The cursor of a page."""
    skip: int = 0
    """How many matching tasks of that page were already listed."""
    over: bool = False
    """True if this partition has no more."""

    def encode(self) -> str:
        """The spot as text."""
        return _OVER if self.over else f"{self.cursor}.{self.skip}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `encode` wrote."""
        if text == _OVER:
            return cls(over=True)
        cursor, _, skip = text.partition(".")
        return cls(cursor, int(skip))


def encode_spots(spots: Sequence[PageCursor]) -> str:
    """The spots of all partitions as text."""
    return "-".join(spot.encode() for spot in spots)


def read_spots(text: str) -> list[PageCursor] | None:
    """Read what `encode_spots` wrote; None if it did not write that."""
    if not _SPOTS.fullmatch(text):
        return None
    spots = [PageCursor.read(spot) for spot in text.split("-")]
    return spots if all(int(spot.cursor) < 2**64 for spot in spots) else None


def read_ranks(text: str) -> list[PageCursor] | None:
    """The same, of listings whose cursors are ranks; None if one of these is too large for that."""
    spots = read_spots(text)
    return spots if spots and all(is_rank(spot.cursor) for spot in spots) else None


def is_rank(text: str) -> bool:
    """True if a cursor can be a rank."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(LAST_RANK))
    return is_number and int(text) < LAST_RANK


def rows_of_each(count: int) -> int:
    """How many rows are read at once of each of so many partitions."""
    return max(CHUNK // count, SMALLEST_PAGE)


class PageChunk(NamedTuple, Generic[T]):
    """The contents of one page."""

    items: list[T]
    """The matching ones, in order."""
    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    examined: int
    """How many were looked at."""


class PageStream(Generic[T]):
    """The matches in one partition, in its order, read page by page."""

    def __init__(
        self,
        read: Callable[[str], Steps[PageChunk[T] | None]],
        order: Callable[[T], float],
        spot: PageCursor,
    ) -> None:
        self._read = read
        self._order = order
        self._found: list[T] = []
        """The rest of the page, in reverse order."""
        self._next = BEGINNING
        self._left_out = False
        self.spot = spot

    @property
    def is_over(self) -> bool:
        """True if there is nothing more, or it cannot be read now."""
        return self.spot.over or self._left_out

    @property
    def is_empty(self) -> bool:
        """True if a page must be read to find the next one."""
        return not self._found and not self.is_over

    def fill(self) -> Steps[int]:
        """Read a page; returns how many were looked at. Without a page, it is left out."""
        part = yield from self._read(self.spot.cursor)
        if part is None:
            self._left_out = True
            return 0
        self._found = part.items[self.spot.skip :][::-1]
        self._next = part.cursor
        self._turn_page()
        return part.examined

    def order(self) -> float:
        """Of the streams that are neither over nor empty, the one with the lowest is next."""
        return self._order(self._found[-1])

    def take(self) -> T:
        """Take what is next."""
        item = self._found.pop()
        self.spot = PageCursor(self.spot.cursor, self.spot.skip + 1)
        self._turn_page()
        return item

    def _turn_page(self) -> None:
        if not self._found:
            self.spot = PageCursor(self._next, over=self._next == BEGINNING)


def take(
    streams: Sequence[PageStream[T]], *, limit: int, examine: float = float("inf")
) -> Steps[tuple[list[T], int]]:
    """Take up to `limit` from all streams, the lowest first, and look at about `examine` for it.

    Returns what was taken, and how many were looked at. All is taken if the spot of each is over.
    """
    taken: list[T] = []
    examined = 0
    while left := [stream for stream in streams if not stream.is_over]:
        empty = next((stream for stream in left if stream.is_empty), None)
        if len(taken) == limit or (empty is not None and examined >= examine):
            break
        if empty is not None:
            examined += yield from empty.fill()
        else:
            taken.append(min(left, key=PageStream.order).take())
    return taken, examined


def over_partitions(walk: Callable[[int], Steps[T]]) -> Steps[T]:
    """Walk over so many partitions; once more if their number was assumed, and is known then."""
    while True:
        count = yield from PARTITIONS
        try:
            return (yield from walk(count))
        except PartitionsDiffer:
            if (yield from PARTITIONS) == count:
                raise


MAX_EXAMINED = 10_000
"""The most tasks that one `list` examines, even if its limit is small."""
Source = State | None
"""A state's set. None: the set of a tag, or a group, whatever the states of its tasks."""

_ANY = "any"
_PLACE = re.compile(rf"([a-z]+)\.({SPOTS})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListingPosition:
    """The position of a listing."""

    source: Source
    spots: Sequence[PageCursor] = ()
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
        f"cursor={cursor!r}: give the cursor of a listing with the same state, tag and group"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFilter:
    """The filter of a listing."""

    func: str | None
    tag: str | None
    group: str | None
    matches: Callable[[Task], bool]
    limit: int
    key_ring: KeyRing | None = None
    """Opens what it can of those that it finds."""


def find(sources: Sequence[Source], place: ListingPosition, wanted: TaskFilter) -> Steps[Listing]:
    """Look for tasks, starting at `place`, in one source after the other."""

    def find_in(count: int) -> Steps[Listing]:
        if place.spots and len(place.spots) != count:
            raise _foreign(place.encode())
        return (yield from _find(sources, place, wanted, count))

    return over_partitions(find_in)


def _find(
    sources: Sequence[Source], place: ListingPosition, wanted: TaskFilter, count: int
) -> Steps[Listing]:
    tasks: list[Task] = []
    examined = 0
    left_out: tuple[LeftOut, ...] = ()
    spots = place.spots or [PageCursor()] * count
    for source in sources[sources.index(place.source) :]:
        streams = [
            PageStream(partial(_read, source, wanted, number, count), partial(_order, source), spot)
            for number, spot in enumerate(spots)
        ]
        taken, looked = yield from take(
            streams, limit=wanted.limit - len(tasks), examine=MAX_EXAMINED - examined
        )
        tasks += taken
        examined += looked
        left_out = yield from LEFT_OUT
        if not all(stream.is_over for stream in streams):
            cursor = ListingPosition(source, [stream.spot for stream in streams]).encode()
            return Listing(
                tasks=tasks, examined=examined, complete=False, cursor=cursor, left_out=left_out
            )
        spots = [PageCursor()] * count
    return Listing(tasks=tasks, examined=examined, complete=not left_out, left_out=left_out)


def _read(
    source: Source, wanted: TaskFilter, number: int, count: int, cursor: str
) -> Steps[PageChunk[Task] | None]:
    call = looking.list_page(
        state=source, func=wanted.func, tag=wanted.tag, group=wanted.group, cursor=cursor,
        count=rows_of_each(count), key_ring=wanted.key_ring,
    )  # fmt: skip
    page = yield from at_if_available(call, number, fail_fast=True)
    if page is None:
        return None
    found = [task for task in page.tasks if wanted.matches(task)]
    return PageChunk(found, page.cursor, page.examined)


def _order(source: Source, task: Task) -> float:
    """Unfinished tasks come soonest first, finished ones latest first; others as they come."""
    if source is None:
        return 0
    if source.finished:
        return -to_ms(task.ended) if task.ended is not None else 0
    return to_ms(task.due)
