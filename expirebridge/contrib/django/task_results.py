"""The TaskResult of a Django task: what Redis has of it, as Django describes it."""

import contextlib
import re
import traceback
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.utils import timezone

from expirebridge.contrib.django.tasks_api import (
    DEFAULT_TASK_QUEUE_NAME,
    InvalidDjangoTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
)
from expirebridge.task.history import HistoryEntry
from expirebridge.task.task import State
from expirebridge.task.task import Task as Found

_STATUS: Final = {
    State.PENDING: TaskResultStatus.READY,
    State.WAITING: TaskResultStatus.READY,
    State.PAUSED: TaskResultStatus.READY,
    State.RUNNING: TaskResultStatus.RUNNING,
    State.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    State.FAILED: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
QUEUE: Final = "queue:"
"""The begin of the tag that keeps the name of a queue."""
_UNKNOWN: Final = "unknown"
"""The worker of an attempt that the history has no longer, or whose listener died."""
_REASONS: Final = {"lapsed": "its listener died, or fell silent", "cancelled": "it was cancelled"}
_FAILURES: Final = {"retry", "failed", *_REASONS}
_RUNS: Final = {"retry", "failed", "lapsed", "rearmed", "succeeded", "started"}
"""Entries of a history that stand for an attempt."""
_NOTE: Final = re.compile(r"^\W*\[([0-9A-Za-z-]+)\] ([\w.]+): ?(.*)\n?", re.MULTILINE)
"""The line of an error's text that `noted` writes. Of a group, the text is indented."""


class AttemptFailed(Exception):
    """An attempt ended without an exception of its task: by a timeout, a crash, a cancellation."""


def queue_tags(task: Task) -> tuple[str, ...]:
    """The tags that keep the name of its queue."""
    queue = task.queue_name
    return () if queue == DEFAULT_TASK_QUEUE_NAME else (f"{QUEUE}{queue}",)


def result_of(found: Found, task: Task, backend: str | None = None) -> TaskResult:
    """Describe a task that Redis has, of this Task as its module defines it.

    `backend` is the alias by which it was asked for; None: that of the Task.
    """
    task = _as_enqueued(task, found, backend)
    starts = [entry.started for entry in _attempts(found) if entry.started]
    result = TaskResult(
        task=task,
        id=found.id,
        status=_STATUS[found.state],
        enqueued_at=local(found.created),
        started_at=local(min(starts, default=found.started)),
        last_attempted_at=local(found.started),
        finished_at=local(found.ended),
        args=list(found.args),
        kwargs=dict(found.kwargs),
        backend=task.backend,
        errors=list(_errors_of(found)),
        worker_ids=_workers_of(found),
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        amend(result, _return_value=found.result)
    return result


def amend(result: TaskResult, **values: Any) -> None:
    """Set attributes of a result; Django freezes it for others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def local(moment: datetime | None) -> datetime | None:
    """A time as Django has it: without a time zone if USE_TZ is off."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def error_of(error: BaseException) -> TaskError:
    """Describe what a Task raised, from its function on."""
    ours = error.__traceback__
    theirs = ours.tb_next if ours is not None and ours.tb_next is not None else ours
    return TaskError(
        exception_class_path=_path_of(error),
        traceback="".join(traceback.format_exception(type(error), error, theirs)),
    )


def note(error: BaseException, listener: str) -> None:
    """Add a line with the class and the listener to the text of what a Task raised.

    It is the last line, which the history of a task keeps of each attempt.
    """
    with contextlib.suppress(Exception):  # an exception's own methods may raise
        message = str(error).partition("\n")[0]
        error.add_note(f"[{listener}] {_path_of(error)}: {message}")


def _path_of(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _as_enqueued(task: Task, found: Found, backend: str | None) -> Task:
    queue = next((tag.removeprefix(QUEUE) for tag in found.tags if tag.startswith(QUEUE)), None)
    try:
        return task.using(queue_name=queue or DEFAULT_TASK_QUEUE_NAME, backend=backend)
    except InvalidDjangoTask:  # its queue is declared no longer
        return task


def _attempts(found: Found) -> Iterator[HistoryEntry]:
    return (entry for entry in found.history if entry.what in _RUNS and entry.started)


def _workers_of(found: Found) -> list[str]:
    """The listener of each attempt; those that the history has no longer come first."""
    attempts = list(_attempts(found))
    workers = [_worker_of(entry) for entry in attempts]
    workers = [_UNKNOWN] * (found.attempt - len(workers)) + workers
    if workers and (not attempts or attempts[-1].started == found.started):
        workers[-1] = found.listener or _UNKNOWN
    return workers


def _worker_of(entry: HistoryEntry) -> str:
    noted = _NOTE.match(entry.error)
    return noted[1] if noted else _UNKNOWN


def _errors_of(found: Found) -> Iterator[TaskError]:
    failures = [entry for entry in found.history if entry.what in _FAILURES]
    for entry in failures:
        text = entry.error or _REASONS.get(entry.what, "")
        # Of the last one, the whole text is there.
        whole = found.error or ""
        if entry is failures[-1] and whole.rpartition("\n")[2].startswith(entry.error):
            text = whole or text
        yield _read_error(text)


def _read_error(text: str) -> TaskError:
    noted = None
    for noted in _NOTE.finditer(text):  # noqa: B007 - the last one is ours
        pass
    if noted is None:
        path = f"{AttemptFailed.__module__}.{AttemptFailed.__qualname__}"
        return TaskError(exception_class_path=path, traceback=f"{text}\n")
    above = text[: noted.start()] + text[noted.end() :]
    short = f"{noted[2].removeprefix('builtins.')}: {noted[3]}\n"
    return TaskError(exception_class_path=noted[2], traceback=above or short)
