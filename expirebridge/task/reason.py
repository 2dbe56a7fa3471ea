"""Why a task has not run, in one sentence: the answer of `Bridge.why`."""

from dataclasses import dataclass
from datetime import datetime

from expirebridge.task.task import State
from expirebridge.task.texts import short_repr


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """The reason for a task's state, and what would change it."""

    state: State
    code: str
    """A word for programs, such as `full`: docs/reference/python-api.md lists them."""
    text: str
    """A sentence for people. It may contain an argument of the task, in the name of a lane."""
    since: datetime | None
    """When that began, on the server's clock; None if it is not known."""
    remedy: str
    """The command that would change it, or shows more; empty if there is nothing to do."""

    def __repr__(self) -> str:
        return short_repr(self)
