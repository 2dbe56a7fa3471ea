"""Reads tasks out of the replies of scripts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from expirebridge.task import State, Task, from_ms
from expirebridge.wire import IN_RECORD, decode_args


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedTask:
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


def claimed_from(row: Sequence[Any], token: str) -> ClaimedTask:
    """Read one row of a claim's reply."""
    id, key, call, due, attempt, made, args, tags, retry, timeout, lapses = row
    func, inline = split_call(call)
    return ClaimedTask(
        id=id.decode(),
        token=token,
        func=func,
        args=args if inline == IN_RECORD and args is not None else inline,
        key=key,
        due=due,
        attempt=attempt,
        made=int(made) if made is not None else None,
        tags=_tags(tags),
        retry=retry,
        timeout=float(timeout) if timeout is not None else None,
        lapses=lapses,
    )


def task_from(row: Sequence[Any]) -> Task:
    """Read one task from the reply of `get` or `list`.

    What cannot be read is left out, or shown as it is: looking must work above all for bad tasks.
    """
    raw_id, key, raw_state, due, columns = row
    fields = {columns[i].decode(): columns[i + 1] for i in range(0, len(columns), 2)}
    func, inline = split_call(fields["call"])
    encoded = fields.get("args", inline)
    try:
        args, kwargs = decode_args(encoded)
    except ValueError:
        args, kwargs = [encoded.decode(errors="replace")], {}
    result = fields.get("result")
    error = fields.get("error")
    return Task(
        id=raw_id.decode(),
        func=func,
        args=args,
        kwargs=kwargs,
        key=key,
        state=State(raw_state.decode()),
        due=from_ms(due),
        created=from_ms(int(fields["made"]) * 1000) if "made" in fields else None,
        attempt=int(fields.get("attempt", 0)),
        tags=_tags(fields.get("tags")),
        started=_moment(fields, "started"),
        ended=_moment(fields, "ended"),
        result=orjson.loads(result) if result is not None else None,
        error=error.decode(errors="replace") if error is not None else None,
        lapses=int(fields.get("lapses", 0)),
    )


def split_call(call: bytes) -> tuple[str, bytes]:
    """Take a record's call apart: the function's name, and the arguments or `@`."""
    func, _, args = call.partition(b"?")
    return func.decode(errors="replace"), args


def _tags(stored: bytes | None) -> tuple[str, ...]:
    return tuple(stored.decode().split()) if stored else ()


def _moment(fields: dict[str, bytes], name: str) -> datetime | None:
    return from_ms(int(fields[name])) if name in fields else None
