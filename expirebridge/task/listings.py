"""The answers to questions about many tasks: what was found, and what was left out."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from expirebridge.task.task import Task
from expirebridge.task.texts import short_repr


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A partition that an answer leaves out, since it could not be asked."""

    partition: int
    """Its number, from 0."""
    tag: str
    """The prefix of the names of its keys."""
    why: str
    """`unreachable`, `unserved` (no node of the cluster takes commands for it), or `moving`."""
    error: str
    """The error, with its remedy."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """The tasks that `list` found, and how many it examined."""

    tasks: list[Task]
    examined: int
    """How many tasks were examined."""
    complete: bool
    """True if there are no more to find. False if a limit stopped the search."""
    cursor: str | None = None
    """The cursor of the next page, for `list(cursor=...)`. None if the search is complete."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their tasks are not among these."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moving:
    """The progress of moving a database's tasks to another one, or from another one."""

    way: str
    """`to`, or `from`, and the other database: its URL, without passwords, and its prefix."""
    series: int
    """Series that are here."""
    on_their_way: int
    """Tasks and series that were taken out of this database and have not arrived: nobody runs them
    until the move goes on."""
    idle: float | None
    """Seconds since the mover was last here; None if that is not known."""

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def leaves(self) -> bool:
        """True if tasks go from here to the other database."""
        return self.way.startswith("to ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """The numbers of tasks in each state, and of live listeners."""

    pending: int
    waiting: int
    """Tasks that are due and wait for a slot, for a start of a rate, or for the end of a hold."""
    paused: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    overdue: int
    """Pending tasks whose due time has passed."""
    listeners: int
    """Listeners that sent a heartbeat within the last lease."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their tasks are not counted."""
    moving: Moving | None = None
    """The move of this database, from when one was begun."""

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def unfinished(self) -> int:
        """The tasks that are not finished."""
        return self.pending + self.waiting + self.paused + self.running


def texts_of(left_out: Iterable[LeftOut]) -> list[str]:
    """For each reason, which partitions an answer leaves out."""
    tags = defaultdict[tuple[str, str], list[str]](list)
    for one in left_out:
        tags[one.why, one.error].append(one.tag)
    return [
        f"{'partition' if len(some) == 1 else 'partitions'} {' '.join(some)}, {why}: {fault}"
        for (why, fault), some in tags.items()
    ]
