"""The jobs of another library, as a source reads them, and those that it skips."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from hashlib import sha1
from typing import Any, Protocol

from expirebridge.task import keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of another library, which becomes a task."""

    source_id: str
    """Its id there."""
    id: str
    """The task's id here. It derives from the job alone: another import gives the same."""
    names: tuple[str, ...]
    """The names of the job's function there, the most specific one first."""
    args: list[Any]
    kwargs: dict[str, Any]
    due: int
    """In ms since 1970."""
    attempt: int = 0
    """The number of attempts started already."""
    policies: dict[str, Any]
    """`retry`, `timeout` and `misfire`, as a line of an import has them."""
    changes: tuple[str, ...] = ()
    """The parts that are lost or change, in a few words each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringJob:
    """A schedule of another library, which becomes a series."""

    source_id: str
    """Its id or name there."""
    id: str
    """The id of the series here. It derives from the schedule's identity alone."""
    names: tuple[str, ...]
    """As those of a `Job`."""
    args: list[Any]
    kwargs: dict[str, Any]
    schedule: dict[str, Any]
    """As a line of an import has it: `cron` and `tz`, or `every` in ms; `start`, `until` ..."""
    policies: dict[str, Any]
    """As those of a `Job`."""
    paused: bool = False
    changes: tuple[str, ...] = ()
    """As those of a `Job`."""


@dataclass(frozen=True, slots=True)
class SkippedJob:
    """A job that does not become a task, or several of one kind."""

    source_id: str
    reason: str
    refused: bool = False
    """True if it should have become a task, but cannot."""
    count: int = 1


class Refused(Exception):
    """A job cannot become a task. The message says why, and never what the job's arguments are."""


Found = Job | RecurringJob | SkippedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """The part of a source to read."""

    queues: tuple[str, ...] = ()
    """Only these; all that are found if there are none."""
    prefix: str | None = None
    """The prefix of the other library's keys, if it is not the library's default."""
    waiting: bool = False
    """True if jobs that wait for a worker, and not for a time, are read as well."""
    disabled: bool = False
    """True if schedules that are disabled are read as well, and paused here."""
    zone: tzinfo
    """The zone of times that have none."""
    now: int
    """In ms since 1970."""


class JobSource(Protocol):
    """A database that another library uses, or a file with what was in it."""

    def count(self) -> int:
        """The approximate number of jobs to read. Raises InvalidSetting if it is no such source."""
        ...

    def pages(self) -> Iterator[list[Found]]:
        """Read the jobs, a few hundred at a time."""
        ...


def slug_of(name: str) -> str:
    """A name with `-` for each character that an id cannot have."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-")[:60]


def id_of(library: str, own: str) -> str:
    """The id of the task that is made of a job; what cannot be a part of an id is hashed."""
    id = f"{library}-{own}"
    if keys.is_id(id):
        return id
    hashed = sha1(own.encode(errors="backslashreplace"), usedforsecurity=False)
    return f"{library}-{hashed.hexdigest()}"


def cron_of(minute: str, hour: str, day: str, month: str, weekday: str) -> str:
    """The expression of five fields. Raises Refused if cron would take it for more days.

    Celery and APScheduler require both day fields to match, and cron does not.
    """
    if not day.startswith("*") and not weekday.startswith("*"):
        raise Refused(
            "a day of the month and one of the week must both match there, and here either is "
            "enough: schedule it yourself, and let the handler look at the day"
        )
    return f"{minute} {hour} {day} {month} {weekday}"
