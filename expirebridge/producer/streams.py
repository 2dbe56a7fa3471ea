"""Streams: what several partitions hold in order, taken as one."""

import re
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Self, TypeVar

from expirebridge.store.commands import BATCH, BEGINNING, Steps

T = TypeVar("T")

SMALLEST_PAGE = 10
"""What is read at once of each partition, at least."""
LAST_RANK = 2**52
"""Beyond all ranks. The scripts, which count on from a rank, know no whole numbers over 2**53."""
_OVER = "x"
SPOTS = r"(?:S(?:-S){0,255})".replace("S", r"(?:(?:0|[1-9][0-9]{0,19})\.(?:0|[1-9][0-9]{0,8})|x)")
"""What `encode_spots` writes, as a regular expression."""
_SPOTS = re.compile(SPOTS, re.ASCII)


class Spot(NamedTuple):
    """Where a listing continues in a partition."""

    cursor: str = BEGINNING
    """The cursor of a page."""
    skip: int = 0
    """How many matching tasks of that page were already listed."""
    over: bool = False
    """Whether this partition has no more."""

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


def encode_spots(spots: Sequence[Spot]) -> str:
    """The spots of all partitions as text."""
    return "-".join(spot.encode() for spot in spots)


def read_spots(text: str) -> list[Spot] | None:
    """Read what `encode_spots` wrote; None if it did not write that."""
    if not _SPOTS.fullmatch(text):
        return None
    spots = [Spot.read(spot) for spot in text.split("-")]
    return spots if all(int(spot.cursor) < 2**64 for spot in spots) else None


def read_ranks(text: str) -> list[Spot] | None:
    """The same, of listings whose cursors are ranks; None if one of these is too large for that."""
    spots = read_spots(text)
    return spots if spots and all(is_rank(spot.cursor) for spot in spots) else None


def is_rank(text: str) -> bool:
    """Whether a cursor can be a rank."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(LAST_RANK))
    return is_number and int(text) < LAST_RANK


def rows_of_each(count: int) -> int:
    """How many rows are read at once of each of so many partitions."""
    return max(BATCH // count, SMALLEST_PAGE)


class Part(NamedTuple, Generic[T]):
    """What a page brought."""

    items: list[T]
    """Those that are wanted, in order."""
    cursor: str
    """Where the next page begins; "0" if this was the last."""
    examined: int
    """How many were looked at."""


class Stream(Generic[T]):
    """What is wanted of one partition, in its order, page by page."""

    def __init__(
        self, read: Callable[[str], Steps[Part[T] | None]], order: Callable[[T], float], spot: Spot
    ) -> None:
        self._read = read
        self._order = order
        self._found: list[T] = []
        """What is left of the page, in reverse order."""
        self._next = BEGINNING
        self._left_out = False
        self.spot = spot

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more, or it cannot be read now."""
        return self.spot.over or self._left_out

    @property
    def is_empty(self) -> bool:
        """Whether a page must be read before it is known what comes next."""
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
        self.spot = Spot(self.spot.cursor, self.spot.skip + 1)
        self._turn_page()
        return item

    def _turn_page(self) -> None:
        if not self._found:
            self.spot = Spot(self._next, over=self._next == BEGINNING)


def take(
    streams: Sequence[Stream[T]], *, limit: int, examine: float = float("inf")
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
            taken.append(min(left, key=Stream.order).take())
    return taken, examined
