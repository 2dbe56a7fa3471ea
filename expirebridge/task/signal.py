"""A signal, as it decided a task."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from expirebridge.task.texts import short_repr


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that decided that a task runs its other function."""

    payload: Any
    """What it said: what JSON can hold."""
    at: datetime
    """When it came, on the server's clock."""
    by: str
    """Who sent it; empty if that was not said."""
    instead_of: str
    """The function that would have run at the deadline."""

    def __repr__(self) -> str:
        return short_repr(self)
