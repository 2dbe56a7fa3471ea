"""The call that counts what comes due, and when."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expirebridge.store.commands.call import Call, milliseconds, rows_of, script
from expirebridge.store.commands.routes import Everywhere
from expirebridge.store.reading import text


@dataclass(frozen=True, slots=True)
class ComingSpan:
    """A part of the coming time, and what is due in it."""

    start: int
    """Its beginning on the server's clock, in ms."""
    count: int
    sample: Counter[str]
    """How many of those that were looked at are for each function."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What comes due, and when."""

    now: int
    """The server's time, in ms."""
    overdue: int
    later: int
    """Pending tasks that are due after the last span."""
    series: int
    """How many series there are: of each, only the next tick is counted."""
    spans: list[ComingSpan]


def forecast(width: float, spans: int, *, sample: int) -> Call[Forecast]:
    """Count what is due in each of so many spans of `width` seconds.

    Of each span up to `sample` tasks are looked at, to see which functions they are for.
    """

    def read(reply: list[Any]) -> Forecast:
        now, overdue, later, series, *columns = reply
        return Forecast(
            now, overdue, later, series,
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
    spans = [
        ComingSpan(
            parts[0].start,
            sum(part.count for part in parts),
            sum((part.sample for part in parts), Counter()),
        )
        for parts in zip(*(one.spans for one in each), strict=True)
    ]
    return Forecast(
        each[0].now,
        sum(one.overdue for one in each),
        sum(one.later for one in each),
        sum(one.series for one in each),
        spans,
    )
