"""Logs what happens in a listener, for people and for programs.

Arguments, results and the texts of exceptions are not logged: they may be secrets. What handlers
log themselves is written unchanged.
"""

import logging
from enum import StrEnum

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
from expirebridge.model.log_fields import event as fields_of
from expirebridge.observe.lines import JsonLines, TaskFields, TextLines

logger = logging.getLogger("expirebridge")

_LEVELS = {
    End.SUCCEEDED: logging.DEBUG,  # nearly all lines would be these
    End.RETRY: logging.WARNING,
    End.FAILED: logging.ERROR,
    End.SNOOZED: logging.INFO,
    End.RELEASED: logging.WARNING,
    End.REFUSED: logging.WARNING,
}
_CHATTY = ("asyncio", "redis")
"""What a listener is made of: who debugs handlers does not want its lines at the level debug."""


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
    line of a worker has its number. Only a command
    may call this, for its own process: the logging of a program is that program's affair.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(worker) if how is LogFormat.JSON else TextLines(worker))
    handler.addFilter(TaskFields())
    root = logging.getLogger()
    # Beside whatever is there: a tool that starts the command may have added a handler of its own.
    root.addHandler(handler)
    root.setLevel(level.number)
    logger.setLevel(own_level.number)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level.number, logging.INFO))
    logging.captureWarnings(capture=True)


def log_event(event: Event) -> None:
    """Write one event as one line."""
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
        "started %s %s, attempt %d, %.1f ms late", task.func, task.id, task.attempt, late,
        extra=fields_of(
            "started", func=task.func, task=task.id, attempt=task.attempt, late_ms=late
        ),
    )  # fmt: skip


def _log_end(event: Ended) -> None:
    task, level = event.task, _LEVELS[event.end]
    if level == logging.DEBUG and task.attempt > 1:
        level = logging.INFO  # the log said that it failed, or was held up
    if not logger.isEnabledFor(level):
        return
    brief, took = event.brief, round(event.duration * 1000, 1)
    logger.log(
        level, "%s %s %s, attempt %d, %.1f ms%s",
        event.end, task.func, task.id, task.attempt, took, brief and f": {brief!r}",
        extra=fields_of(
            event.end.value, func=task.func, task=task.id, attempt=task.attempt, took_ms=took,
            reason=brief.encode(errors="backslashreplace").decode(),
        ),
    )  # fmt: skip
