"""Reads tasks out of the replies of scripts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from expirebridge.model.keys import IN_RECORD, decode_args
from expirebridge.model.task import State, Task, from_ms
from expirebridge.store import fields
from expirebridge.store.history import history_of
from expirebridge.store.reading import number, text, whole

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
    """What else its handler's `Task` shows; see fields.py."""
    unreadable: str = ""
    """What in its record cannot be read, if anything: it cannot run then."""
    ledger: bytes | None = None
    """Of a task of a ledger: generation and revision of its row, as the record has them."""


def claimed_from(row: Sequence[Any], token: str) -> ClaimedTask:
    """Read one row of a claim's reply. Bad data in it makes a task that cannot run, no error."""
    head, key, rare = row
    id, due, attempt, lapses, made = head.split()
    call, ledger, args, retry, timeout, misfire, *others = rare or _NO_RARE
    # The first `?` of its own name ends the id.
    func, _, inline = (call if call is not None else key.partition(b"?")[2]).partition(b"?")
    made_at = whole(made)
    shown: dict[str, Any] = {}
    for (name, read), raw in zip(fields.CLAIMED, others, strict=False):
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
    )


def args_of(encoded: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Read arguments to be looked at; what cannot be read is shown as it is."""
    try:
        return decode_args(encoded)
    except ValueError:
        return [text(encoded)], {}


def task_from(row: Sequence[Any]) -> Task:
    """Read one task from the reply of `get` or `list`.

    What cannot be read is left out, or shown as it is: looking must work above all for bad tasks.
    """
    id, key, state, due, columns = row
    record = {text(columns[i]): columns[i + 1] for i in range(0, len(columns), 2)}
    func, inline = split_call(record["call"])
    args, kwargs = args_of(record.get("args", inline))
    made = whole(record.get("made", b""))
    standing = State(text(state)) if text(state) in set(State) else State.FAILED
    return Task(
        id=text(id),
        func=func,
        args=args,
        kwargs=kwargs,
        key=key,
        state=standing,
        due=from_ms(due),
        created=from_ms(made * 1000) if made is not None else None,
        history=history_of(record, standing),
        **fields.shown(record),
    )


def call_of(record: Mapping[str, bytes]) -> tuple[str, bytes]:
    """The function and the arguments of a record, wherever these are."""
    func, inline = split_call(record.get("call", b""))
    return func, record.get("args", b"") if inline == IN_RECORD else inline


def split_call(call: bytes) -> tuple[str, bytes]:
    """Take a record's call apart: the function's name, and the arguments or `@`."""
    func, _, args = call.partition(b"?")
    return text(func), args
