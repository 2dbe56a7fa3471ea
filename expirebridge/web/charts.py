"""Computes the positions of a chart's columns; `chart.html` draws them.

Each chart has drawings of several widths, and a screen shows one of them: scaled text would be
unreadable.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from expirebridge.task.durations import human
from expirebridge.task.task import from_ms

_WIDTHS = {"full": 1460, "wide": 720, "narrow": 340}
_HEIGHT = 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 8, 10, 22
_COLUMNS_OF_AN_HOUR = 60
_LEAST = 1.5
"""The least height in pixels of a value above 0, so that one failure among thousands is seen."""

DECADES = (1, 10, 100, 1000, 10_000, 60_000, 600_000)
"""The marks of an axis of milliseconds."""


@dataclass(frozen=True, slots=True)
class Column:
    """The values of one span of time."""

    at: int
    """Its beginning, in ms."""
    parts: tuple[float, ...]
    label: str


@dataclass(frozen=True, slots=True)
class ChartPart:
    """A rectangle of a column."""

    kind: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class ChartColumn:
    """A column with its position."""

    x: float
    width: float
    parts: tuple[ChartPart, ...]
    label: str
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart for one width."""

    name: str
    width: int
    height: int
    left: float
    right: float
    top: float
    base: float
    """The line that the columns stand on."""
    grid: list[tuple[float, str]]
    ticks: list[tuple[float, str]]
    places: list[ChartColumn]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, for all widths."""

    unit: str
    empty: bool
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    """The vertical axis: its marks, and the height of a value, from 0 to 1."""

    marks: Sequence[tuple[float, str]]
    fraction: Callable[[float], float]


def bars(columns: Sequence[Column], *, unit: str, span: int) -> Chart:
    """A chart whose columns are stacked parts; each column covers `span` ms."""
    highest = max((sum(column.parts) for column in columns), default=0)
    step = _step(highest)
    top = max(math.ceil(highest / step), 1) * step
    marks = [(step * i, _short(step * i)) for i in range(round(top / step) + 1)]
    axis = _Axis(marks, lambda value: value / top)
    return _chart(columns, axis, unit=unit, span=span, stacked=True)


def decades(columns: Sequence[Column], *, unit: str, span: int) -> Chart:
    """A chart of milliseconds on a logarithmic axis; parts are drawn one behind the other."""
    highest = max((max(column.parts, default=0) for column in columns), default=0)
    top = next((mark for mark in DECADES[2:] if mark >= highest), DECADES[-1])
    marks = [(mark, human(mark / 1000)) for mark in DECADES if mark <= top]
    # The lowest mark is above the base line, so that tasks on time are seen, too.
    low = math.log10(DECADES[0]) - 0.4

    def fraction(value: float) -> float:
        if value <= 0:
            return 0.0
        return max(0.0, (math.log10(min(value, top)) - low) / (math.log10(top) - low))

    return _chart(columns, _Axis(marks, fraction), unit=unit, span=span, stacked=False)


def _chart(columns: Sequence[Column], axis: _Axis, *, unit: str, span: int, stacked: bool) -> Chart:
    drawings = tuple(
        _draw(name, width, columns, axis, span, stacked=stacked) for name, width in _WIDTHS.items()
    )
    return Chart(unit, not any(any(column.parts) for column in columns), drawings)


def _draw(
    name: str, width: int, columns: Sequence[Column], axis: _Axis, span: int, *, stacked: bool
) -> Drawing:
    base, room = _HEIGHT - _BOTTOM, _HEIGHT - _BOTTOM - _TOP
    pitch = (width - _LEFT - _RIGHT) / max(len(columns), 1)
    gap = min(1.0, pitch / 4)
    places = []
    ticks = []
    every = 10 if len(columns) <= _COLUMNS_OF_AN_HOUR else 16  # ten minutes, or four hours
    for number, column in enumerate(columns):
        x = _LEFT + number * pitch
        start = from_ms(column.at)
        parts = tuple(_parts(column.parts, axis, base, room, stacked=stacked))
        places.append(
            ChartColumn(
                round(x, 2), round(pitch - gap, 2), parts, column.label,
                start, from_ms(column.at + span),
            )
        )  # fmt: skip
        if column.at // span % every == 0 and x + 20 < width:
            ticks.append((round(x, 2), f"{start:%H:%M}"))
    grid = [(round(base - axis.fraction(value) * room, 2), text) for value, text in axis.marks]
    return Drawing(
        name, width, _HEIGHT, _LEFT, width - _RIGHT, _TOP, base, grid, ticks, places
    )  # fmt: skip


def _parts(
    values: Sequence[float], axis: _Axis, base: float, room: float, *, stacked: bool
) -> list[ChartPart]:
    parts = []
    floor = base
    for kind, value in enumerate(values):
        if value > 0:
            height = max(axis.fraction(value) * room, _LEAST)
            parts.append(ChartPart(kind, round(floor - height, 2), round(height, 2)))
            if stacked:
                floor -= height
    return parts


def _step(highest: float) -> float:
    """The distance between about four marks: 1, 2 or 5 times a power of ten."""
    rough = max(highest, 1) / 4
    power = 10 ** math.floor(math.log10(rough)) if rough >= 1 else 1
    return next((n * power for n in (1, 2, 5) if n * power >= rough), 10 * power)


def _short(value: float) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
