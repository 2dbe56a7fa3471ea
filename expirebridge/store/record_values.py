"""Reads single values of a task's record, its call and its arguments."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from expirebridge.task.codec import encoded_in
from expirebridge.task.key_ring import MARK, KeyRing, NotOpened, key_of, note_of
from expirebridge.task.keys import IN_RECORD, decode_args
from expirebridge.task.task import State, from_ms

# Readers of single values of a record. An unreadable one gives None: bad data stops no reader.


def text(raw: bytes) -> str:
    """Decode any bytes as text."""
    return raw.decode(errors="backslashreplace")


def state_of(raw: bytes) -> State:
    """The state that a record names. What is none will have failed, once a listener looks at it."""
    return State(text(raw)) if text(raw) in set(State) else State.FAILED


def words(raw: bytes) -> tuple[str, ...]:
    """The words of a text with spaces."""
    return tuple(raw.decode(errors="backslashreplace").split())


def number(raw: bytes) -> float | None:
    """Any number."""
    try:
        return float(raw)
    except ValueError:
        return None


def whole(raw: bytes) -> int | None:
    """A whole number."""
    try:
        return int(raw)
    except ValueError:
        return None


def moment(raw: bytes) -> datetime | None:
    """Milliseconds since 1970 as a time."""
    ms = whole(raw)
    return from_ms(ms) if ms is not None else None


def first_moment(raw: bytes) -> datetime | None:
    """The first of some times, in milliseconds since 1970."""
    return moment(raw.partition(b" ")[0])


def json(raw: bytes) -> Any:
    """JSON, or else text."""
    try:
        return orjson.loads(raw)
    except ValueError:
        return text(raw)


# The call of a task: its function and its arguments.


def call_of(record: Mapping[str, bytes]) -> tuple[str, bytes]:
    """The function and the arguments of a record, wherever these are."""
    func, inline = split_call(record.get("call", b""))
    return func, record.get("args", inline) if inline == IN_RECORD else inline


def split_call(call: bytes) -> tuple[str, bytes]:
    """Take a record's call apart: the function's name, and the arguments or `@`."""
    func, _, args = call.partition(b"?")
    return text(func), args


def funcs_of(record: Mapping[str, bytes]) -> tuple[str, ...]:
    """The functions for which the arguments of a record are sealed.

    Of a task that a signal decides, or did, these are that of its deadline, and that of its signal.
    """
    func = call_of(record)[0]
    if (lost := record.get("lost")) is not None:
        return split_call(lost)[0], func
    other = record.get("on_signal", record.get("passed"))
    return (func,) if other is None else (func, text(other))


def args_of(
    stored: bytes, id: str = "", *funcs: str, key_ring: KeyRing | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """Read arguments to be looked at; what cannot be read is shown as it is.

    What a codec made is not decoded, and what is sealed is opened only with its key: one argument
    says so instead.
    """
    if stored.startswith(MARK):
        try:
            stored = ring_for(stored, key_ring).open_arguments(stored, id, *funcs)
        except NotOpened:
            return [note_of(stored)], {}
    try:
        return decode_args(stored)
    except ValueError:
        return [_encoded(stored) or text(stored)], {}


def _encoded(stored: bytes) -> str:
    """What is shown in place of what a codec made."""
    try:
        encoded = encoded_in(stored)
    except ValueError:
        return ""
    return "" if encoded is None else f"(encoded, {len(encoded):,} bytes)"


def ring_for(stored: bytes, key_ring: KeyRing | None) -> KeyRing:
    """The keys that are to open what was sealed. Raises NotOpened if there are none."""
    if key_ring is None:
        name = key_of(stored)
        fault = "damaged" if name is None else f"sealed with key {name}, and there are no keys here"
        raise NotOpened(f"it is {fault}")
    return key_ring
