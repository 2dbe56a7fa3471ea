"""Limits and their lanes, as those see them who look: who has a slot, and who waits for one."""

from dataclasses import dataclass
from datetime import datetime

from expirebridge.task.queue_place import HOLD, DeclaredLimit
from expirebridge.task.texts import short_repr


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """One value of a limit: the tasks that have a slot in it, and those that wait for one."""

    name: str
    """`<limit>`, or `<limit>=<value>`."""
    limit: DeclaredLimit | None
    """None for a limit that no listener declares any more."""
    held: int
    """How many tasks have a slot: they run, or may be claimed. Of a rate: how many may start."""
    waiting: int
    oldest_due: datetime | None
    """When the first of those that wait was due; None if none waits."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class SetNumber:
    """A number that was set for a limit, or for one value of it, instead of the declared one."""

    limit: str
    """The name of the limit."""
    value: str | None
    """The value whose lane it is for; None: for all lanes that have none of their own."""
    number: int | None
    """How many run at once, or start in the rate's time; 0 stops them. None: it is ignored."""
    declared: int | None
    """What handlers declare; None if no handler of a listener has the limit."""
    stored: str
    """What is stored: another client may have written anything."""
    ignored: str = ""
    """Why it is ignored; empty if it counts."""

    @property
    def field(self) -> str:
        """Its field in the hash `numbers`."""
        return self.limit if self.value is None else f"{self.limit} {self.value}"

    @property
    def lane(self) -> str:
        """The lane that it is for; the name of the limit, if it is for all."""
        return self.limit if self.value is None else f"{self.limit}={self.value}"

    def __repr__(self) -> str:
        return short_repr(self)


def without_value(lane: str) -> str:
    """The name of a lane without the value in it, which is an argument of a task."""
    name, is_one_of_many, _ = lane.partition("=")
    return f"{name}=(not shown)" if is_one_of_many and not lane.startswith(HOLD) else lane
