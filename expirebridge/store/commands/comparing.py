"""The call that reads what tasks are to call, to compare it with other code."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from expirebridge.model.keys import IN_RECORD
from expirebridge.model.task import State
from expirebridge.store.commands.call import BATCH, Call, rows_of, script
from expirebridge.store.commands.pages import BEGINNING
from expirebridge.store.reading import text, whole
from expirebridge.store.task_records import split_call


class StoredCall(NamedTuple):
    """What a task is to call, as it is stored."""

    id: str
    func: str | None
    """None if its record cannot be read."""
    args: bytes
    due: int | None
    """In ms; None if it has no due time."""


@dataclass(frozen=True, slots=True)
class CallsPage:
    """A part of the tasks of one state."""

    cursor: str
    """Where the next page begins; "0" if this was the last."""
    examined: int
    """How many tasks were looked at; some may be left out, see list_calls.lua."""
    calls: list[StoredCall]


def calls_page(state: State, cursor: str, *, until: int | None = None) -> Call[CallsPage]:
    """Read what the tasks of a state are to call, a page at a time; see list_calls.lua.

    `until` leaves out what has that score or a higher one: pending tasks due at that ms or later.
    """
    # An id that another client put there may be any bytes.
    score, behind, id = cursor.encode("latin-1").partition(b" ")
    limit = "+inf" if until is None else f"({until}"
    return script(
        "list_calls", state, score if behind else "", id, limit, BATCH, read=_page
    )  # fmt: skip


def _page(reply: list[Any]) -> CallsPage:
    score, id, examined, *columns = reply
    cursor = BEGINNING if score is None else (score + b" " + id).decode("latin-1")
    return CallsPage(cursor, examined, [_stored(*row) for row in rows_of(columns, 4)])


def _stored(id: bytes, call: bytes | None, args: bytes | None, due: bytes | None) -> StoredCall:
    if call is None:
        return StoredCall(text(id), None, b"", None)
    func, inline = split_call(call)
    found = args if inline == IN_RECORD and args is not None else inline
    return StoredCall(text(id), func, found, whole(due) if due is not None else None)
