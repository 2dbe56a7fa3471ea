"""What happens in expirebridge, as values, for whoever wants to count, trace or log it.

A hook is any callable that takes one event. The core calls hooks and never imports them. Hooks run
where the event happens (on the listener's event loop, or in the producer's call), so they must be
quick; an exception in a hook is logged and goes no further.

A handlers' module attaches its own with `@hook`. What a listener's process needs for its whole
life, such as a pool of connections, is opened and closed by a `@lifespan`.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from expirebridge.task import Task

logger = logging.getLogger("expirebridge")


class End(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    RETRY = "retry"  # it failed, and will be tried again
    FAILED = "failed"  # it failed for good
    RELEASED = "released"  # it was given back uncounted: the listener stops, or lacks the function
    REFUSED = "refused"  # the lease had lapsed: another listener has the task, or had it


@dataclass(kw_only=True, slots=True)
class Making:
    """A producer is about to ask for a task."""

    id: str
    func: str
    trace: str | None = None
    """Where the call stands in a trace, if a hook says so here: a W3C `traceparent`, which the task
    then carries. An unfinished task that is kept or extended keeps what it had."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotMade:
    """A producer's call raised; the task may have been made if the server could not be reached."""

    id: str
    error: Exception


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A producer's call returned; `task.outcome` tells what it did."""

    task: Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """A listener looked for due tasks and took `count` of them (0: there was nothing to take)."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A handler is about to be called."""

    task: Task
    lateness: float
    """Seconds from due to now, by the listener's estimate of the server's clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Misfired:
    """A task was found later than it may be, and its handler is not called now."""

    task: Task
    lateness: float
    """Seconds from due to now, by the listener's estimate of the server's clock."""
    done: str
    """`skipped`: it is failed; or `spread`: it is pending again, for some time in the window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """An attempt's outcome is recorded, or was refused."""

    task: Task
    end: End
    duration: float
    """Seconds that the handler took."""
    reason: str = ""
    """Why it did not succeed: with a traceback, which may show the task's arguments."""
    brief: str = ""
    """The same for the log: of what a handler raised, only the type. What it said itself, to
    `Retry` or `Discard`, is kept."""
    error: BaseException | None = None
    """What the handler raised, if that is why; not `Retry` or `Discard`, which are answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lapsed:
    """A task's lease ran out without a heartbeat: its listener died, or fell silent."""

    id: str
    failed: bool
    """Whether this lapse was one too many; otherwise the task is pending again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Events may have been missed; a scan of the keys follows."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """The scan that follows a gap is done."""

    adopted: int
    """How many tasks it found that other clients had set."""


class Source(StrEnum):
    """What told a listener that a task may be due."""

    EVENT = "event"  # a key expired whose task it had not claimed itself
    CLOCK = "clock"  # its own clock
    PRODUCER = "producer"  # the message of whoever made or moved the earliest task


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """A listener heard the doorbell: a task is due, or will be the next one."""

    source: Source


Event = (
    Making | NotMade | Made | Claimed | Started | Misfired | Ended | Lapsed | Gap | Scanned | Rung
)
Hook = Callable[[Event], None]
Lifespan = Callable[[], AsyncGenerator[None, None]]

H = TypeVar("H", bound=Hook)
L = TypeVar("L", bound=Lifespan)

_ROLE = "__expirebridge_role__"


class Role(StrEnum):
    """What a function of a handlers' module is, if it is no handler."""

    HOOK = "hook"
    LIFESPAN = "lifespan"


def hook(function: H) -> H:
    """Tell this function of a handlers' module what happens in each listener that loads it.

    It takes one `Event`. It is no handler: no task can name it.
    """
    setattr(function, _ROLE, Role.HOOK)
    return function


def lifespan(function: L) -> L:
    """Run this async generator function of a handlers' module around a listener's whole work.

    Up to its one `yield` it runs before the first task is claimed, and what follows when all have
    ended, on the event loop of the async handlers. Plain handlers that cannot be stopped may
    outlive it. It is no handler: no task can name it.
    """
    setattr(function, _ROLE, Role.LIFESPAN)
    return function


def role_of(function: object) -> Role | None:
    """What the function was marked as."""
    return getattr(function, _ROLE, None)


class Hooks:
    """Tells every hook of an event."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def emit(self, event: Event) -> None:
        """Call each hook with the event; what a hook raises is logged."""
        for hook in self._hooks:
            try:
                hook(event)
            except Exception:
                logger.exception("a hook raised on %s", type(event).__name__)
