"""Calls that tell what is to come: how many tasks come due, and how long they take."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from expirebridge.store.commands.call import Command, Everywhere, milliseconds, rows_of, script
from expirebridge.store.task_records import text


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
    """The numbers of tasks that come due, by time."""

    now: int
    """The server's time, in ms."""
    overdue: int
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
        now, overdue, waiting, later, series, *columns = reply
        return Forecast(
            now, overdue, waiting, later, series,
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
        sum(one.waiting for one in each),
        sum(one.later for one in each),
        sum(one.series for one in each),
        spans,
    )
