"""Logs what happens in a listener, for people and for programs.

Arguments, results and the texts of exceptions are not logged: they may be secrets.
"""

import logging
from datetime import UTC, datetime
from enum import StrEnum

import orjson

from expirebridge.hooks import (
    Claimed,
    End,
    Ended,
    Event,
    Gap,
    Lapsed,
    Made,
    Making,
    Misfired,
    NotMade,
    Rung,
    Scanned,
    Started,
)
from expirebridge.log_fields import event as fields_of

logger = logging.getLogger("expirebridge")

_LEVELS = {
    End.SUCCEEDED: logging.INFO,
    End.RETRY: logging.WARNING,
    End.FAILED: logging.ERROR,
    End.RELEASED: logging.WARNING,
    End.REFUSED: logging.WARNING,
}


class LogFormat(StrEnum):
    """The form of a line of the log."""

    TEXT = "text"
    JSON = "json"


class JsonLines(logging.Formatter):
    """Each line as a JSON object: time, level, event, message, and the event's own fields.

    A line without an event, such as one of another library, has the event "other".
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "event": getattr(record, "event", "other"),
            "message": _text(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = _text(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


def set_up(how: LogFormat, level: int) -> None:
    """Write the log to stderr in this form."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s")
    handler.setFormatter(JsonLines() if how is LogFormat.JSON else text)
    logging.basicConfig(handlers=[handler])
    logging.getLogger("expirebridge").setLevel(level)


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
    level = _LEVELS[event.end]
    if not logger.isEnabledFor(level):
        return
    task, brief, took = event.task, event.brief, round(event.duration * 1000, 1)
    logger.log(
        level, "%s %s %s, attempt %d, %.1f ms%s",
        event.end, task.func, task.id, task.attempt, took, brief and f": {brief!r}",
        extra=fields_of(
            event.end.value, func=task.func, task=task.id, attempt=task.attempt, took_ms=took,
            reason=_text(brief),
        ),
    )  # fmt: skip


def _text(text: str) -> str:
    """The text, with what UTF-8 cannot encode escaped."""
    return text.encode(errors="backslashreplace").decode()
