"""Events: what happens in expirebridge, as values to count, trace or log.

Hooks get them, see `hooks.py`.
"""

from dataclasses import dataclass
from enum import StrEnum

from expirebridge.task.lateness import LateCause
from expirebridge.task.task import Task
from expirebridge.task.texts import short_repr


class End(StrEnum):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    RETRY = "retry"  # it failed, and will be attempted again
    FAILED = "failed"  # it failed for good
    SNOOZED = "snoozed"  # not counted: its handler asked to be called later, by `Snooze` or `Busy`
    RELEASED = "released"  # given back, not counted: the listener stops, or lacks the function
    DROPPED = "dropped"  # not counted: a moment ago, its row in a ledger was cancelled or changed
    REFUSED = "refused"  # the lease had lapsed: another listener has the task, or had it


@dataclass(kw_only=True, slots=True)
class Making:
    """A producer is about to make a task."""

    id: str
    func: str
    trace: str | None = None
    """The call's place in a trace: a W3C `traceparent`. A hook may set it here, and the task then
    carries it. An unfinished task that is kept or extended keeps its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotMade:
    """A producer's call raised. If the server did not answer, the task may have been made."""

    id: str
    error: Exception

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Made:
    """A producer's call returned; `task.outcome` says what it did."""

    task: Task

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """A listener looked for due tasks and claimed `count` of them (0: there were none)."""

    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A handler is about to be called."""

    task: Task
    lateness: float
    """Seconds from due to now, by the listener's estimate of the server's clock; without
    `task.waited`, the time for which it waited for slots."""
    cause: LateCause | None = None
    """Why it is late, if it is more than a second, with that time."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Misfired:
    """A task is later than its `late_after` allows, and its handler is not called now."""

    task: Task
    lateness: float
    """Seconds from due to now, by the listener's estimate of the server's clock."""
    done: str
    """`skipped`: it failed. `spread`: it is pending again, due at some time in the window."""
    cause: LateCause | None = None
    """Why it is late; None in the testing kit."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """An attempt's outcome was recorded, or refused."""

    task: Task
    end: End
    duration: float
    """How many seconds the handler took."""
    reason: str = ""
    """Why it did not succeed, with a traceback. That may show the task's arguments."""
    brief: str = ""
    """The same for the log: only the type of the exception that the handler raised. The reason that
    it gave to `Retry`, `Snooze`, `Busy` or `Discard` is included."""
    error: BaseException | None = None
    """What the handler raised, if that is why; `Retry`, `Snooze`, `Busy` and `Discard` are
    answers."""

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lapsed:
    """A task's lease ran out without a heartbeat: its listener died, or fell silent."""

    id: str
    failed: bool
    """Whether this was one lapse too many. If not, the task is pending again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Events may have been missed; a scan of the keys follows."""

    reason: str
    node: str = ""
    """The node of a cluster, as `host:port`, if the listener works with several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """The scan that follows a gap has ended."""

    adopted: int
    """How many tasks it found that other clients had set."""
    node: str = ""
    """As in `Gap`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedOver:
    """A listener goes on at another primary, which its sentinels or a cluster's nodes name."""

    server: str
    """The new primary, as `host:port`."""
    before: str
    """The old one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Misplaced:
    """A foreign key is not run: its tag is not that of its partition. Each is reported once."""

    id: str
    func: str
    right: str
    """What its name must begin with: the tag, with braces."""


class Direction(StrEnum):
    """Which way a pass of the ledger's relay went."""

    OUT = "out"  # from rows to the server
    BACK = "back"  # from the server to rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """A listener's relay made a pass between its ledger and the server."""

    direction: Direction
    rows: int
    """How many rows it carried."""
    rebuilt: int = 0
    """How many of them the server had lost."""
    refused: int = 0
    """How many cannot be tasks."""


class Source(StrEnum):
    """What rang a listener's doorbell."""

    EVENT = "event"  # a key expired whose task it had not claimed itself
    CLOCK = "clock"  # its own clock
    PRODUCER = "producer"  # a message from a producer that made or moved the earliest task


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """A listener heard the doorbell: a task is due, or will be the next one."""

    source: Source


class ProcessEnd(StrEnum):
    """Why a process for handlers ended."""

    STOPPED = "stopped"  # its listener stopped
    TIMEOUT = "timeout"  # it was killed at its handler's timeout
    CANCELLED = (
        "cancelled"  # it was killed, because its task was cancelled, or its listener stopped
    )
    MEMORY = "memory"  # a handler in it reached the memory limit, so it was replaced
    DIED = "died"  # by itself: an exit, a crash, or somebody else's kill


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessStarted:
    """A listener has one more process for handlers with `process=True`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessEnded:
    """A process for handlers ended, and nothing of it is left."""

    end: ProcessEnd


Event = (
    Making
    | NotMade
    | Made
    | Claimed
    | Started
    | Misfired
    | Ended
    | Lapsed
    | Gap
    | Scanned
    | FailedOver
    | Misplaced
    | Passed
    | Rung
    | ProcessStarted
    | ProcessEnded
)
