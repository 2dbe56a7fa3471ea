"""A task, as the people see it who make, run and inspect it."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from expirebridge.task.texts import short_repr

if TYPE_CHECKING:  # a process that only makes tasks does without these
    from expirebridge.task.history import HistoryEntry
    from expirebridge.task.lateness import Lateness
    from expirebridge.task.queue_place import QueuePlace
    from expirebridge.task.signal import Signal
    from expirebridge.task.spending import Spending
    from expirebridge.task.transactions import Transaction

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
    NOT_FOUND = "not found"  # by `why_absent`, why that may be: a ledger may keep its row back
    ELSEWHERE = "elsewhere"  # it is not here, but the database is being moved: ask the other one
    NOT_WATCHED = "not watched"  # a beat for a task that was not made by `watch`
    FORGOTTEN = "forgotten"  # it is no longer kept: a listener removes it in its next pass
    NOT_FAILED = "not failed"
    REMOVED = "removed"  # a series, and its waiting tick
    DECLARED = "declared"  # a series is not removed: a listener's handlers declare it
    PASSED = "passed"  # it has failed, and keeps the others of its lane waiting no longer
    UNCHANGED = "unchanged"  # it has no slot to give up; or, of `edit`, it is not as was expected
    SIGNALLED = "signalled"  # by this signal: it runs its other function
    SIGNALLED_BEFORE = "signalled before"  # another signal has decided
    BEGUN = "begun"  # an attempt has begun, so its deadline has decided: the signal is too late
    NOT_AWAITED = "not awaited"  # a signal for a task that was made without `on_signal`
    OF_LEDGER = "of a ledger"  # a signal that is to go to its row: `ledger.signal`
    EDITED = "edited"  # its new arguments fit what a listener has declared
    EDITED_UNCHECKED = "edited, not checked"  # no live listener has declared the signature


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
    urgent: bool = False
    """True if it is taken before others that are due."""
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
    late: "Lateness | None" = None
    """How late its last attempt began, and why, of a finished task: if it was more than its
    `late_after`, or a second."""
    queued: "QueuePlace | None" = None
    """Where it stands in line, of a waiting task that was read by `get`."""
    history: "tuple[HistoryEntry, ...]" = ()
    """The history of a task that was looked up, latest last. Between its creation and its last
    attempt, at most 20 entries are kept."""
    tick: datetime | None = None
    """Of a task of a series: the scheduled time for which it stands, whenever it runs."""
    trace: str | None = None
    """Its producer's place in a trace, if there was one: a W3C `traceparent`."""
    on_signal: str | None = None
    """The function that runs instead if it is signalled, as long as it can be."""
    signal: "Signal | None" = None
    """The signal that decided that this function runs, if one did."""
    after: str | None = None
    """The id of the task whose handler returned this one as its follow-up, if one did."""
    then: str | None = None
    """Of a task that succeeded: the id of its follow-up, if its handler returned one."""
    in_clear: tuple[str, ...] = ()
    """Read with keys: which of `arguments`, `result`, `error`, `signal` and `history` are not
    sealed, so that whoever can write to the server may have written them. Empty without keys."""
    completer: "Callable[[Transaction], None] | None" = field(
        default=None, repr=False, compare=False
    )
    """For `complete_in`: what a listener with a ledger gives the handler of one of its tasks."""
    spending: "Spending | None" = field(default=None, repr=False, compare=False)
    """For `spend`: what a listener gives a handler with a budget."""

    def __repr__(self) -> str:
        return short_repr(self, "id", "func", "state", "due", "outcome")

    def complete_in(self, session: "Transaction") -> None:
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

    def spend(self, amount: int, *, of: str | None = None) -> None:
        """Charge the handler's `Budget` for what this attempt spent beyond the task's cost.

        It is charged when the attempt ends, however it does, once for each attempt; nothing is
        given back. What is more than the budget has left is a debt, and its tasks wait until that
        is paid. `of` is that of the budget, if the handler has several. For `current_task()` only.

        Raises InvalidTask unless `amount` is a whole number from 0 to 1,000,000,000, if it was told
        before, and if the handler has no such budget. Raises LookupError if it has none at all.
        """
        if self.spending is None:
            raise LookupError(
                f"task {self.id!r} has no budget to spend: give its handler one, "
                "@handler(rate=Budget(200_000, '1m', of='tokens')), and call "
                "current_task().spend(n) in it"
            )
        self.spending.add(amount, of)


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
