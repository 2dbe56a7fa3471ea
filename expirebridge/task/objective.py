"""Objectives: how late the tasks of a function may begin, and how well that is kept."""

from dataclasses import dataclass

TARGET = 0.99
"""The share of the tasks of a function that are to begin within its objective."""


@dataclass(frozen=True, slots=True)
class Objective:
    """How an attempt kept to the objective of its function."""

    seconds: float
    """How late it might begin."""
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveResult:
    """How the attempts of a function kept to its objective in some time."""

    func: str
    seconds: float
    """How late they might begin."""
    within: int
    over: int

    @property
    def share(self) -> float:
        """The share of them that began within it."""
        return self.within / max(self.within + self.over, 1)

    @property
    def burn_rate(self) -> float:
        """How many times as many began too late as the target allows; above 1 is too much."""
        return (1 - self.share) / (1 - TARGET)
