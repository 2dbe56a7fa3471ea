"""Reads series out of the replies of scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from expirebridge.store.record_values import text, whole
from expirebridge.task.task import State

_NAMES = (
    "call", "args", "spec", "fingerprint", "declared", "made", "tick", "due", "tzdata", "paused",
    "last", "began", "late", "outcome", "ended", "succeeded", "running", "missed", "overlapped",
    "tags", "retry", "timeout", "misfire",
)  # fmt: skip
"""In the order of `SHOWN_OF_SERIES` in include/series.lua."""
NEVER = 2**53 - 1
"""The place of a series that makes no ticks."""


@dataclass(frozen=True, slots=True)
class StoredSeries:
    """A series as it is stored."""

    id: str
    place: int
    """The ms at which its next tick is to be made, or NEVER."""
    due: int | None
    """The due time of its waiting tick, in ms; None if none waits."""
    waiting: State | None
    """The state of the tick that was made last."""
    last: State | None
    """The state of the tick that began last, while its record is kept."""
    carriers: int
    """How many live listeners declare it."""
    record: Mapping[str, bytes]
    """Its fields that have a value."""

    def whole(self, name: str) -> int | None:
        """A field that holds a number."""
        return whole(self.record.get(name, b""))

    def text(self, name: str) -> str:
        """A field as text; empty if it is absent."""
        return text(self.record.get(name, b""))


def series_from(row: Sequence[Any]) -> StoredSeries:
    """Read one series. What cannot be read is left out, as in a task."""
    id, place, due, waiting, last, carriers, values = row
    found = zip(_NAMES, values, strict=True)
    return StoredSeries(
        text(id),
        int(min(float(place), NEVER)) if place is not None else NEVER,
        due,
        _state(waiting),
        _state(last),
        carriers,
        {name: value for name, value in found if value is not None},
    )


def _state(raw: bytes | None) -> State | None:
    known = text(raw) if raw is not None else ""
    return State(known) if known in set(State) else None
