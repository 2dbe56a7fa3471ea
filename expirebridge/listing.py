"""The walk of `list`: from the place of a cursor until it has found enough tasks."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from expirebridge.errors import InvalidTask
from expirebridge.store import calls
from expirebridge.store.calls import BEGINNING, Steps
from expirebridge.task import Listing, State, Task

MAX_EXAMINED = 10_000
"""The most tasks that one `list` examines, even if its limit is small."""

Source = State | None
"""A state's set. None: the set of a tag, whatever the states of its tasks."""

_PLACE = re.compile(r"([a-z]+)\.(0|[1-9][0-9]{0,19})\.(0|[1-9][0-9]{0,8})", re.ASCII)
_ANY = "any"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listing continues."""

    source: Source
    cursor: str = BEGINNING
    """The cursor of a page of the source."""
    skip: int = 0
    """How many matching tasks of that page were already listed."""

    def encode(self) -> str:
        """The place as a cursor for users."""
        return f"{self.source or _ANY}.{self.cursor}.{self.skip}"

    @classmethod
    def read(cls, text: object, sources: Sequence[Source]) -> Self:
        """Read a cursor. Raises InvalidTask unless it belongs to a listing of these sources."""
        named = {source or _ANY: source for source in sources}
        parts = _PLACE.fullmatch(text) if isinstance(text, str) else None
        if parts is None or parts[1] not in named or int(parts[2]) >= 2**64:
            raise InvalidTask(
                f"cursor={text!r}: give the cursor of a listing with the same state and tag"
            )
        return cls(named[parts[1]], parts[2], int(parts[3]))


def find(
    sources: Sequence[Source],
    place: Place,
    *,
    func: str | None,
    tag: str | None,
    matches: Callable[[Task], bool],
    limit: int,
) -> Steps[Listing]:
    """Look for up to `limit` tasks, starting at `place`, in one source after the other."""
    tasks: list[Task] = []
    examined = 0
    while True:
        page = yield from calls.list_page(
            state=place.source, func=func, tag=tag, cursor=place.cursor
        )
        examined += page.examined
        found = [task for task in page.tasks if matches(task)][place.skip :]
        room = limit - len(tasks)
        tasks += found[:room]
        rest = _after(place, page.cursor, sources)
        if len(found) > room:
            rest = Place(place.source, place.cursor, place.skip + room)
        if rest is None:
            return Listing(tasks=tasks, examined=examined, complete=True)
        if len(tasks) == limit or examined >= MAX_EXAMINED:
            return Listing(tasks=tasks, examined=examined, complete=False, cursor=rest.encode())
        place = rest


def _after(place: Place, cursor: str, sources: Sequence[Source]) -> Place | None:
    """Where the next page begins: in the next source, if this one is at its end."""
    if cursor != BEGINNING:
        return Place(place.source, cursor)
    later = sources[sources.index(place.source) + 1 :]
    return Place(later[0]) if later else None
