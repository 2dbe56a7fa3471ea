"""Hooks: who is told of each event, to count, trace or log it.

A hook is any callable that takes one event; `events.py` has them, and they are imported from here.
The core calls hooks and never imports them. Hooks run where the event happens (on the listener's
event loop, or in the producer's call), so they must be quick. An exception in a hook is logged and
otherwise ignored.

A handlers' module adds its own hooks with `@hook`. A `@lifespan` opens and closes what a listener's
process needs until it ends, such as a pool of connections.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from expirebridge.task.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.events import (
        Claimed,
        Direction,
        End,
        Ended,
        Event,
        FailedOver,
        Gap,
        Lapsed,
        Made,
        Making,
        Misfired,
        Misplaced,
        NotMade,
        Passed,
        ProcessEnd,
        ProcessEnded,
        ProcessStarted,
        Rung,
        Scanned,
        Source,
        Started,
    )

__all__ = [
    "Claimed",
    "Direction",
    "End",
    "Ended",
    "Event",
    "FailedOver",
    "Gap",
    "Hook",
    "Hooks",
    "Lapsed",
    "Lifespan",
    "Made",
    "Making",
    "Misfired",
    "Misplaced",
    "NotMade",
    "Passed",
    "ProcessEnd",
    "ProcessEnded",
    "ProcessStarted",
    "Role",
    "Rung",
    "Scanned",
    "Source",
    "Started",
    "hook",
    "lifespan",
    "role_of",
]

_NAMES = {
    "events": (
        "Claimed Direction End Ended Event FailedOver Gap Lapsed Made Making Misfired Misplaced "
        "NotMade Passed ProcessEnd ProcessEnded ProcessStarted Rung Scanned Source Started"
    ),
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _NAMES)

logger = logging.getLogger("expirebridge")

Hook = Callable[["Event"], None]
Lifespan = Callable[[], AsyncGenerator[None, None]]

H = TypeVar("H", bound=Hook)
L = TypeVar("L", bound=Lifespan)

_ROLE = "__expirebridge_role__"


class Role(StrEnum):
    """What a function of a handlers' module is, if it is not a handler."""

    HOOK = "hook"
    LIFESPAN = "lifespan"


def hook(function: H) -> H:
    """Call this function of a handlers' module with each event in a listener that loads it.

    It takes one `Event`. It is not a handler: no task can name it.
    """
    setattr(function, _ROLE, Role.HOOK)
    return function


def lifespan(function: L) -> L:
    """Run this async generator function of a handlers' module around a listener's whole work.

    The part before its one `yield` runs before the first task is claimed, the part after it when
    all tasks have ended. Both run on the event loop of the async handlers. Plain handlers that
    cannot be stopped may outlive it. It is not a handler: no task can name it.
    """
    setattr(function, _ROLE, Role.LIFESPAN)
    return function


def role_of(function: object) -> Role | None:
    """The role that the function was marked with, or None."""
    return getattr(function, _ROLE, None)


class Hooks:
    """Passes each event to every hook."""

    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def emit(self, event: "Event") -> None:
        """Call each hook with the event; what a hook raises is logged."""
        for hook in self._hooks:
            try:
                hook(event)
            except Exception:
                logger.exception("a hook raised on %s", type(event).__name__)
