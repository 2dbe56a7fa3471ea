"""Calls that tell what is to come: how many tasks come due, and how long they take."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from expirebridge.store.record_values import text
from expirebridge.task.calls.call import Command, Everywhere, milliseconds, rows_of, script


@dataclass(frozen=True, slots=True)
class ComingSpan:
    """A part of the coming time, and what is due in it."""

    start: int
    """Its beginning on the server's clock, in ms."""
    count: int
    sample: Counter[str]
    """How many of those that were looked at are for each function."""
    beside: Counter[str] = field(default_factory=Counter)
    """How many of them are not in Redis yet, by function."""

    def by_function(self) -> dict[str, int]:
        """Estimate how many are for each function, most first."""
        looked, here = self.sample.total(), self.count - self.beside.total()
        found = Counter({func: round(one * here / looked) for func, one in self.sample.items()})
        found.update(self.beside)
        return dict(found.most_common())


@dataclass(frozen=True, slots=True)
class Forecast:
    """The numbers of tasks that come due, by time."""

    now: int
    """The server's time, in ms."""
    overdue: ComingSpan
    """Pending tasks that are due already; it starts now."""
    waiting: int
    """Tasks that are due, and wait for a slot, for a start of a rate, or for the end of a hold."""
    later: int
    """Pending tasks that are due after the last span."""
    series: int
    """How many series there are: of each, only the next tick is counted."""
    spans: list[ComingSpan]


def forecast(width: float, spans: int, *, sample: int) -> Command[Forecast]:
    """Count what is due in each of so many spans of `width` seconds.

    Of each span up to `sample` tasks are looked at, to see which functions they are for.
    """

    def read(reply: list[Any]) -> Forecast:
        now, overdue, waiting, later, series, looked_at, *columns = reply
        return Forecast(
            now, ComingSpan(now, overdue, Counter(map(text, looked_at))), waiting, later, series,
            [
                ComingSpan(now + number * milliseconds(width), count, Counter(map(text, functions)))
                for number, (count, functions) in enumerate(rows_of(columns, 2))
            ],
        )  # fmt: skip

    return script(
        "forecast", milliseconds(width), spans, sample, read=read, route=Everywhere(_joined)
    )


def _joined(each: Sequence[Forecast]) -> Forecast:
    """One forecast of all partitions, from when the first was asked."""
    return Forecast(
        each[0].now,
        _sum([one.overdue for one in each]),
        sum(one.waiting for one in each),
        sum(one.later for one in each),
        sum(one.series for one in each),
        [_sum(parts) for parts in zip(*(one.spans for one in each), strict=True)],
    )


def _sum(parts: Sequence[ComingSpan]) -> ComingSpan:
    return ComingSpan(
        parts[0].start,
        sum(part.count for part in parts),
        sum((part.sample for part in parts), Counter()),
    )


# The calls that keep how long handlers take.


@dataclass(frozen=True, slots=True)
class Took:
    """How long the handlers of a function took lately."""

    attempts: float
    """How many are counted: at most some thousand, of which older ones count less."""
    seconds: float
    """In all."""


def note_durations(took: Mapping[str, Took]) -> Command[None]:
    """Add the attempts that ended, by function, to what is known of their durations."""
    items = [
        word
        for func, one in took.items()
        for word in (func, one.attempts, milliseconds(one.seconds))
    ]
    return script("note_durations", *items, read=lambda _: None)


def read_durations() -> Command[dict[str, Took]]:
    """Read how long the handlers of each function took lately."""
    return script(
        "read_durations",
        read=lambda reply: {
            text(func): took for func, raw in rows_of(reply, 2) if (took := _took(raw)) is not None
        },
        route=Everywhere(_joined_durations),
    )


def _took(raw: bytes) -> Took | None:
    """None for what another client wrote there."""
    try:
        attempts, ms = map(float, raw.split())
    except ValueError:
        return None
    is_sane = math.isfinite(attempts) and math.isfinite(ms) and attempts > 0 and ms >= 0
    return Took(attempts, ms / 1000) if is_sane else None


def _joined_durations(each: Sequence[dict[str, Took]]) -> dict[str, Took]:
    joined: dict[str, Took] = {}
    for func, took in (item for one in each for item in one.items()):
        known = joined.get(func, Took(0, 0))
        joined[func] = Took(known.attempts + took.attempts, known.seconds + took.seconds)
    return joined
