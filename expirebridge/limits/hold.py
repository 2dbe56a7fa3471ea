"""Holds: functions and tags whose due tasks wait, or all tasks."""

from dataclasses import dataclass
from datetime import datetime

from expirebridge.task.texts import short_repr

ALL = "all"
"""The name of the hold of all tasks."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold, and how many tasks wait for its end."""

    name: str
    """Its field in the hash `holds`: `func <name>`, `tag <tag>` or `all`. Others hold nothing."""
    until: datetime | None
    """When it ends, on the server's clock; None: when it is released."""
    reason: str
    by: str
    """Who set it: `user@host`, or a user of the dashboard. Empty if another client set it."""
    waiting: int
    """How many due tasks wait for its end."""
    readable: bool
    """False if the stored value is not the JSON that `hold` writes. It holds without end then."""

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def func(self) -> str | None:
        """The function on hold, if it is one."""
        return self._named("func ")

    @property
    def tag(self) -> str | None:
        """The tag on hold, if it is one."""
        return self._named("tag ")

    @property
    def all(self) -> bool:
        """True if all tasks are on hold."""
        return self.name == ALL

    def _named(self, kind: str) -> str | None:
        return self.name.removeprefix(kind) if self.name.startswith(kind) else None
