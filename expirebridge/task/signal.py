"""A signal, as it decided a task."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from expirebridge.task.keywords import advising
from expirebridge.task.texts import short_repr


def _now() -> datetime:
    return datetime.now(UTC)


@advising
@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that decided that a task runs its other function.

    Handlers find it in `current_task().signal`. A unit test makes one for `run_handler`.
    """

    payload: Any = None
    """What it said: what JSON can hold."""
    by: str = ""
    """Who sent it; empty if that was not said."""
    instead_of: str = ""
    """The function that would have run at the deadline."""
    at: datetime = field(default_factory=_now)
    """When it came, on the server's clock. In a unit test it is now, unless given."""

    def __repr__(self) -> str:
        return short_repr(self)
