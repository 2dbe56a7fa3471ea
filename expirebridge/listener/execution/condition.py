"""What a listener's heartbeats say beside that it lives: what keeps it from claiming."""

from collections.abc import Iterable
from typing import Protocol

from expirebridge.listener.wakeups import StopRequest
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls.fleet import OVERRUN, Idle

_OVERRUN_AFTER = 1.0
"""Seconds after its timeout at which a handler that still runs is reported: one that can be
stopped has ended by then."""
_MOST_OVERRUNS = 3
"""Tasks that are named, at most."""


class TimedAttempt(Protocol):
    """An attempt, as far as its timeout goes."""

    claimed: ClaimedTask

    @property
    def is_overdue(self) -> bool:
        """True if its handler runs after its timeout."""
        ...

    def left(self) -> float:
        """Seconds left of its timeout."""
        ...


class Condition:
    """Whether a listener claims tasks, and which of its handlers overran their timeouts.

    The event loop and the watchdog change it; the heartbeat's thread reads it.
    """

    def __init__(self, shutdown: StopRequest, in_flight: Iterable[TimedAttempt]) -> None:
        self._shutdown = shutdown
        self._in_flight = in_flight
        self.suspended = False
        """True while it was asked to claim nothing."""
        self.blocked = False
        """True while a handler blocks the event loop."""

    @property
    def words(self) -> list[str]:
        """The words of a heartbeat: see heartbeat.lua."""
        idle = {
            Idle.STOPPING: self._shutdown.begun,
            Idle.SUSPENDED: self.suspended,
            Idle.BLOCKED: self.blocked,
        }
        words = [word.value for word, is_so in idle.items() if is_so][:1]
        overdue = [
            attempt.claimed.id
            for attempt in list(self._in_flight)
            if attempt.is_overdue and attempt.left() <= -_OVERRUN_AFTER
        ]
        return words + [OVERRUN + id for id in sorted(overdue)[:_MOST_OVERRUNS]]
