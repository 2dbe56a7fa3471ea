"""Statistics of the tasks that ended last."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from expirebridge.bridge import Operations
from expirebridge.task.calls.call import Steps
from expirebridge.task.task import State, Task

SAMPLE = 200
"""How many tasks are examined: so many that succeeded last, and so many that failed last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStatistics:
    """Statistics of the recent tasks of a function."""

    succeeded: int
    failed: int
    lateness: float | None
    """99 % of its succeeded tasks were at most this late, in seconds."""
    duration: float | None
    """99 % of its succeeded tasks took at most this long, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTasks:
    """The tasks that ended last, latest first."""

    succeeded: list[Task]
    failed: list[Task]

    @property
    def per_minute(self) -> float:
        """How many tasks end per minute, judged by the last ones."""
        now = datetime.now(UTC)
        ages = [(now - one.ended).total_seconds() for one in self._ended if one.ended]
        recent = [age for age in ages if age < 60]
        if len(recent) < SAMPLE:
            return len(recent)
        # More ended than were examined: their ages show how long so many take.
        return len(recent) * 60 / max(*recent, 0.001)

    def ended_within(self, seconds: float) -> list[Task]:
        """Those that ended in the last seconds, however they ended."""
        now = datetime.now(UTC)
        return [
            one for one in self._ended if one.ended and (now - one.ended).total_seconds() < seconds
        ]

    @property
    def _ended(self) -> list[Task]:
        return [*self.succeeded, *self.failed]

    def functions(self) -> dict[str, FunctionStatistics]:
        """How each function did, by its tasks among these."""
        of: dict[str, list[Task]] = defaultdict(list)
        for task in self._ended:
            of[task.func].append(task)
        return {func: _of_function(of[func]) for func in sorted(of)}

    def lateness(self, fraction: float) -> float | None:
        """The lateness in s that this fraction of the last succeeded tasks does not exceed."""
        return _quantile(
            [late for task in self.succeeded if (late := _late(task)) is not None], fraction
        )


def read_recent(operations: Operations) -> Steps[RecentTasks]:
    """Read the tasks that ended last."""
    succeeded = yield from operations.list(state=State.SUCCEEDED, limit=SAMPLE)
    failed = yield from operations.list(state=State.FAILED, limit=SAMPLE)
    return RecentTasks(succeeded=succeeded.tasks, failed=failed.tasks)


def _late(task: Task) -> float | None:
    """Its lateness in seconds; nobody was late while it waited for slots."""
    if task.started is None:
        return None
    return max((task.started - task.due).total_seconds() - task.waited, 0)


def _took(task: Task) -> float | None:
    return (task.ended - task.started).total_seconds() if task.ended and task.started else None


def _quantile(values: Sequence[float], fraction: float) -> float | None:
    """The value that this fraction of the values does not exceed."""
    return sorted(values)[math.ceil(len(values) * fraction) - 1] if values else None


def _of_function(tasks: Sequence[Task]) -> FunctionStatistics:
    well = [task for task in tasks if task.state is State.SUCCEEDED]
    late = [late for task in well if (late := _late(task)) is not None]
    took = [took for task in well if (took := _took(task)) is not None]
    return FunctionStatistics(
        succeeded=len(well),
        failed=len(tasks) - len(well),
        lateness=_quantile(late, 0.99),
        duration=_quantile(took, 0.99),
    )
