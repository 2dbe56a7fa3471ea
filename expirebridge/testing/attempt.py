"""An attempt that ran in a test, and how it ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson

from expirebridge.hooks import End
from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.follow_up import task_of
from expirebridge.listener.execution.outcome import AttemptOutcome
from expirebridge.task.durations import human
from expirebridge.task.key_ring import Content
from expirebridge.task.task import Task
from expirebridge.task.texts import short_repr
from expirebridge.testing.errors import TaskFailed

WAITS = {End.RETRY, End.RELEASED, End.SNOOZED, End.DROPPED}
"""After these a task is due again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """One attempt of one task."""

    task: Task
    """The task as its handler saw it: `id`, `args`, `kwargs`, `attempt`, `due`, `tags`."""
    at: datetime
    """The time of its claim, on the server's clock, which the test moved."""
    end: End
    """`succeeded`, `retry`, `failed`, `snoozed`; `released` if it waits again without an attempt
    being used: it was too late, or no listener has its function."""
    delay: float | None
    """Seconds until it is due again, if it is: by its retry policy, `Retry`, `Snooze` or `Busy`."""
    result: Any
    """The handler's result, as JSON keeps it."""
    then: Task | None
    """The follow-up, if the handler returned one; `run_handler` does not make it."""
    reason: str
    """Why it did not succeed, with a traceback if the handler raised."""
    error: BaseException | None
    """The handler's exception, if it failed for that; `Retry`, `Snooze`, `Busy` and `Discard` are
    answers."""
    took: float
    """Seconds that the handler took."""
    spent: Mapping[str, int]
    """What it told `current_task().spend`, by what the budget is of."""

    def __repr__(self) -> str:
        return short_repr(self, "task", "at", "end", "delay", "reason")

    @property
    def func(self) -> str:
        """The name of its function."""
        return self.task.func

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.task.attempt

    @property
    def late(self) -> float:
        """Seconds from its due time until it was claimed."""
        return (self.at - self.task.due) / timedelta(seconds=1)

    def raise_failure(self) -> None:
        """Raise what the handler raised, or TaskFailed if it failed for another reason."""
        if self.error is not None:
            raise self.error
        if self.end is End.FAILED or (self.end is End.RELEASED and "no handler" in self.reason):
            raise TaskFailed(f"{self.task.func} {self.task.id}: {self.reason}")

    def __str__(self) -> str:
        again = f", again in {human(self.delay)}" if self.delay is not None else ""
        why = f": {self.reason.splitlines()[-1]}" if self.reason else ""
        return (
            f"{self.at:%Y-%m-%d %H:%M:%S} {shown(self.task)} attempt {self.attempt} "
            f"{self.end}{again}{why}"
        )


def ran(attempt: Attempt, outcome: AttemptOutcome, at: datetime) -> Ran:
    """Describe an attempt that ended."""
    settlement, then = outcome.settlement, outcome.settlement.then
    result: str | bytes = settlement.text if outcome.end is End.SUCCEEDED else b""
    if attempt.outcomes.key_ring is not None and result:
        result = attempt.outcomes.key_ring.open(
            result if isinstance(result, bytes) else result.encode(),
            attempt.task.id,
            Content.RESULT,
        )
    return Ran(
        task=attempt.task,
        at=at,
        end=outcome.end,
        delay=settlement.delay if outcome.end in WAITS else None,
        result=orjson.loads(result) if result else None,
        then=None if then is None else task_of(then, attempt.claimed, at.timestamp()),
        reason=outcome.reason,
        error=outcome.error,
        took=attempt.took,
        spent={} if attempt.task.spending is None else attempt.task.spending.spent,
    )


def shown(task: Task) -> str:
    """A task as a person would write its call."""
    args = [repr(arg) for arg in task.args]
    args += [f"{name}={value!r}" for name, value in task.kwargs.items()]
    text = ", ".join(args)
    return f"{task.func}({text if len(text) <= 120 else text[:117] + '...'})"
