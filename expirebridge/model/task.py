"""A task, as the people see it who make, run and inspect it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from expirebridge.model.lanes import DeclaredLimit, Lane, QueuePlace
from expirebridge.model.lateness import Lateness
from expirebridge.model.transactions import Transaction

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MS
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS


class State(StrEnum):
    """The states of a task. Each has its sorted set in Redis."""

    PENDING = "pending"
    WAITING = "waiting"  # due, but its lane has no slot, its rate no start, or it is on hold
    PAUSED = "paused"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def finished(self) -> bool:
        """True in a final state: succeeded, failed or cancelled."""
        return self in FINISHED


FINISHED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
UNCLAIMED = (State.PENDING, State.WAITING, State.PAUSED)
"""The states of an unfinished task that no listener runs."""


class Outcome(StrEnum):
    """The result of `make_task`."""

    CREATED = "created"
    KEPT = "kept"  # the id belonged to an unfinished task, which was left unchanged
    REPLACED = "replaced"  # it replaced an unfinished task, or will when that has run
    EXTENDED = "extended"  # an unfinished task's due time was moved
    REJECTED = "rejected"  # in bulk only: the id belonged to an unfinished task; nothing was done


class Change(StrEnum):
    """The result of a change that a producer asked for."""

    CANCELLED = "cancelled"
    MOVED = "moved"
    PAUSED = "paused"
    RESUMED = "resumed"
    DUE_NOW = "due now"
    WAITING = "waiting"  # it is due already and waits for a slot: `run_now` passes over no limit
    REARMED = "rearmed"  # its handler is running: the task runs once more at the new due time
    RUNNING = "running"  # its handler is running; after `cancel`, no further attempt follows
    FINISHED = "finished"
    NOT_FOUND = "not found"
    ELSEWHERE = "elsewhere"  # it is not here, but the database is being moved: ask the other one
    NOT_WATCHED = "not watched"  # a beat for a task that was not made by `watch`
    FORGOTTEN = "forgotten"  # it is no longer kept: a listener removes it in its next pass
    NOT_FAILED = "not failed"
    REMOVED = "removed"  # a series, and its waiting tick
    DECLARED = "declared"  # a series is not removed: a listener's handlers declare it
    PASSED = "passed"  # it has failed, and keeps the others of its lane waiting no longer
    UNCHANGED = "unchanged"  # it has no slot to give up; or, of `edit`, it is not as was expected
    EDITED = "edited"  # its new arguments fit what a listener has declared
    EDITED_UNCHECKED = "edited, not checked"  # no live listener has declared the signature


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One thing that happened to a task."""

    at: datetime
    """The time, or when it was noticed, on the server's clock; the last one, if repeated."""
    what: str
    """`created`; what changed its due time: `reschedule`, `extend`, `put_off`, `run_now`, `pause`,
    `resume`, `beat`, or `edit` for a plain command of any client; `edit_args`, which changed its
    arguments; or how an attempt ended: `retry`, `snoozed`, `released`, `unknown`, `lapsed`,
    `rearmed`, or a final state. `started`: it is running."""
    old_due: datetime | None = None
    """The due time before. None if it was paused, or running."""
    new_due: datetime | None = None
    """The due time from then on. None if it was paused."""
    attempt: int | None = None
    """The number of the attempt that ended, or is running."""
    started: datetime | None = None
    """The time at which that attempt was claimed."""
    error: str = ""
    """The last line of its error, or why it was given back."""
    times: int = 1
    """How often it happened in a row: keepalives, snoozes, and attempts without a handler, are one
    entry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One task, as it was when it was read."""

    id: str
    """Its name, unique among the tasks of a database."""
    func: str
    """The handler: `module.function`, or `path/to/module.function`."""
    args: Sequence[Any] = ()
    """The handler's positional arguments."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The handler's keyword arguments."""
    key: bytes
    """The trigger key. Any client may put the task off with `EXPIRE key seconds`."""
    state: State
    due: datetime
    """The due time, on the server's clock (UTC, to the millisecond)."""
    created: datetime | None = None
    """The time of its creation, on the server's clock (UTC, to the second)."""
    attempt: int = 0
    """How many times its handler was started. While it runs, the number of this attempt."""
    tags: tuple[str, ...] = ()
    outcome: Outcome | None = None
    """The result of `make_task`; None for a task that was looked up."""
    started: datetime | None = None
    """The time at which the last attempt was claimed, on the server's clock."""
    listener: str | None = None
    """The listener that claimed the last attempt, by the last 8 characters of its name."""
    ended: datetime | None = None
    """The time of its final state, on the server's clock."""
    result: Any = None
    """The handler's result, if it fits into 4 KiB of JSON; otherwise a note."""
    error: str | None = None
    """Why the last attempt failed, or why the task waits."""
    lapses: int = 0
    """How many listeners died, or fell silent, while they ran this attempt."""
    snoozes: int = 0
    """How often its handler raised `Snooze` or `Busy` since the task was made, or ran again by
    request."""
    waited: float = 0.0
    """Seconds for which it has waited for slots of its limits since it was due."""
    late: Lateness | None = None
    """How late its last attempt began, and why, of a finished task: if it was more than its
    `late_after`, or a second."""
    queued: QueuePlace | None = None
    """Where it stands in line, of a waiting task that was read by `get`."""
    history: tuple[HistoryEntry, ...] = ()
    """The history of a task that was looked up, latest last. Between its creation and its last
    attempt, at most 20 entries are kept."""
    tick: datetime | None = None
    """Of a task of a series: the scheduled time for which it stands, whenever it runs."""
    trace: str | None = None
    """Its producer's place in a trace, if there was one: a W3C `traceparent`."""
    after: str | None = None
    """The id of the task whose handler returned this one as its follow-up, if one did."""
    then: str | None = None
    """Of a task that succeeded: the id of its follow-up, if its handler returned one."""
    completer: Callable[[Transaction], None] | None = field(default=None, repr=False, compare=False)
    """For `complete_in`: what a listener with a ledger gives the handler of one of its tasks."""

    def complete_in(self, session: Transaction) -> None:
        """Record that this task succeeded, in the handler's own transaction, as its last statement.

        `session` is what `Ledger.make_task` takes: a Session or Connection of SQLAlchemy, or a
        connection of a driver or of Django, to the ledger's database. Once it is committed no other
        attempt is made, whatever happens to Redis or to the listener. For `current_task()` only.

        Raises CompletionRefused if the task is not this attempt's to complete any more; let that
        pass, so that the transaction is rolled back. Raises LookupError for a task that is not of a
        ledger.
        """
        if self.completer is None:
            raise LookupError(
                f"task {self.id!r} cannot complete in a transaction: make it by ledger.make_task, "
                "start the listener with that ledger (EXPIREBRIDGE_LEDGER), and call "
                "current_task().complete_in(session) in its handler"
            )
        self.completer(session)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitListing:
    """The limits that listeners declared, and the lanes in which most tasks are."""

    limits: list[DeclaredLimit]
    """All limits, by name."""
    lanes: list[Lane]
    """The lanes in which most tasks have a slot or wait, the fullest first; also those of holds."""
    left_out: tuple[LeftOut, ...] = ()
    """Partitions that could not be asked: their lanes are not among these."""


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


def from_ms(ms: int) -> datetime:
    """Turn milliseconds since 1970 into an aware UTC datetime, exactly.

    A time outside of the years that a datetime can hold becomes the first or the last of them. Such
    a time is bad data, and people must be able to look at it.
    """
    if not _FIRST_MS <= ms <= _LAST_MS:
        ms = min(max(ms, _FIRST_MS), _LAST_MS)
    return _EPOCH + timedelta(0, 0, 0, ms)  # by place, which takes half the time


def to_ms(moment: datetime) -> int:
    """Turn an aware datetime into whole milliseconds since 1970, rounded up: never earlier."""
    return -((_EPOCH - moment) // _MS)


# The task of the handler that is running.

running_task: ContextVar[Task] = ContextVar("expirebridge_running_task")
"""The listener sets it around each handler."""


def current_task() -> Task:
    """Return the task of the calling handler. Raises LookupError outside of a handler."""
    try:
        return running_task.get()
    except LookupError:
        raise LookupError(
            "current_task() works only in a handler, while a listener calls it: no task is running "
            "here. In a test, call the handler by expirebridge.testing.run_handler"
        ) from None
