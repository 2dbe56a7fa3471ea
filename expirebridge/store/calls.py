"""What can be asked of the store: each call is data, which either colour of the store runs.

A call names a script (or, rarely, a plain command), holds its arguments, and reads the reply. An
operation that takes more than one call is a generator of them:

    counts = yield from calls.count(lease=10)

Because its arguments are fixed when it is made, a call can be sent again as it is: the nonces in
them let the server know a resend.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Any, Generic, Protocol, TypeVar

from expirebridge.settings import Settings
from expirebridge.store.views import ClaimedTask, claimed_from, split_call, task_from, text
from expirebridge.task import Change, Counts, Outcome, State, Task
from expirebridge.wire import InvalidKey, TriggerKey

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Argument = str | bytes | int | float

MAX_CLAIM = 100
"""Tasks that one claim takes at most, so that no claim holds the server for long."""
MAX_CLAIM_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request to the server, and how its reply is read."""

    name: str
    """A script's name, or a command."""
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]
    is_script: bool = True

    def __iter__(self) -> Generator["Call[Any]", Any, T]:
        """Let `yield from call` send the call and give back what was read from the reply."""
        reply = yield self
        return self.read(reply)


class Operation(Protocol[T_co]):
    """One call, or a generator of calls."""

    def __iter__(self) -> Generator[Call[Any], Any, T_co]:
        """The calls, each answered with its raw reply, and the result."""
        ...


def new_nonce() -> str:
    """A value that no other call has."""
    return secrets.token_hex(8)


def _script(name: str, *arguments: Argument, read: Callable[[Any], T]) -> Call[T]:
    return Call(name, arguments, read)


# Time


@dataclass(frozen=True, slots=True)
class When:
    """A due time: so many ms from now on the server's clock, or at that ms since 1970."""

    ms: int
    relative: bool

    def encode(self) -> tuple[Argument, ...]:
        """As the scripts take it."""
        return ("in" if self.relative else "at", self.ms)


# Making


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTask:
    """A task to be made, checked and encoded."""

    id: str
    drawn: bool
    """Whether the id was drawn at random for this call, so that nobody else can have it."""
    if_exists: str
    """What to do when the id belongs to an unfinished task: see make.lua."""
    call: bytes
    when: When
    fields: dict[str, Argument] = field(default_factory=dict)
    """What else its record holds."""

    def encode(self) -> tuple[Argument, ...]:
        """As make.lua takes it."""
        pairs = [item for pair in self.fields.items() for item in pair]
        drawn = "1" if self.drawn else "0"
        return (
            self.id, drawn, self.if_exists, self.call, *self.when.encode(), len(self.fields), *pairs
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """What became of one new task; of the older one, if that was kept."""

    outcome: Outcome
    differs: bool
    """Whether it was rejected because the task to be extended has another call."""
    now: int
    """The server's time, in ms."""
    due: int
    key: bytes
    call: bytes
    args: bytes
    state: State


_DIFFERS = 6
_MAKE_CODES = {
    1: Outcome.CREATED,
    2: Outcome.KEPT,
    3: Outcome.REJECTED,
    4: Outcome.REPLACED,
    5: Outcome.EXTENDED,
    _DIFFERS: Outcome.REJECTED,
}


def make(tasks: Iterable[NewTask]) -> Call[list[Made]]:
    """Make tasks, all or nothing; those whose ids are taken are kept or rejected as they ask."""
    items = [argument for task in tasks for argument in task.encode()]
    return _script("make", new_nonce(), *items, read=_read_made)


def _read_made(reply: list[Any]) -> list[Made]:
    now, rows = reply[0], _rows(reply[1:], 6)
    return [
        Made(
            outcome=_MAKE_CODES[code],
            differs=code == _DIFFERS,
            now=now,
            due=due,
            key=key,
            call=call,
            args=args or split_call(call)[1],
            state=State(state.decode()),
        )
        for code, due, key, call, state, args in rows
    ]


# Running


@dataclass(frozen=True, slots=True)
class Claim:
    """What one look for due tasks brought."""

    now_us: int
    """The server's time, in microseconds."""
    next_due: int | None
    """When the earliest task is due, in ms; it may have passed, if room or patience ran out."""
    alone: bool
    """Whether nothing may be claimed until the listener is idle: a task waits to run alone, or
    does."""
    broken: list[str]
    """Ids whose records were missing, or could not be read; the latter are kept as failed."""
    tasks: list[ClaimedTask]


def claim(token: str, settings: Settings, *, room: int, idle: bool) -> Call[Claim]:
    """Take up to `room` due tasks for a lease, fenced by `token`, a new nonce."""
    return _script(
        "claim", token, _ms(settings.lease), min(room, MAX_CLAIM), MAX_CLAIM_BYTES, int(idle),
        _ms(settings.keep_failed), 0,
        read=lambda reply: _read_claim(reply, token),
    )  # fmt: skip


def resent(claim: Call[Claim]) -> Call[Claim]:
    """Return the claim as it is sent again after its reply was lost: it finds its own tasks."""
    return replace(claim, arguments=(*claim.arguments[:-1], 1))


def _read_claim(reply: list[Any], token: str) -> Claim:
    now_us, next_due, alone, broken, *columns = reply
    return Claim(
        now_us=now_us,
        next_due=next_due if next_due >= 0 else None,
        alone=bool(alone),
        broken=_ids(broken),
        tasks=[claimed_from(row, token) for row in _rows(columns, 11)],
    )


class Settled(IntEnum):
    """Whether an outcome was recorded."""

    DONE = 1
    REFUSED = 2  # the claim no longer held: its lease had lapsed


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of one attempt."""

    id: str
    token: str
    outcome: str
    """`succeeded`, `retry`, `failed`, `released` or `unknown`: see settle.lua."""
    delay: float = 0.0
    """Seconds until the task is looked at again, for `retry`, `released` and `unknown`."""
    text: str | bytes = ""
    """The result as JSON, or the reason."""

    def encode(self) -> tuple[Argument, ...]:
        """As settle.lua takes it."""
        return (self.id, self.token, self.outcome, _ms(self.delay), self.text)


def settle(settlements: Iterable[Settlement], settings: Settings) -> Call[list[Settled]]:
    """Record the outcomes of attempts."""
    items = [argument for settlement in settlements for argument in settlement.encode()]
    return _script(
        "settle", _ms(settings.keep_succeeded), _ms(settings.keep_failed), *items,
        read=lambda reply: [Settled(code) for code in reply],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat."""

    now_us: int
    rank: int
    """Place among the listeners that beat; rank 0 is the ear."""
    listeners: int
    gap: bool
    """Whether nobody had beaten for half a lease: events may have been missed."""
    lost: list[str]
    """Ids that this listener no longer holds."""
    cancelled: list[str]
    """Ids of those it holds that were cancelled."""


def heartbeat(listener: str, lease: float, held: Iterable[tuple[str, str]]) -> Call[Beat]:
    """Say that `listener` lives, and renew its claims: `held` are ids with their tokens."""
    pairs = [item for pair in held for item in pair]
    return _script("heartbeat", listener, _ms(lease), *pairs, read=_read_beat)


def _read_beat(reply: list[Any]) -> Beat:
    now_us, rank, listeners, gap, lost, cancelled = reply
    return Beat(now_us, rank, listeners, bool(gap), _ids(lost), _ids(cancelled))


def leave(listener: str) -> Call[None]:
    """Take `listener` off the list of those that beat."""
    return _script("leave", listener, read=lambda _: None)


# Steering


def cancel(ids: Iterable[str], *, keep: float) -> Call[list[Change]]:
    """Cancel tasks; they can be looked up for `keep` seconds."""
    return _script(
        "cancel", new_nonce(), _ms(keep), *ids,
        read=lambda codes: [_change(code, Change.CANCELLED) for code in codes],
    )  # fmt: skip


def reschedule(id: str, when: When) -> Call[Change]:
    """Move a task's due time."""
    return _script("reschedule", new_nonce(), id, *when.encode(), read=_changed(Change.MOVED))


def pause(id: str) -> Call[Change]:
    """Pause a task that waits."""
    return _script("pause", id, read=_changed(Change.PAUSED))


def resume(id: str) -> Call[Change]:
    """Let a paused task go on."""
    return _script("resume", id, read=_changed(Change.RESUMED))


def run_now(id: str) -> Call[Change]:
    """Make a task due now; a finished one starts anew."""
    return _script("run_now", new_nonce(), id, read=_changed(Change.DUE_NOW))


_DONE = 1
_CHANGE_CODES = {2: Change.REARMED, 3: Change.RUNNING, 4: Change.FINISHED, 5: Change.NOT_FOUND}


def _change(code: int, done: Change) -> Change:
    return done if code == _DONE else _CHANGE_CODES[code]


def _changed(done: Change) -> Callable[[int], Change]:
    return lambda code: _change(code, done)


# Looking


def get(id: str) -> Call[Task | None]:
    """Read one task; None if there is none of that id."""
    return _script("get", id, read=lambda row: task_from(row) if row else None)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a listing."""

    cursor: str
    """Where the next page begins; "0" if this was the last."""
    examined: int
    tasks: list[Task]


def list_page(
    *, state: State | None, func: str | None, tag: str | None, cursor: str, count: int
) -> Call[Page]:
    """Read the tasks of one state, or of one tag, a page at a time; see list.lua."""
    return _script(
        "list", state or "", func or "", tag or "", cursor, count,
        read=lambda reply: Page(
            reply[0].decode(), reply[1], [task_from(row) for row in reply[2:]]
        ),
    )  # fmt: skip


def count(lease: float) -> Call[Counts]:
    """Count the tasks in each state, and the listeners that beat within `lease` seconds."""
    names = (
        "pending", "paused", "running", "succeeded", "failed", "cancelled", "overdue", "listeners"
    )  # fmt: skip
    return _script(
        "count", _ms(lease), read=lambda reply: Counts(**dict(zip(names, reply, strict=True)))
    )


# Reconciling


class Adoption(IntEnum):
    """What became of a key that was heard of, or found."""

    ADOPTED = 1
    KNOWN = 2
    INVALID = 3  # kept as a failed task, with the reason
    NOTHING = 4


class Heard(StrEnum):
    """What was heard of a key."""

    EXPIRED = "expired"
    DELETED = "deleted"
    LIVE = "live"  # anything else: it was set or edited, or a scan found it


@dataclass(frozen=True, slots=True)
class Hint:
    """A trigger key that an event named, or a scan found."""

    name: bytes
    id: str
    call: bytes
    heard: Heard
    invalid: str = ""
    """Why it cannot be a task, if it cannot."""

    @classmethod
    def of(cls, key: TriggerKey, name: bytes, heard: Heard) -> "Hint":
        """The hint for a key whose name was read. Its arguments must stand in the name."""
        return cls(name, key.id, key.call, heard)

    @classmethod
    def of_invalid(cls, name: bytes, error: InvalidKey, heard: Heard) -> "Hint":
        """The hint for a key of our form that cannot be a task; long names are cut."""
        call = name.partition(b":?")[2]
        return cls(name, error.id, call[:512], heard, str(error))

    def encode(self) -> tuple[Argument, ...]:
        """As adopt.lua takes it."""
        return (self.name, self.id, self.call, self.heard, self.invalid)


def adopt(hints: Iterable[Hint], settings: Settings) -> Call[list[Adoption]]:
    """Make records for foreign tasks, and follow edits of the timers of known ones."""
    items = [argument for hint in hints for argument in hint.encode()]
    return _script(
        "adopt", _ms(settings.keep_failed), _ms(settings.keep_succeeded), *items,
        read=lambda reply: [Adoption(code) for code in reply[::2]],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a part of the database holds that no record knows."""

    cursor: str
    """Where to go on; "0" if all was walked over."""
    alien: int
    """Keys that are not expirebridge's."""
    found: list[bytes]


def scan(cursor: str, count: int) -> Call[Scanned]:
    """Walk over about `count` keys in search of trigger keys without a record."""
    return _script(
        "scan", cursor, count,
        read=lambda reply: Scanned(reply[0].decode(), reply[1], reply[2:]),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one pass of the reconciler did."""

    more: bool
    forgotten: int
    lapsed: list[str]
    failed: list[str]
    """Tasks that lapsed once too often."""


def sweep(settings: Settings, limit: int = 500) -> Call[Sweep]:
    """Take back lapsed tasks, look at paused ones, forget finished ones; at most `limit` ids."""
    return _script(
        "sweep", _ms(settings.lease), limit, settings.keep_succeeded_count,
        _ms(settings.keep_succeeded), _ms(settings.keep_failed),
        read=lambda reply: Sweep(
            bool(reply[0]), reply[1], _ids(reply[2]), _ids(reply[3])
        ),
    )  # fmt: skip


# The server itself


def command(*parts: Argument) -> Call[Any]:
    """A plain command, for what is no task's business: the server's version, settings and role."""
    return Call(str(parts[0]), parts[1:], lambda reply: reply, is_script=False)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _ids(raw: Iterable[bytes]) -> list[str]:
    return [text(id) for id in raw]


def _rows(columns: Sequence[Any], width: int) -> list[Sequence[Any]]:
    return [columns[at : at + width] for at in range(0, len(columns), width)]
