"""How it is explained why a task has not run: what spine and capabilities have in common for that.

A capability explains what it does itself. Its module `explain` reads what else that depends on, and
gives its explanations with their precedence; `reasons` asks all, and has the spine's own. What is
true beside any of them is for its module `remarks`.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Protocol

from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.durations import human
from expirebridge.task.reason import Reason


class Precedence(IntEnum):
    """Which reason is given if a task has several: that of the lowest number.

    Of several with one number that of a capability comes before the spine's, in the order of
    `CAPABILITIES`.
    """

    IMPOSSIBLE = 1
    """No listener has what it takes."""
    UNABLE = 2
    """None that claimed it had, or none claims anything."""
    BLOCKED = 3
    """Something else than the listeners keeps it from starting, such as a hold."""
    BUSY = 4
    """Listeners are busy with others, or with it for too long."""
    SOON = 5
    """It is about to start, at a time that is known."""
    OTHERWISE = 6
    """Nothing of the above."""


Explain = Callable[[Circumstances], Reason | None]
"""Returns the reason for a task's state, if it is of a kind that this function knows."""
Explanations = Mapping[Precedence, Explain]


class Explains(Protocol):
    """The module `explain` of a capability."""

    def explain(self, found: Circumstances, settings: Settings) -> Steps[Explanations]:
        """Read what else decides when a task runs; return what explains it, by precedence."""


class GivesRemarks(Protocol):
    """The module `remarks` of a capability."""

    def remark(self, found: Circumstances, reason: Reason) -> Reason:
        """Return the reason that was found, with what the capability says of the task beside it."""


def reason(
    found: Circumstances, code: str, text: str, since: datetime | None, remedy: str
) -> Reason:
    """The reason for the state of a task."""
    return Reason(state=found.task.state, code=code, text=text, since=since, remedy=remedy)


def obstacle(found: Circumstances, code: str, text: str, remedy: str) -> Reason:
    """What a task waits for that is due, or is tried again and again; `text` is a clause."""
    due = found.task.due
    if due > found.now:
        text = f"{text}; it is tried again {ahead(due, found.now)}"
        return reason(found, code, text, None, remedy)
    return reason(found, code, f"due for {ago(due, found.now)}, but {text}", due, remedy)


def failure(found: Circumstances, also: str = "") -> Reason:
    """Why a task has failed, and a clause about what follows from it."""
    task = found.task
    text = f"failed{at_end(found)}{because(last_line(task.error))}{also}{began(found)}"
    return reason(found, "failed", text, task.ended, f"expirebridge run {task.id}")


def runs(found: Circumstances) -> str:
    """For how long a task runs, to begin a sentence."""
    return f"runs for {human(lasted(found))}, in attempt {found.task.attempt}"


def lasted(found: Circumstances) -> float:
    """For how many seconds it runs."""
    since = found.task.started
    return max((found.now - since).total_seconds(), 0) if since is not None else 0.0


def because(error: str) -> str:
    """An error, behind what it caused; nothing if there is none."""
    return f": {error}" if error else ""


def last_line(error: str | None) -> str:
    """The last line of a traceback."""
    return (error or "").rstrip().rpartition("\n")[2]


def at_end(found: Circumstances) -> str:
    """How long ago the task ended."""
    ended = found.task.ended
    return f" {ago(ended, found.now)} ago" if ended is not None else ""


def began(found: Circumstances) -> str:
    """How late its last attempt began, and why, if it did."""
    return f"; it began {found.task.late}" if found.task.late is not None else ""


def clock(moment: datetime) -> str:
    """A time."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def ahead(moment: datetime, now: datetime) -> str:
    """The distance of a time that comes, and the time."""
    return f"in {remaining(moment - now)} (at {clock(moment)})"


def ago(moment: datetime, now: datetime) -> str:
    """The distance of a time that has passed."""
    return remaining(now - moment)


def remaining(time: timedelta) -> str:
    """A duration; none is less than nothing."""
    return human(max(time.total_seconds(), 0))
