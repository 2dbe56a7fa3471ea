"""Reads tasks out of the replies of scripts."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from expirebridge.store.queue_places import place_from
from expirebridge.store.record_values import (
    args_of,
    call_of,
    first_moment,
    funcs_of,
    json,
    moment,
    number,
    ring_for,
    state_of,
    text,
    whole,
    words,
)
from expirebridge.store.stored_signal import signal_shown
from expirebridge.task.history import HistoryEntry
from expirebridge.task.key_ring import (
    MARK,
    Content,
    KeyRing,
    NotOpened,
    note_of,
    replace_in_history,
)
from expirebridge.task.keys import ERASED, IN_RECORD
from expirebridge.task.lateness import LateCause, Lateness
from expirebridge.task.task import State, Task, from_ms

# Reads what happened to a task out of its record.

_ATTEMPTS = {"retry", "snoozed", "released", "unknown", "lapsed", "rearmed", *State}

_MOVES = {"reschedule", "extend", "put_off", "edit", "beat", "signal"}


def history_of(record: Mapping[str, bytes], state: State) -> tuple[HistoryEntry, ...]:
    """All that a record holds, the earliest first: its making, what was noted, its last attempt.

    Lines that cannot be read are left out.
    """
    noted = list(_noted(record.get("history", b"")))
    told = sorted([*_created(record), *noted], key=lambda entry: entry.at)
    for last in _last_attempt(record, state, noted):
        later = (place for place, entry in enumerate(told) if _comes_after(entry, last))
        told.insert(next(later, len(told)), last)
    return tuple(told)


def _comes_after(entry: HistoryEntry, last: HistoryEntry) -> bool:
    """True if it came after the start, or the end, of the last attempt."""
    if entry.at != last.at or last.what != "started":
        return entry.at > last.at
    # In the millisecond of the start: what moves a task that was not due at any time moves one that
    # runs. One that was paused is resumed, or run now, before it is claimed.
    return entry.what in _MOVES and entry.old_due is None


def _created(record: Mapping[str, bytes]) -> Iterator[HistoryEntry]:
    if made := _moment(record.get("made", b""), unit=1000):
        yield HistoryEntry(at=made, what="created")


def _noted(history: bytes) -> Iterator[HistoryEntry]:
    """The lines that include/history.lua wrote."""
    for line in history.decode(errors="backslashreplace").split("\n"):
        at, what, first, second, times, *rest = [*line.split(" ", 5), "", "", "", ""]
        moment = _moment(at)
        if moment is None or not times.isascii() or not times.isdigit():
            continue
        if what in _ATTEMPTS:
            yield HistoryEntry(
                at=moment, what=what, attempt=_number(first), started=_moment(second),
                times=int(times), error=rest[0],
            )  # fmt: skip
        else:
            yield HistoryEntry(
                at=moment, what=what, old_due=_moment(first), new_due=_moment(second),
                times=int(times),
            )  # fmt: skip


def _last_attempt(
    record: Mapping[str, bytes], state: State, noted: list[HistoryEntry]
) -> Iterator[HistoryEntry]:
    """The attempt at work, or how the task ended. What ended otherwise was noted."""
    started = _moment(record.get("started", b""))
    attempt = _number(record.get("attempt", b""))
    if state is State.RUNNING and started:
        yield HistoryEntry(at=started, what="started", attempt=attempt, started=started)
    if state.finished and (ended := _moment(record.get("ended", b""))):
        error = record.get("error", b"").decode(errors="backslashreplace")
        # A task that was cancelled while it waited ended with no attempt: none has its token now.
        # One whose last listener died has lost the token, too, but its attempt was not noted.
        if "token" not in record and any(entry.started == started for entry in noted):
            attempt = started = None
        yield HistoryEntry(
            at=ended, what=state, attempt=attempt, started=started,
            error=error.rpartition("\n")[2] if state is not State.SUCCEEDED else "",
        )  # fmt: skip


def _number(stored: bytes | str) -> int | None:
    try:
        return int(stored)
    except ValueError:
        return None


def _moment(stored: bytes | str, unit: int = 1) -> datetime | None:
    ms = _number(stored)
    return None if ms is None else from_ms(ms * unit)


LISTENER_DIGITS = 8
"""Characters of a claim's token that are the end of the name of the listener that claimed."""


def listener_of(token: str) -> str:
    """The end of the name of the listener whose claim has this token."""
    return token[:LISTENER_DIGITS]


def _last_listener(record: Mapping[str, bytes]) -> str | None:
    """The listener of the last attempt, if there was one; see wire-protocol.md for the fields."""
    token = record.get("token") or record.get("settled")
    return listener_of(text(token)) if token and "started" in record else None


# The fields of a task's record, each once: how it is shown, claimed and exported.
#
# The fields of every task (`call`, `args`, `key`, `made`) are read where needed; see task_view.lua.


class Field(NamedTuple):
    """One field of a record."""

    name: str
    """In the record, in `Task`, and in an exported task."""
    shown: Callable[[bytes], Any] | None = None
    """How it is read for `Task`; None if that does not have it."""
    claimed: bool = False
    """True if a handler sees it in its own `Task`: claim.lua replies these, in this order."""
    exported: Callable[[bytes], Any] | None = None
    """How it goes into an exported task; None if it stays behind. Bad data raises ValueError."""


def _seconds(raw: bytes) -> float | None:
    ms = whole(raw)
    return None if ms is None else ms / 1000


def _waited(raw: bytes) -> float | None:
    """Seconds for which a task waited: the first of the numbers."""
    return _seconds(raw.partition(b" ")[0])


def _held(raw: bytes) -> float:
    """How many of these seconds it was on hold: the second number, if there is one."""
    return _seconds(raw.partition(b" ")[2]) or 0.0


def late_from(record: Mapping[str, bytes]) -> Lateness | None:
    """Why the last attempt began late, if it did. What an earlier one left there does not count."""
    ms, cause, started = (*record.get("late", b"").split(), b"", b"", b"")[:3]
    seconds = _seconds(ms)
    if seconds is None or not cause or started != record.get("started"):
        return None
    known = text(cause) in set(LateCause)
    return Lateness(seconds, LateCause(text(cause)) if known else LateCause.UNKNOWN)


def _text(raw: bytes) -> str:
    return raw.decode()


def _is_there(_: bytes) -> bool:
    return True


def _words(raw: bytes) -> list[str]:
    return raw.decode().split()


FIELDS = (
    Field("retry", exported=_text),
    Field("error", text, exported=_text),
    Field("trace", text, claimed=True, exported=_text),
    Field("misfire", exported=_text),
    Field("timeout", exported=float),
    Field("urgent", _is_there, exported=_is_there),
    Field("ttl", exported=float),
    Field("attempt", whole, exported=float),
    Field("tags", words, claimed=True, exported=_words),
    Field("snoozes", whole, claimed=True, exported=float),
    Field("tick", first_moment, claimed=True, exported=_text),
    Field("waited", _waited, claimed=True),
    Field("lapses", whole),
    Field("started", moment),
    Field("ended", moment),
    Field("result", json),
    Field("on_signal", text, exported=_text),
    Field("passed", exported=_text),
    Field("lost", exported=_text),
    Field("signal", exported=_text),
    Field("signalled", exported=_text),
    Field("after", text, exported=_text),
    Field("then", text),
)

_SHOWN = [(field.name, field.shown) for field in FIELDS if field.shown]
CLAIMED = [(field.name, field.shown) for field in FIELDS if field.shown and field.claimed]
"""The fields of a claim's reply for a handler's own `Task`, and their readers."""
_WAITED = [name for name, _ in CLAIMED].index("waited")
EXPORTED = {field.name: field.exported for field in FIELDS if field.exported}
EXPORTED_TEXTS = tuple(name for name, write in EXPORTED.items() if write is _text)


def shown(record: Mapping[str, bytes]) -> dict[str, Any]:
    """The values for `Task` from a record, without absent and unreadable ones."""
    return {
        name: value
        for name, read in _SHOWN
        if (raw := record.get(name)) is not None and (value := read(raw)) is not None
    }


def exported(record: Mapping[str, bytes]) -> dict[str, Any]:
    """The values of an exported task from a record. Raises ValueError for an unreadable one."""
    return {
        name: write(raw)
        for name, write in EXPORTED.items()
        if (raw := record.get(name)) is not None
    }


_NO_RARE = (None,) * 6
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ClaimedTask(NamedTuple):
    """A task that a claim took, with its arguments and policies still encoded."""

    id: str
    token: str
    func: str
    args: bytes
    key: bytes
    due: int
    attempt: int
    lapses: int
    made: int | None
    retry: bytes | None = None
    timeout: float | None = None
    misfire: bytes | None = None
    shown: Mapping[str, Any] = _NOTHING
    """Other values for its handler's `Task`."""
    unreadable: str = ""
    """The unreadable part of its record, if any: then it cannot run."""
    ledger: bytes | None = None
    """Of a task of a ledger: generation and revision of its row, as the record has them."""
    held: float = 0.0
    """How many of the seconds that it waited it was on hold."""
    given_back: bool = False
    """True if a listener had it before, and its attempt was not counted; or another database did,
    when it was due."""
    told: Mapping[str, bytes] = _NOTHING
    """Fields of its record that few tasks have."""

    @property
    def sealed_for(self) -> tuple[str, ...]:
        """The functions for which its arguments are sealed."""
        return funcs_of({"call": self.func.encode(), **self.told})

    @property
    def waited(self) -> float:
        """Seconds for which it waited for slots of its limits: nobody was late then."""
        waited: float = self.shown.get("waited", 0.0)
        return waited

    @property
    def is_tick(self) -> bool:
        """True for a task of a series."""
        return "tick" in self.shown


def claimed_from(row: Sequence[Any], token: str) -> ClaimedTask:
    """Read one row of a claim's reply. Bad data in it makes a task that cannot run, no error."""
    head, key, rare = row
    id, due, attempt, lapses, made, *given_back = head.split()
    call, ledger, args, retry, timeout, misfire, *others = rare or _NO_RARE
    # The first `?` of its own name ends the id.
    func, _, inline = (call if call is not None else key.partition(b"?")[2]).partition(b"?")
    made_at = whole(made)
    shown: dict[str, Any] = {}
    for (name, read), raw in zip(CLAIMED, others, strict=False):
        if raw is not None and (value := read(raw)) is not None:
            shown[name] = value
    seconds = number(timeout) if timeout is not None else None
    return ClaimedTask(
        text(id),
        token,
        text(func),
        args if inline == IN_RECORD and args is not None else inline,
        key,
        whole(due) or 0,
        max(whole(attempt) or 1, 1),
        whole(lapses) or 0,
        made_at if made_at is not None and made_at >= 0 else None,
        retry,
        seconds,
        misfire,
        shown,
        "its timeout" if timeout is not None and not (seconds and seconds > 0) else "",
        ledger,
        _held(others[_WAITED]) if "waited" in shown else 0.0,
        bool(given_back) and not shown.get("snoozes"),
        _told(others[len(CLAIMED)]) if len(others) > len(CLAIMED) else _NOTHING,
    )


def _told(columns: Sequence[bytes]) -> dict[str, bytes]:
    return {text(name): value for name, value in zip(columns[::2], columns[1::2], strict=True)}


def error_of(stored: bytes, id: str, key_ring: KeyRing | None) -> bytes:
    """An error, opened if it is sealed and there is its key; else a note in its place."""
    if not stored.startswith(MARK):
        return stored
    sealed = stored.partition(b"\n")[0]  # a line for the history comes behind it
    try:
        return ring_for(sealed, key_ring).open(sealed, id, Content.ERROR)
    except NotOpened:
        return note_of(sealed).encode()


_CLEAR_LINE = rb"(?m)^(?:\S+ ){5}(?!sealed:)."
"""The beginning of a line of a history whose error is not sealed; see history.lua."""


def _in_clear(record: Mapping[str, bytes]) -> tuple[str, ...]:
    """The parts of a record that would be sealed if a program with keys had written them."""
    args = call_of(record)[1]
    parts = {
        "arguments": args != ERASED and args,
        "result": record.get("result"),
        "error": record.get("error"),
        "signal": record.get("signal"),
    }
    found = [name for name, stored in parts.items() if stored and not stored.startswith(MARK)]
    if re.search(_CLEAR_LINE, record.get("history", b"")):
        found.append("history")
    return tuple(found)


def _open_texts(record: dict[str, bytes], id: str, key_ring: KeyRing | None) -> None:
    """Open the result and the errors of a record, or put notes in their places."""
    if error := record.get("error"):
        record["error"] = error_of(error, id, key_ring)
    if history := record.get("history"):
        record["history"] = replace_in_history(
            history, lambda sealed: error_of(sealed, id, key_ring).rpartition(b"\n")[2]
        )
    if (result := record.get("result", b"")).startswith(MARK):
        try:
            record["result"] = ring_for(result, key_ring).open(result, id, Content.RESULT)
        except NotOpened:
            record["result"] = orjson.dumps(note_of(result))


def task_from(row: Sequence[Any], key_ring: KeyRing | None = None) -> Task:
    """Read one task from the reply of `get` or `list`. What is sealed is opened with its key.

    What cannot be read is left out, or shown as it is: looking must work above all for bad tasks.
    """
    id, key, state, due, columns, *place = row
    record = {text(columns[i]): columns[i + 1] for i in range(0, len(columns), 2)}
    in_clear = _in_clear(record) if key_ring is not None else ()
    _open_texts(record, text(id), key_ring)
    func, stored = call_of(record)
    args, kwargs = args_of(stored, text(id), *funcs_of(record), key_ring=key_ring)
    made = whole(record.get("made", b""))
    standing = state_of(state)
    return Task(
        id=text(id),
        func=func,
        args=args,
        kwargs=kwargs,
        key=key,
        state=standing,
        due=from_ms(due),
        created=from_ms(made * 1000) if made is not None else None,
        queued=place_from(place[0]) if place else None,
        history=history_of(record, standing),
        late=late_from(record) if standing.finished else None,
        listener=_last_listener(record),
        in_clear=in_clear,
        signal=signal_shown(record, text(id), key_ring),
        **shown(record),
    )
