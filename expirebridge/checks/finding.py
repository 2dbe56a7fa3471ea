"""What all checks have in common: their results, and how a capability gives its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from expirebridge.task.calls.call import Steps
from expirebridge.task.texts import plural


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    LIMIT = "limit"  # the server does not let a client look, as hosted ones may not
    WARNING = "warning"  # tasks run, but without all of the promise
    ERROR = "error"  # tasks do not run, or may be lost: a listener must not start


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check."""

    check: str
    level: Level
    message: str
    remedy: str = ""
    """The fix: a command for the server or a shell, if there is one."""

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


def ok(check: str, message: str) -> Finding:
    """Everything is fine."""
    return Finding(check=check, level=Level.OK, message=message)


def not_shown(check: str, message: str) -> Finding:
    """The server does not let a client look; nothing is known to be wrong."""
    return Finding(check=check, level=Level.LIMIT, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Tasks run, but without all of the promise."""
    return Finding(check=check, level=Level.WARNING, message=message, remedy=remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    """Tasks do not run, or may be lost."""
    return Finding(check=check, level=Level.ERROR, message=message, remedy=remedy)


NAMED = 5
"""Names in a finding; the others are counted."""


def first_of(named: list[str]) -> str:
    """The first of these names, and the number of the others."""
    more = f" and {plural(len(named) - NAMED, 'other', 'others')}" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more


# What a capability gives in its module `checks`.


class Occasion(StrEnum):
    """Who makes a check."""

    DOCTOR = "doctor"
    PROBE = "probe"  # and the doctor, as a part of the same check
    PRESENT = "present"  # the dashboard's overview, each second
    COURSE = "course"  # the same, every ten seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of the whole database."""

    order: int
    """Where it is in the report, the lowest first. Work is at 10, holds at 50, partitions at 80."""
    name: str
    look: Steps[list[Finding]]
    on: frozenset[Occasion] = frozenset({Occasion.DOCTOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersCheck:
    """A check that asks each server, and compares the answers."""

    ask: Callable[[], Steps[Any]]
    compare: Callable[[Mapping[str, Any]], list[Finding]]
    """Receives the answers by the server's address, which is "" if there is one."""


def listed(steps: Steps[Finding]) -> Steps[list[Finding]]:
    """Make a list of one finding."""
    return [(yield from steps)]


def if_any(steps: Steps[Finding | None]) -> Steps[list[Finding]]:
    """Make a list of one finding, or an empty one if there is nothing to check."""
    finding = yield from steps
    return [] if finding is None else [finding]
