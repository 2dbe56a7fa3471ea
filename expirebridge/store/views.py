"""Reads tasks out of the replies of scripts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import orjson

from expirebridge.store.history import history_of
from expirebridge.task import State, Task, from_ms
from expirebridge.wire import IN_RECORD, decode_args

N = TypeVar("N", int, float)


class ClaimedTask(NamedTuple):
    """A task that a claim took, with its arguments and policies still encoded."""

    id: str
    token: str
    func: str
    args: bytes
    key: bytes
    due: int
    attempt: int
    made: int | None
    tags: tuple[str, ...]
    retry: bytes | None
    timeout: float | None
    lapses: int
    misfire: bytes | None = None
    trace: str | None = None
    unreadable: str = ""
    """What in its record cannot be read, if anything: it cannot run then."""


def claimed_from(row: Sequence[Any], token: str) -> ClaimedTask:
    """Read one row of a claim's reply. Bad data in it makes a task that cannot run, no error."""
    head, key, rare = row
    id, due, attempt, lapses, made = head.split()
    call, args, tags, retry, timeout, misfire, trace = rare or (None,) * 7
    # The first `?` of its own name ends the id.
    func, inline = split_call(call if call is not None else key.partition(b"?")[2])
    seconds = _number(timeout, float)
    return ClaimedTask(
        id=text(id),
        token=token,
        func=func,
        args=args if inline == IN_RECORD and args is not None else inline,
        key=key,
        due=_number(due, int) or 0,
        attempt=max(_number(attempt, int) or 1, 1),
        made=_made(made),
        tags=_tags(tags),
        retry=retry,
        timeout=seconds,
        lapses=_number(lapses, int) or 0,
        misfire=misfire,
        trace=text(trace) if trace is not None else None,
        unreadable="its timeout" if timeout is not None and not (seconds and seconds > 0) else "",
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
    fields = {text(columns[i]): columns[i + 1] for i in range(0, len(columns), 2)}
    func, inline = split_call(fields["call"])
    encoded = fields.get("args", inline)
    args, kwargs = args_of(encoded)
    made = _number(fields.get("made"), int)
    error = fields.get("error")
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
        attempt=_number(fields.get("attempt"), int) or 0,
        tags=_tags(fields.get("tags")),
        started=_moment(fields.get("started")),
        ended=_moment(fields.get("ended")),
        result=_json(fields.get("result")),
        error=text(error) if error is not None else None,
        lapses=_number(fields.get("lapses"), int) or 0,
        history=history_of(fields, standing),
        trace=text(fields["trace"]) if "trace" in fields else None,
    )


def text(raw: bytes) -> str:
    """Bytes as text, whatever they are."""
    return raw.decode(errors="backslashreplace")


def split_call(call: bytes) -> tuple[str, bytes]:
    """Take a record's call apart: the function's name, and the arguments or `@`."""
    func, _, args = call.partition(b"?")
    return text(func), args


def _tags(stored: bytes | None) -> tuple[str, ...]:
    return tuple(text(stored).split()) if stored else ()


def _made(stored: bytes) -> int | None:
    made = _number(stored, int)
    return made if made is not None and made >= 0 else None


def _moment(stored: bytes | None) -> datetime | None:
    ms = _number(stored, int)
    return from_ms(ms) if ms is not None else None


def _number(stored: bytes | None, kind: type[N]) -> N | None:
    if stored is None:
        return None
    try:
        return kind(stored)
    except ValueError:
        return None


def _json(stored: bytes | None) -> Any:
    if stored is None:
        return None
    try:
        return orjson.loads(stored)
    except ValueError:
        return text(stored)
