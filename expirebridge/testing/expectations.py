"""The expectations of a test about the tasks it made, and the messages if they fail."""

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from expirebridge.task import keys
from expirebridge.task.durations import human
from expirebridge.task.task import UNCLAIMED, State, Task
from expirebridge.testing.attempt import shown

MOST_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class TaskPattern:
    """A kind of task."""

    func: str
    args: Sequence[Any] | None
    """Its positional arguments; None: any."""
    kwargs: Mapping[str, Any] | None
    due_in: float | None
    """Seconds until it is due; None: whenever, and also a task that has ended."""
    within: float
    now: datetime
    passed: float
    """Seconds that the test has taken so far: time goes on by itself, and a test may take long."""

    def differences(self, task: Task) -> list[str]:
        """The differences of this task, in words, the function first."""
        found = []
        if task.func != self.func:
            found.append(f"another function, {task.func}")
        if self.args is not None and list(task.args) != _as_stored(self.args):
            found.append(f"args {list(task.args)!r}")
        if (
            self.kwargs is not None
            and dict(task.kwargs) != keys.decode_args(keys.encode_args((), self.kwargs))[1]
        ):
            found.append(f"kwargs {dict(task.kwargs)!r}")
        if self.due_in is not None and (wrong := self._wrong_time(task)):
            found.append(wrong)
        return found

    def _wrong_time(self, task: Task) -> str:
        if task.state not in UNCLAIMED:
            return f"it does not wait: {task.state}"
        late = (task.due - self.now).total_seconds() - (self.due_in or 0)
        if -self.within - self.passed <= late <= self.within:
            return ""
        return f"due {human(abs(late))} too {'late' if late > 0 else 'early'}"

    def __str__(self) -> str:
        args = "..." if self.args is None else ", ".join(map(repr, self.args))
        named = [f"{name}={value!r}" for name, value in (self.kwargs or {}).items()]
        call = f"{self.func}({', '.join([args, *named] if args else named)})"
        if self.due_in is None:
            return call
        return f"{call} due in {human(self.due_in)} (within {human(self.within)})"


def find(wanted: TaskPattern, tasks: Iterable[Task]) -> list[Task]:
    """Those of the tasks that are as wanted."""
    return [task for task in tasks if not wanted.differences(task)]


def complaint(
    wanted: TaskPattern, tasks: Sequence[Task], found: Sequence[Task], asked: str, *, ledger: bool
) -> str:
    """The message if not as many tasks were found as were asked for: the tasks there are.

    `ledger`: whether the clock sees the rows of one.
    """
    lines = [f"{asked} {wanted}; {_number(len(found))} made"]
    if found:
        lines += [f"  {line(task, wanted.now)}" for task in found[:MOST_SHOWN]]
        return "\n".join(lines)
    if not tasks:
        lines.append(
            "no task was made at all: is the transaction committed?"
            if ledger
            else "no task was made at all (those of a ledger are seen after use_ledger, and those "
            "of a Bridge with a URL of its own go elsewhere)"
        )
        if not ledger and "expirebridge.contrib.django.on_commit" in sys.modules:
            lines.append(
                "in a TestCase of Django, what waits for a commit is made by "
                "`with self.captureOnCommitCallbacks(execute=True):` around the call"
            )
        return "\n".join(lines)
    functions = sorted({task.func for task in tasks})
    if wanted.func not in functions and (
        near := difflib.get_close_matches(wanted.func, functions, n=1)
    ):
        lines.append(f"did you mean {near[0]!r}?")
    lines.append("made instead, the nearest first:")
    ranked = sorted(tasks, key=lambda task: _distance(wanted, task))
    for task in ranked[:MOST_SHOWN]:
        lines.append(f"  {line(task, wanted.now)}: {'; '.join(wanted.differences(task))}")
    if len(ranked) > MOST_SHOWN:
        lines.append(f"  and {len(ranked) - MOST_SHOWN} more")
    return "\n".join(lines)


def line(task: Task, now: datetime) -> str:
    """A task in one line."""
    if task.state not in UNCLAIMED:
        return f"{shown(task)} {task.state}, task {task.id}"
    left = (task.due - now) / timedelta(seconds=1)
    when = f"due in {human(left)}" if left >= 0 else f"due since {human(-left)}"
    state = "" if task.state is State.PENDING else f"{task.state}, "
    other = "" if task.on_signal is None else f", or {task.on_signal} once it is signalled"
    return f"{shown(task)} {state}{when}{other}, task {task.id}"


def _distance(wanted: TaskPattern, task: Task) -> tuple[bool, int, float]:
    off = abs((task.due - wanted.now).total_seconds() - (wanted.due_in or 0))
    return task.func != wanted.func, len(wanted.differences(task)), off


def _as_stored(args: Sequence[Any]) -> list[Any]:
    """Arguments as a handler gets them. Raises InvalidTask if JSON cannot hold them."""
    return keys.decode_args(keys.encode_args(args, None))[0]


def _number(count: int) -> str:
    return {0: "none was", 1: "1 was"}.get(count, f"{count} were")
