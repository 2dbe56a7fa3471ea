"""A row of the ledger: its state, and how it is written, shown to people, and checked.

Rows may be written by programs in any language, so nothing about them is taken for granted. This
works without SQLAlchemy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple

import orjson

from expirebridge.errors import InvalidTask
from expirebridge.store.record_values import args_of, funcs_of, split_call, text
from expirebridge.store.stored_signal import signal_shown
from expirebridge.store.task_records import EXPORTED, error_of
from expirebridge.task import keys
from expirebridge.task.calls.call import Argument, When
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.durations import LONGEST
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.record_fields import record_fields
from expirebridge.task.signal import Signal
from expirebridge.task.task import Outcome, State, from_ms
from expirebridge.task.texts import short_repr

LONGEST_EXT: Final = 255
"""Characters of the name that an application gives a task."""
LARGEST_COUNT: Final = 2**31 - 1
"""The largest revision, or number of attempts, for which a row has room."""
LARGEST_TIME: Final = 2**53 - 1
"""The largest time in ms, or generation: Lua reads larger numbers inexactly."""


class Status(IntEnum):
    """The status of a task in its row. Only the relay and `complete_in` write it."""

    WAITING = 1  # or running: only Redis has that
    SUCCEEDED = 10
    FAILED = 20
    CANCELLED = 30


FINAL_STATES: Final = {
    Status.SUCCEEDED: State.SUCCEEDED,
    Status.FAILED: State.FAILED,
    Status.CANCELLED: State.CANCELLED,
}
"""The state of a task in Redis that has this status in its row."""


class DesiredState(StrEnum):
    """The state that the application wants for a task, if it is not to run."""

    NONE = "none"
    CANCELLED = "cancelled"


class Decided(StrEnum):
    """What decided which function runs, of a task that waited for a signal."""

    DEADLINE = "deadline"
    SIGNAL = "signal"


class SyncState(IntEnum):
    """The work that is left for the relay to bring a row to Redis."""

    NOTHING = 0
    RELAY = 1  # the row is new, or the application changed it
    REBUILD = 2  # Redis lost it; its task does not run meanwhile
    TAKEN = 3  # it came near, and another task has its id: tried again each minute


class RowVersion(NamedTuple):
    """The version of a row, which the record of its task in Redis names too."""

    generation: int
    """The time at which the task of this id was made; one more each time that Redis restarts it."""
    revision: int
    """Raised by each change that the application makes."""

    def __str__(self) -> str:
        return f"{self.generation} {self.revision}"

    @classmethod
    def read(cls, raw: bytes | None) -> "RowVersion | None":
        """Read that of a record; None if it names none that a row can have."""
        parts = (raw or b"").split()
        if len(parts) != 2 or not all(part.isdigit() and len(part) < 20 for part in parts):
            return None
        version = cls(int(parts[0]), int(parts[1]))
        is_legal = version.generation <= LARGEST_TIME and version.revision <= LARGEST_COUNT
        return version if is_legal else None


class RowState(NamedTuple):
    """The state of the row of a claimed task."""

    version: RowVersion
    status: Status
    wanted: DesiredState
    message: str | None
    is_open: bool = False
    """True if it waits for a signal, and neither that nor its deadline has decided."""
    todo: int = SyncState.NOTHING
    stamp: int = 0


_LONGEST_MS: Final = round(LONGEST * 1000)
_OPTIONS: Final = sorted({*EXPORTED, "overlap", "trace"})

Row = Mapping[Any, Any]
"""A row by the names of its columns."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerTask:
    """A task of the ledger, as its row was when it was read.

    Redis has more: `Bridge.get` returns who runs it, and its history.
    """

    id: str
    func: str
    args: Sequence[Any] = ()
    """The handler's positional arguments; none if a row holds what are no arguments."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ext: str | None = None
    """The name that the application gave it."""
    tags: tuple[str, ...] = ()
    urgent: bool = False
    """True if it is taken before others that are due."""
    status: Status = Status.WAITING
    wanted: DesiredState = DesiredState.NONE
    """The state that the application wants: `cancelled`, or `none`."""
    due: datetime | None = None
    """Its due time on Redis's clock, as last relayed or written back; until then, as it asks.
    None if that cannot be read, and from `make_task`."""
    relayed: bool = False
    """False as long as Redis has not had it: it is new, or it is kept back in SQL until it is due
    within the listeners' horizon."""
    retry_times: int = 0
    """How many attempts were made before the last one."""
    message: str | None = None
    """Why the last attempt failed, or why the row was refused."""
    on_signal: str | None = None
    """The function that runs instead if it is signalled, as long as it can be."""
    signal: Signal | None = None
    """The signal that decided that `func` runs, if one did."""
    generation: int | None = None
    """The version of this task among those of its id; None from `make_task`."""
    revision: int = 1
    """Raised with each change of what is wanted."""
    created: datetime | None = None
    """The time at which the row was inserted, on the database's clock; None from `make_task`."""
    modified: datetime | None = None
    """The time of the row's last change, on the database's clock; None from `make_task`."""
    outcome: Outcome | None = None
    """From `make_task` and `make_tasks` only: `created`, also when it took another's place; or
    `rejected`, from `make_tasks`."""

    def __repr__(self) -> str:
        return short_repr(self, "id", "func", "ext", "status", "due", "outcome")


def values_of(new: NewTask, *, ledger: str, ext: str | None) -> dict[str, Any]:
    """The columns that a new task gives, as parameters of its statement. Raises InvalidTask."""
    func, inline = split_call(new.call)
    fields = dict(new.fields)
    params = fields.pop("args", inline)
    return {
        "b_ledger": ledger,
        "b_id": new.id,
        "b_func": func,
        "b_params": params.decode() if isinstance(params, bytes) else params,
        "b_options": options_of(fields),
        "b_ext_string": check_ext(ext),
        **times_of(new.when),
    }


def times_of(when: When) -> dict[str, Any]:
    """The columns of a time, as parameters."""
    return {
        "b_at_ms": None if when.relative else when.ms,
        "b_delay_ms": when.ms if when.relative else None,
    }


def check_ext(ext: object) -> str | None:
    """Return a legal `ext` unchanged, or None; raise InvalidTask for any other."""
    if ext is None:
        return None
    if not isinstance(ext, str) or not 1 <= len(ext) <= LONGEST_EXT or "\0" in ext:
        raise InvalidTask(f"ext={str(ext)[:60]!r}: give text of 1 to {LONGEST_EXT} characters")
    try:
        ext.encode()
    except UnicodeEncodeError as error:
        raise InvalidTask(f"ext={ext[:60]!r}: {error}") from None
    return ext


def options_of(fields: Mapping[str, Any]) -> str | None:
    """Encode the fields of a record for the column `options`."""
    if not fields:
        return None
    options = dict(fields)
    if "tags" in options:
        options["tags"] = str(options["tags"]).split()
    if "urgent" in options:
        options["urgent"] = True
    return orjson.dumps(options).decode()


def ledger_task(row: Row, key_ring: KeyRing | None = None) -> LedgerTask:
    """Return a row as a task; values that cannot be read are left out, or noted if sealed."""
    params, message = str(row["params"]).encode(), row["message"]
    awaited = fields_about_signals(row)
    try:
        if keys.is_hidden(params):
            funcs = funcs_of(awaited | {"call": str(row["func"]).encode()})
            args, kwargs = args_of(params, row["id"], *funcs, key_ring=key_ring)
        else:
            args, kwargs = keys.decode_args(params)
    except ValueError:
        args, kwargs = [], {}
    if message is not None:
        message = text(error_of(message.encode(), row["id"], key_ring))
    return LedgerTask(
        id=row["id"],
        func=row["func"],
        args=args,
        kwargs=kwargs,
        ext=row["ext_string"],
        tags=_tags_of(row),
        urgent=_options_in(row).get("urgent") is True,
        status=Status(row["status"]),
        wanted=DesiredState(row["wanted"]),
        due=_due_of(row),
        relayed=row["stamp"] > 0,
        retry_times=row["retry_times"],
        message=message,
        on_signal=on_signal_of(row),
        signal=signal_shown(awaited, row["id"], key_ring),
        generation=row["generation"],
        revision=row["revision"],
        created=from_ms(row["created"]),
        modified=from_ms(row["modified"]),
    )


def _due_of(row: Row) -> datetime | None:
    due = planned_at(row) if row["due"] is None else row["due"]
    return from_ms(due) if due is not None and 0 <= due <= LARGEST_TIME else None


_ABOUT_SIGNALS: Final = ("on_signal", "lost", "signal", "signalled")


def fields_about_signals(row: Row) -> dict[str, bytes]:
    """What the options of a row say about signals, as a record has it; any may be missing."""
    options = _options_in(row)
    return {name: str(options[name]).encode() for name in _ABOUT_SIGNALS if name in options}


def _tags_of(row: Row) -> tuple[str, ...]:
    tags = _options_in(row).get("tags")
    return tuple(map(str, tags)) if isinstance(tags, list) else ()


def _options_in(row: Row) -> dict[str, Any]:
    """The options of a row; none if that is not what they are."""
    try:
        options = orjson.loads(row["options"] or "{}")
    except (orjson.JSONDecodeError, TypeError):
        return {}
    return options if isinstance(options, dict) else {}


def on_signal_of(row: Row) -> str | None:
    """The function that its task runs if it is signalled, as long as it can be."""
    second = fields_about_signals(row).get("on_signal")
    return text(second) if second is not None and row["decided"] is None else None


def new_task_of(row: Row, now: int) -> NewTask:
    """Return the task that a row asks for, checked as by `make_task`.

    `now` is the database's clock, in ms, when the row was read: what has passed of a delay since
    the row was written is taken off. A row that was relayed before is due when it was last. Raises
    InvalidTask, which says what is wrong and never quotes arguments.
    """
    func, params = keys.check_func(_text(row, "func")), _text(row, "params").encode()
    is_sealed = keys.is_hidden(params)
    if not is_sealed:
        keys.check_args(params)
    _check_numbers(row)
    fields = _fields(row)
    if is_sealed or len(params) > keys.MAX_ARGS_IN_KEY:
        fields["args"], params = params, keys.IN_RECORD
    return NewTask(
        id=keys.check_id(row["id"]),
        has_random_id=False,
        if_exists="reject",
        call=func.encode() + b"?" + params,
        when=_when(row, now),
        fields=fields,
    )


def planned_at(row: Row) -> int | None:
    """When a row that Redis never had asks to run, in ms; None if that cannot be read."""
    delay, written = row["delay_ms"], row["written"]
    if row["at_ms"] is None and isinstance(delay, int) and isinstance(written, int):
        return written + delay
    return row["at_ms"] if isinstance(row["at_ms"], int) else None


def is_kept_back(row: Row, horizon: float | None) -> bool:
    """Return whether a row that comes near now was left in SQL for a while before."""
    planned, written = planned_at(row), row["written"]
    if horizon is None or row["stamp"] or planned is None or not isinstance(written, int):
        return False
    return planned - written > horizon * 1000


def _check_numbers(row: Row) -> None:
    """Check the columns that CHECK constraints or only our own statements restrict."""
    if row["status"] not in list(Status) or row["wanted"] not in list(DesiredState):
        raise InvalidTask("status, wanted: there are no such values")
    for name, last in (("generation", LARGEST_TIME), ("revision", LARGEST_COUNT)):
        _whole(row, name, 1, last, "a whole number, 1 or more")


def _whole(row: Row, name: str, least: int, last: int, advice: str) -> int:
    value = row[name]
    if not isinstance(value, int) or not least <= value <= last:  # SQLite keeps what it is given
        raise InvalidTask(f"{name}: write {advice}")
    return value


def _text(row: Row, name: str) -> str:
    value = row[name]
    if not isinstance(value, str):  # SQLite keeps what it is given
        raise InvalidTask(f"{name}: write text")
    return value


def _fields(row: Row) -> dict[str, Argument]:
    if row["options"] is None:
        return {}
    try:
        options = orjson.loads(_text(row, "options"))
    except orjson.JSONDecodeError as error:
        raise InvalidTask(f"options: not JSON: {error.msg}") from None
    if not isinstance(options, dict):
        raise InvalidTask("options: write one JSON object")
    for name in options:
        if name not in _OPTIONS:
            raise InvalidTask(
                f"options: there is no {name[:60]!r}; there are {', '.join(_OPTIONS)}"
            )
    fields = record_fields(options)
    if options.get("overlap") == "allow":  # of a tick: its series lets them overlap
        fields["overlap"] = "allow"
    return fields


def _when(row: Row, now: int) -> When:
    if (row["at_ms"] is None) == (row["delay_ms"] is None):
        raise InvalidTask("at_ms, delay_ms: write one of the two")
    for name in ("due", "at_ms"):
        if row[name] is not None:
            return When(_whole(row, name, 0, LARGEST_TIME, "ms since 1970"), relative=False)
    delay = _whole(row, "delay_ms", 0, _LONGEST_MS, "ms, 0 or more, and at most 100 years")
    passed = now - _whole(row, "written", 0, LARGEST_TIME, "ms since 1970")
    return When(max(delay - max(passed, 0), 0), relative=True)
