"""The calls about series: recurring tasks and their ticks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from expirebridge.series.replies import StoredSeries, series_from
from expirebridge.store.record_values import text
from expirebridge.task.calls.call import (
    CHUNK,
    Argument,
    ByItem,
    Command,
    OfId,
    by_id,
    milliseconds,
    new_nonce,
    rows_of,
    script,
)
from expirebridge.task.task import Change

MAX_TICKS = 20
"""Ticks that one request makes at most: making one costs the server as much as claiming a task."""


class Times(NamedTuple):
    """The next tick of a series, in ms."""

    tick: int
    """The scheduled time."""
    due: int
    """Its due time: later by the jitter."""
    successor: int | None
    """The due time of the tick after it; None if there is none."""
    tzdata: str = ""
    """By which data of the zone that was computed, as `tzdata_at`; empty without a zone."""

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for the scripts."""
        successor = "" if self.successor is None else self.successor
        return (self.tick, self.due, successor, self.tzdata)


def _encoded(times: Times | None) -> tuple[Argument, ...]:
    return ("", "", "", "") if times is None else times.encode()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSeries:
    """A series to be put, checked and encoded."""

    id: str
    fingerprint: str
    """Of its fields."""
    declared: bool
    """True if handlers declare it."""
    fields: dict[str, Argument] = field(default_factory=dict)
    """Its record: call, spec, overlap, and the fields of its ticks."""


class Put(IntEnum):
    """The outcome of putting a series."""

    CREATED = 1
    CHANGED = 2
    UNCHANGED = 3
    RACE = 4  # another changed it meanwhile
    LATE = 5  # the time of its next tick has passed


class Putting(NamedTuple):
    """A series to be put, in place of the stored one."""

    series: NewSeries
    before: bytes
    """The stored fingerprint; empty: there is no such series."""
    made: int
    """Its creation, in ms, if it is new."""
    times: Times | None
    """Its next tick; None: there is none any more."""

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for put_series.lua."""
        series = self.series
        pairs = [item for pair in series.fields.items() for item in pair]
        return (
            series.id, series.fingerprint, self.before, int(series.declared), self.made,
            *_encoded(self.times), len(series.fields), *pairs,
        )  # fmt: skip


def put_series(items: Sequence[Putting]) -> Command[list[Put]]:
    """Make series, or change them, each with its next tick."""
    arguments = [argument for item in items for argument in item.encode()]
    return script(
        "put_series", *arguments,
        read=lambda reply: [Put(code) for code in reply],
        route=ByItem(items, attrgetter("series.id"), put_series),
    )  # fmt: skip


class DueSeries(NamedTuple):
    """A series whose next tick is to be made."""

    id: str
    tick: int
    """The scheduled time of its latest tick, in ms."""
    spec: bytes
    """Its schedule, as JSON."""
    made: int
    """Its creation, in ms."""


class FoundDue(NamedTuple):
    """The series whose next tick is to be made, or the first of them."""

    now: int
    """The server's time, in ms."""
    following: int | None
    """The ms at which a tick of another series is to be made; it may have passed."""
    series: list[DueSeries]


def find_due_series(most: int = MAX_TICKS) -> Command[FoundDue]:
    """Find the series whose latest tick was due: the next one is to be made."""
    return script("find_due_series", most, read=_read_due)


def _read_due(reply: list[Any]) -> FoundDue:
    now, following, *columns = reply
    return FoundDue(
        now,
        following if following >= 0 else None,
        [DueSeries(text(id), *rest) for id, *rest in rows_of(columns, 4)],
    )


class NextTick(NamedTuple):
    """The next tick of a series, after its latest, or in its place."""

    id: str
    latest: int
    times: Times | None


def make_ticks(items: Iterable[NextTick]) -> Command[list[bool]]:
    """Make the next tick of each series; returns of each whether it was made here."""
    arguments: list[Argument] = []
    for item in items:
        arguments += (item.id, item.latest, *_encoded(item.times))
    return script("make_ticks", *arguments, read=lambda reply: [code == 1 for code in reply])


class Outdated(NamedTuple):
    """A series whose waiting tick was computed by older data of its time zone."""

    id: str
    tick: int
    """The scheduled time of that tick, in ms."""
    spec: bytes
    """Its schedule, as JSON."""
    made: int
    """Its creation, in ms."""
    tzdata: str
    """By which data, as `tzdata_at`."""


def find_outdated(version: str, skip: int, most: int = MAX_TICKS) -> Command[list[Outdated]]:
    """Find the series whose waiting tick was computed by older data than this version."""
    return script(
        "find_outdated", version, skip, most,
        read=lambda reply: [
            Outdated(text(id), tick, spec, made, text(tzdata))
            for id, tick, spec, made, tzdata in rows_of(reply, 5)
        ],
    )  # fmt: skip


class Retimed(IntEnum):
    """The outcome for a waiting tick that newer zone data may move."""

    MOVED = 1
    STAYS = 2  # its time is the same, it does not wait as it was made, or the series changed
    NOT_LATER = 3  # it was computed by data as late


def retime_ticks(items: Iterable[NextTick]) -> Command[list[Retimed]]:
    """Move the waiting tick of each series to where later data of its zone put it."""
    arguments: list[Argument] = []
    for item in items:
        arguments += (item.id, item.latest, *_encoded(item.times))
    return script("retime_ticks", *arguments, read=lambda reply: [Retimed(code) for code in reply])


class DeclarationState(IntEnum):
    """The action that one declaration of a listener requires."""

    STANDS = 1
    PUT = 2
    OTHERS = 3  # another listener's declaration counts
    SCHEDULED = 4  # a producer has scheduled a series of this id


class Declared(NamedTuple):
    """The state of the declarations of a listener."""

    now: int
    """The server's time, in ms."""
    standings: list[tuple[DeclarationState, str]]
    """Of each: the action, and the stored fingerprint; empty: none."""


def declare_series(
    listener: str, lease: float, declarations: Iterable[tuple[str, str]]
) -> Command[Declared]:
    """Say which series a listener declares: id and fingerprint of each."""
    pairs = [item for pair in declarations for item in pair]
    return script(
        "declare_series", listener, milliseconds(lease), *pairs,
        read=lambda reply: Declared(
            reply[0],
            [(DeclarationState(code), text(known)) for code, known in rows_of(reply[1:], 2)],
        ),
    )  # fmt: skip


class Removal(IntEnum):
    """The outcome of removing a series."""

    REMOVED = 1
    CARRIED = 3  # a live listener declares it
    NOT_FOUND = 5


CHANGES = {
    Removal.REMOVED: Change.REMOVED,
    Removal.CARRIED: Change.DECLARED,
    Removal.NOT_FOUND: Change.NOT_FOUND,
}
"""What users read of each."""


def remove_series(ids: Sequence[str], lease: float) -> Command[list[Removal]]:
    """Remove series, unless a listener declares them."""
    return script(
        "remove_series", milliseconds(lease), new_nonce(), *ids,
        read=lambda reply: [Removal(code) for code in reply],
        route=by_id(ids, partial(remove_series, lease=lease)),
    )  # fmt: skip


def pause_series(id: str) -> Command[bool]:
    """Pause a series; returns whether there is one."""
    return script("pause_series", id, read=lambda reply: reply == [1], route=OfId(id))


class Resumption(IntEnum):
    """The outcome of resuming a series."""

    RESUMED = 1
    RACE = 4  # it changed meanwhile, or its next time has passed
    NOT_FOUND = 5


def resume_series(id: str, fingerprint: bytes, times: Times | None) -> Command[Resumption]:
    """Let a paused series go on with this tick."""
    return script(
        "resume_series", id, fingerprint, *_encoded(times), read=Resumption, route=OfId(id)
    )


def run_series(id: str) -> Command[str | None]:
    """Make one more tick, due now; returns its id, or None if there is no such series."""
    return script(
        "run_series", new_nonce(), id, read=lambda tick: text(tick) if tick is not None else None,
        route=OfId(id),
    )  # fmt: skip


class Read(NamedTuple):
    """A series as it was at that time."""

    now: int
    """The server's time, in ms."""
    series: StoredSeries | None


def get_series(id: str, lease: float) -> Command[Read]:
    """Read one series."""
    return script("get_series", milliseconds(lease), id, read=_read_one, route=OfId(id))


def _read_one(reply: list[Any]) -> Read:
    now, row = reply
    return Read(now, series_from(row) if row else None)


@dataclass(frozen=True, slots=True)
class SeriesPage:
    """A part of a listing of series."""

    cursor: str
    """The cursor of the next page; "0" if this was the last."""
    now: int
    """The server's time, in ms."""
    series: list[StoredSeries]


def series_page(cursor: str, lease: float, count: int = CHUNK) -> Command[SeriesPage]:
    """Read series, a page at a time: those first whose next tick is to be made first."""
    return script(
        "list_series", milliseconds(lease), cursor, count,
        read=lambda reply: SeriesPage(
            text(reply[0]), reply[1], [series_from(row) for row in reply[2:] if row]
        ),
    )  # fmt: skip
