"""The result of a check."""

from dataclasses import dataclass
from enum import StrEnum


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


def limit(check: str, message: str) -> Finding:
    """The server does not let a client look; nothing is known to be wrong."""
    return Finding(check=check, level=Level.LIMIT, message=message)


def warning(check: str, message: str, remedy: str) -> Finding:
    """Tasks run, but without all of the promise."""
    return Finding(check=check, level=Level.WARNING, message=message, remedy=remedy)


def error(check: str, message: str, remedy: str) -> Finding:
    """Tasks do not run, or may be lost."""
    return Finding(check=check, level=Level.ERROR, message=message, remedy=remedy)
