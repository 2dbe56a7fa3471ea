"""What a measurement is, and one case of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.lab.contender import Contender

Variant = Mapping[str, Any]
"""How a measurement is done this time, such as {"pending": 200000}. It is kept with the figures."""
Figures = dict[str, Any]
PIECE: Final = 900.0
"""Seconds that one call with `--next` may take, so the longest that a step may take."""


@dataclass(frozen=True)
class Scale:
    """The full size, or the part of it that a quick run has."""

    part: float

    @property
    def is_quick(self) -> bool:
        """Whether it is not the full size."""
        return self.part < 1

    def __call__(self, count: int) -> int:
        """So many of `count` tasks."""
        return max(int(count * self.part), 1) if count else 0

    def seconds(self, seconds: float) -> float:
        """So much of a time that tasks are spread over, but at least a second."""
        return max(seconds * self.part, min(seconds, 1.0))


FULL: Final = Scale(1.0)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One contender, one server, one variant."""

    contender: Contender
    binary: Path
    variant: Variant


@dataclass(frozen=True)
class Quick:
    """How a measurement is done in a quick run."""

    part: float
    """Of the full number of tasks."""
    seconds: float
    """About how long a step takes, until one was measured."""
    longest_interval: float = 1.0
    """Seconds. A contender that looks less often takes no part, for each step would wait for it."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement, which is one file in benchmarks/measurements."""

    name: str
    variants: Callable[[Contender, Scale], list[Variant]]
    """The variants for a contender; none if it takes no part."""
    measure: Callable[[Case], Figures]
    limit: float
    """Seconds after which one round of one variant is given up; at most a piece."""
    seconds: float
    """About how long a step takes, until one was measured."""
    rounds: int | None = None
    """Rounds, where it is not left to the command line."""
    quick: Quick | None = None
    """None if it is not part of a quick run."""
