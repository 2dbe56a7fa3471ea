"""Logs what happens in a listener, for people and for programs.

Arguments, results and the texts of exceptions are not logged: they may be secrets. What handlers
log themselves is written unchanged.
"""

import logging
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson

from expirebridge.hooks import (
    Claimed,
    End,
    Ended,
    Event,
    FailedOver,
    Gap,
    Lapsed,
    Made,
    Making,
    Misfired,
    Misplaced,
    NotMade,
    Passed,
    ProcessEnded,
    ProcessStarted,
    Rung,
    Scanned,
    Started,
)
from expirebridge.task.lateness import words_of
from expirebridge.task.task import running_task
from expirebridge.task.texts import event as fields_of
from expirebridge.task.texts import message_of

# The lines of the log: a record as text or as JSON, with the task that was running.
#
# The arguments and the result of a task are never added. What a handler logs is written as it is.

OWN = "expirebridge"
"""The logger of all that expirebridge logs."""
TASK_FIELDS = ("task", "func", "attempt")
# The attributes of every record; all others were passed to its logger as `extra`.
_COMMON = {*vars(logging.makeLogRecord({})), *TASK_FIELDS, "message", "asctime", "taskName"}


class TaskFields(logging.Filter):
    """Gives each record that a task's handler logs the attributes `task`, `func` and `attempt`.

    Add it to a `logging.Handler`. It lets every record pass, and leaves those that no task caused
    as they are: `logging.Formatter(..., defaults={"task": "-"})` formats both. A thread that a
    handler starts itself belongs to no task, unless it runs in a copy of the handler's context.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the running task, if there is one."""
        task = running_task.get(None)
        if task is not None:
            record.task, record.func, record.attempt = task.id, task.func, task.attempt
        return True


class TextLines(logging.Formatter):
    """Each record as text for people; what others log begins with its logger and its task.

    In a worker, each line has its number.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker = "" if worker is None else f"worker {worker}: "

    def format(self, record: logging.LogRecord) -> str:
        """Write one record; a traceback takes lines of its own."""
        message = message_of(record)
        if record.name != OWN:
            message = f"{record.name}{_task_in_brackets(record)}: {message}"
        parts = [f"{self.formatTime(record)} {record.levelname:<7} {self._worker}{message}"]
        if trace := _traceback(self, record):
            parts.append(trace)
        if record.stack_info:
            parts.append(record.stack_info)
        return "\n".join(parts)


class JsonLines(logging.Formatter):
    """Each record as a JSON object on one line.

    It has time, level, logger, event and message; task, func and attempt if a handler logged it,
    and the event's own fields. What another library or a handler logs has the event "other", and
    its `extra` in an object of that name. In a worker, each line has its number.
    """

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._common = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        is_own = record.name == OWN
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": _text(record.name),
            "event": getattr(record, "event", "other") if is_own else "other",
            "message": _text(message_of(record)),
        }
        line |= self._common
        line |= {name: getattr(record, name) for name in TASK_FIELDS if hasattr(record, name)}
        if is_own:
            line |= getattr(record, "fields", {})
        elif extra := dict(_extra(record)):
            line["extra"] = extra
        if trace := _traceback(self, record):
            line["traceback"] = _text(trace)
        if record.stack_info:
            line["stack"] = _text(record.stack_info)
        return orjson.dumps(line, default=str).decode()


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback; of what was logged in a process for handlers it comes as text."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text or ""


def _task_in_brackets(record: logging.LogRecord) -> str:
    if not hasattr(record, "task"):
        return ""
    task, func, attempt = (getattr(record, name) for name in TASK_FIELDS)
    return f" [{func} {task}, attempt {attempt}]"


def _extra(record: logging.LogRecord) -> Iterator[tuple[str, orjson.Fragment]]:
    """The values that were passed as `extra`, of any kind, as JSON."""
    for name, value in vars(record).items():
        if name not in _COMMON:
            yield _text(name), _json(value)


def _json(value: object) -> orjson.Fragment:
    try:
        encoded = orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)
    except Exception:
        encoded = orjson.dumps(f"a {type(value).__name__} that JSON cannot hold")
    return orjson.Fragment(encoded)


def _text(text: str) -> str:
    """The text, with what UTF-8 cannot encode escaped."""
    return text.encode(errors="backslashreplace").decode()


logger = logging.getLogger("expirebridge")

_LEVELS = {
    End.SUCCEEDED: logging.DEBUG,  # nearly all lines would be these
    End.RETRY: logging.WARNING,
    End.FAILED: logging.ERROR,
    End.SNOOZED: logging.INFO,
    End.RELEASED: logging.WARNING,
    End.DROPPED: logging.INFO,
    End.REFUSED: logging.WARNING,
}
_CHATTY = ("asyncio", "redis")
"""The listener's own loggers, whose debug lines would hide those of handlers."""


class LogFormat(StrEnum):
    """The form of a line of the log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """The level as the module `logging` counts."""
        return logging.getLevelNamesMapping()[self.name]


def set_up(
    how: LogFormat, level: LogLevel, own_level: LogLevel, *, worker: int | None = None
) -> None:
    """Write all that this process logs to stderr in this form, warnings included.

    `own_level` is for what expirebridge logs, `level` for handlers and libraries. Each
    line of a worker has its number. If a framework has set up a handler that writes to stdout or
    stderr, lines of text are left to that. Only a command
    may call this, for its own process: the logging of a program is that program's affair.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(worker) if how is LogFormat.JSON else TextLines(worker))
    handler.addFilter(TaskFields())
    root = logging.getLogger()
    # Beside whatever is there: a tool that starts the command may have added a handler of its own.
    if how is LogFormat.JSON or not any(map(_writes_here, root.handlers)):
        root.addHandler(handler)
    logger.__class__ = _OwnLogger
    root.setLevel(level.number)
    logger.setLevel(own_level.number)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level.number, logging.INFO))
    logging.captureWarnings(capture=True)


class _OwnLogger(logging.Logger):
    """A logger that is never disabled, as logging.config does by default with those it finds."""

    @property
    def disabled(self) -> bool:
        """False."""
        return False

    @disabled.setter
    def disabled(self, _: bool) -> None: ...


def _writes_here(handler: logging.Handler) -> bool:
    streams = (sys.stdout, sys.stderr)
    return isinstance(handler, logging.StreamHandler) and handler.stream in streams


def log_event(event: Event) -> None:
    """Write one event as one line to the logger `expirebridge`: a hook for a `Listener`.

    Failures, retries and lapses are warnings and errors; a task that starts or succeeds is logged
    at the level debug. Arguments, results and the texts of exceptions are not logged. The command
    `expirebridge listen` has this hook.
    """
    match event:
        case Started():
            _log_start(event)
        case Ended():
            _log_end(event)
        case Lapsed(id=id, failed=failed):
            logger.warning(
                "task %s lapsed: its listener died, or fell silent; %s",
                id, "it is kept as failed" if failed else "it is pending again",
                extra=fields_of("lapsed", task=id, failed=failed),
            )  # fmt: skip
        case Gap(reason=reason):
            logger.info("gap: %s; scanning", reason, extra=fields_of("gap", reason=reason))
        case Making() | NotMade() | Made() | Claimed() | Misfired() | Scanned() | Rung():
            pass
        case ProcessStarted() | ProcessEnded():  # logged where they happen, with their numbers
            pass
        case FailedOver() | Misplaced() | Passed():
            pass  # logged where it happens, for listeners that are part of a program, too


def _log_start(event: Started) -> None:
    if not logger.isEnabledFor(logging.DEBUG):
        return
    task, late = event.task, round(event.lateness * 1000, 1)
    logger.debug(
        "started %s %s, attempt %d, %.1f ms late%s", task.func, task.id, task.attempt, late,
        f": {words_of(event.cause)}" if event.cause is not None else "",
        extra=fields_of(
            "started", func=task.func, task=task.id, attempt=task.attempt, late_ms=late,
            cause=event.cause or "",
        ),
    )  # fmt: skip


def _log_end(event: Ended) -> None:
    task, level = event.task, _LEVELS[event.end]
    if level == logging.DEBUG and task.attempt > 1:
        level = logging.INFO  # the log said that it failed, or was held up
    if not logger.isEnabledFor(level):
        return
    brief, took = event.brief, round(event.duration * 1000, 1)
    more = _given_back.count(task.func, brief) if event.end is End.RELEASED else 0
    if more is None:
        return
    logger.log(
        level, "%s %s %s, attempt %d, %.1f ms%s%s",
        event.end, task.func, task.id, task.attempt, took, brief and f": {brief!r}",
        f" (and {more:,} like it since the last such line)" if more else "",
        extra=fields_of(
            event.end.value, func=task.func, task=task.id, attempt=task.attempt, took_ms=took,
            reason=brief.encode(errors="backslashreplace").decode(),
            **({"more": more} if more else {}),
        ),
    )  # fmt: skip


class _Repeats:
    """Counts what happens again and again for one reason, so that a line a minute says it.

    A function that no listener has is tried again every 15 s for each of its tasks: 5,000 of these
    would fill the log with 28 million lines in a day.
    """

    MINUTE = 60.0
    MOST = 1000
    """Reasons that are remembered: some name what differs from task to task."""

    def __init__(self) -> None:
        self._last = dict[tuple[str, str], tuple[float, int]]()
        """When each was logged last, and how often it came since."""

    def count(self, func: str, reason: str) -> int | None:
        """How often this came since it was logged last; None if it is not to be logged now."""
        now = time.monotonic()
        since, left_out = self._last.get((func, reason), (-self.MINUTE, 0))
        if now - since < self.MINUTE:
            self._last[func, reason] = since, left_out + 1
            return None
        if len(self._last) >= self.MOST:
            self._last.clear()
        self._last[func, reason] = now, 0
        return left_out


_given_back = _Repeats()
"""The tasks that this process gave back to other listeners."""
