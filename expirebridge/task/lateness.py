"""Why a task began late: the causes, and the words for them."""

from dataclasses import dataclass
from enum import StrEnum

from expirebridge.task.durations import human
from expirebridge.task.texts import short_repr

LATE = 1.0
"""Seconds after its due time from which on a task without a `late_after` counts as late."""


class LateCause(StrEnum):
    """Why a task began late; docs/reference/lateness.md says what to do about each."""

    NOBODY = "nobody"  # no listener sent heartbeats, or all were suspended
    NO_ROOM = "no-room"  # the listeners were full
    MANY_DUE = "many-due"  # many tasks were due before it
    LIMIT = "limit"  # it waited for a slot of a limit, or for a start of a rate
    HOLD = "hold"  # it was on hold
    LEDGER = "ledger"  # its row was relayed late, or its ledger had to catch up
    NODE_AWAY = "node-away"  # the server did not answer, or refused calls; or a failover
    SERVER_SLOW = "server-slow"  # the server took long to answer a claim
    EVENT_GAP = "event-gap"  # key events were missed
    BLOCKED_LOOP = "blocked-loop"  # a handler blocked the event loop, or the process stood still
    MADE_LATE = "made-late"  # it was made after its due time
    TAKEN_OVER = "taken-over"  # from another listener, which died or gave it back, or database
    CLOCK = "clock"  # the server's clock jumped
    UNKNOWN = "unknown"


_WORDS = {
    LateCause.NOBODY: "nobody listened",
    LateCause.NO_ROOM: "no room in the listeners",
    LateCause.MANY_DUE: "many were due earlier",
    LateCause.LIMIT: "it waited for its limit",
    LateCause.HOLD: "it was on hold",
    LateCause.LEDGER: "its ledger was behind",
    LateCause.NODE_AWAY: "the server was away",
    LateCause.SERVER_SLOW: "the server was slow",
    LateCause.EVENT_GAP: "key events were missed",
    LateCause.BLOCKED_LOOP: "the event loop was blocked",
    LateCause.MADE_LATE: "it was made after its due time",
    LateCause.TAKEN_OVER: "another listener, or database, had it first",
    LateCause.CLOCK: "the server's clock jumped",
    LateCause.UNKNOWN: "for an unknown cause",
}


def words_of(cause: LateCause) -> str:
    """The cause, for people."""
    return _WORDS[cause]


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late an attempt began, and why."""

    seconds: float
    """Seconds from the due time to the start, the wait for slots included."""
    cause: LateCause

    def __repr__(self) -> str:
        return short_repr(self)

    def __str__(self) -> str:
        return f"{human(self.seconds)} late: {words_of(self.cause)}"
