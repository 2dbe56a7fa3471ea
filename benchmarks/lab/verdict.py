"""Holds what was asked for against what was run, task by task."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Dues:
    """The tasks of one order, and when each is due."""

    first: int
    count: int
    due_ms: int
    spread_ms: int = 0

    @property
    def numbers(self) -> range:
        """The numbers of the tasks."""
        return range(self.first, self.first + self.count)

    def due(self, number: int) -> float:
        """When a task is due, in seconds since 1970; the driver reckons the same."""
        return (self.due_ms + (number - self.first) * self.spread_ms // self.count) / 1000

    @property
    def last(self) -> float:
        """When the last of them is due."""
        return self.due(self.first + self.count - 1)


@dataclass
class Runs:
    """What the journal says of each task."""

    began: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    workers: Counter[int] = field(default_factory=Counter)
    """How many tasks each process began."""

    @classmethod
    def read(cls, journal: Path) -> "Runs":
        """Read a journal. Tasks with a number below 0 only asked whether the worker is up."""
        return cls.of(journal.read_text().splitlines(keepends=True))

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Runs":
        """Read the lines of a journal; the last may not be whole yet."""
        runs = cls()
        for line in lines:
            if not line.endswith("\n"):
                continue
            what, number, at, pid = line.split()
            if int(number) < 0:
                continue
            (runs.began if what == "began" else runs.ended)[int(number)].append(float(at))
            runs.workers[int(pid)] += what == "began"
        return runs


@dataclass(frozen=True)
class Verdict:
    """Whether each task was run once. A task that began but did not end was not run."""

    asked: int
    ran: int
    lost: int
    """Of those asked for, how many did not run until the waiting ended."""
    twice: int
    """How many began more than once."""
    early: int
    """How many began before they were due."""
    unasked: int
    """How many ran that should not have: those that were only to be pending, or never made."""

    @classmethod
    def of(cls, dues: Iterable[Dues], runs: Runs, *, issued: int) -> "Verdict":
        """Hold the tasks against the runs.

        Numbers from `issued` on were never given to a task that should have run.
        """
        asked = {number: order.due(number) for order in dues for number in order.numbers}
        ran = sum(1 for number in asked if runs.ended.get(number))
        began = {number: runs.began[number] for number in runs.began.keys() & asked.keys()}
        return cls(
            asked=len(asked),
            ran=ran,
            lost=len(asked) - ran,
            twice=sum(1 for starts in began.values() if len(starts) > 1),
            early=sum(1 for number, starts in began.items() if min(starts) < asked[number]),
            unasked=sum(1 for number in runs.began.keys() | runs.ended.keys() if number >= issued),
        )


def lateness(dues: Dues, runs: Runs) -> list[float]:
    """How late each task began, in ms, sorted; infinite for one that did not begin."""
    starts = {number: min(runs.began.get(number, ()), default=math.inf) for number in dues.numbers}
    return sorted((starts[number] - dues.due(number)) * 1000 for number in dues.numbers)


def percentile(ordered: list[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed."""
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]
