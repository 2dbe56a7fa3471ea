"""Writes what happens in a listener to the log. Arguments are not logged: they may be secrets."""

import logging

from expirebridge.hooks import Claimed, End, Ended, Event, Gap, Lapsed, Made, Started

logger = logging.getLogger("expirebridge")

_LEVELS = {
    End.SUCCEEDED: logging.INFO,
    End.RETRY: logging.WARNING,
    End.FAILED: logging.ERROR,
    End.RELEASED: logging.WARNING,
    End.REFUSED: logging.WARNING,
}


def log_event(event: Event) -> None:
    """Write one event as one line."""
    match event:
        case Started(task=task, lateness=lateness):
            logger.debug(
                "started %s %s, attempt %d, %.1f ms late",
                task.func, task.id, task.attempt, lateness * 1000,
            )  # fmt: skip
        case Ended(task=task, end=end, duration=duration, reason=reason):
            # The last line of a traceback says what happened; the whole is in the task's record.
            last = reason.rstrip().rpartition("\n")[2]
            logger.log(
                _LEVELS[end], "%s %s %s, attempt %d, %.1f ms%s",
                end, task.func, task.id, task.attempt, duration * 1000, last and f": {last!r}",
            )  # fmt: skip
        case Lapsed(id=id, failed=failed):
            logger.warning(
                "task %s lapsed: its listener died, or fell silent; %s",
                id, "it is kept as failed" if failed else "it is pending again",
            )  # fmt: skip
        case Gap(reason=reason):
            logger.info("gap: %s; scanning", reason)
        case Made() | Claimed():
            pass
