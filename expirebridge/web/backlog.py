"""How many tasks are overdue, and how fast that changes."""

from collections import deque
from dataclasses import dataclass

from expirebridge.model.durations import human

_WINDOW = 15.0
"""Seconds over which the change is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The tasks that are overdue."""

    overdue: int
    waited: float
    """How many seconds the first of them has waited."""
    per_second: float | None
    """How many tasks it grows by each second; negative: it drains. None: not known yet."""

    def __str__(self) -> str:
        """A sentence about the backlog, and one about its change."""
        tasks = "1 task is" if self.overdue == 1 else f"{self.overdue:,} tasks are"
        return f"{tasks} overdue, the first for {human(self.waited)}. {self._change()}"

    def _change(self) -> str:
        if self.per_second is None:
            return "How fast they drain is known in a moment."
        if self.per_second == 0:
            return "The backlog stays as it is."
        if self.per_second > 0:
            return f"The backlog grows by {_rate(self.per_second)}."
        gone = human(self.overdue / -self.per_second)
        return f"The backlog drains by {_rate(-self.per_second)}: gone in about {gone}."


class Readings:
    """How many tasks were overdue at each look of the last seconds."""

    def __init__(self) -> None:
        self._taken: deque[tuple[float, int]] = deque()

    def note(self, at: float, overdue: int) -> None:
        """Add a reading, taken at that second."""
        self._taken.append((at, overdue))
        while at - self._taken[0][0] > _WINDOW:
            self._taken.popleft()

    @property
    def per_second(self) -> float | None:
        """The change from the first reading to the last; None if there is only one."""
        (began, before), (ended, after) = self._taken[0], self._taken[-1]
        return (after - before) / (ended - began) if ended > began else None


def _rate(per_second: float) -> str:
    if per_second >= 10:
        return f"{per_second:,.0f} a second"
    return f"{per_second * 60:,.0f} a minute"
