"""What a measurement is, and one case of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lab.contender import Contender

Variant = Mapping[str, Any]
"""How a measurement is done this time, such as {"pending": 200000}. It is kept with the figures."""
Figures = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """A part of the full size, for trying things out."""

    part: float

    def __call__(self, count: int) -> int:
        """So many of `count` tasks."""
        return max(int(count * self.part), 1) if count else 0

    def seconds(self, seconds: float) -> float:
        """So much of a time that tasks are spread over, but at least a second."""
        return max(seconds * self.part, min(seconds, 1.0))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One contender, one server, one variant."""

    contender: Contender
    binary: Path
    variant: Variant


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One measurement, which is one file in benchmarks/measurements."""

    name: str
    variants: Callable[[Contender, Scale], list[Variant]]
    """The variants for a contender; none if it takes no part."""
    measure: Callable[[Case], Figures]
    limit: float
    """Seconds after which one round of one variant is given up."""
    rounds: int | None = None
    """Rounds, where it is not left to the command line."""
