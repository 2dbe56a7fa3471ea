"""Turns rows into what is carried to the server."""

from typing import Any

from sqlalchemy import Row

from expirebridge.ledger.rows import new_task_of
from expirebridge.model.row_state import FINAL_STATES, DesiredState, RowVersion, Status, SyncState
from expirebridge.store.commands.ledger import RelayedRow

NEVER = 2**53 - 1
"""When a paused task is due."""


def carried(row: Row[Any], now: int) -> RelayedRow:
    """What is carried of a row; `now` is the time of its database, in ms.

    Raises InvalidTask for values that another program wrote and that no task can have.
    """
    is_paused = row.due == NEVER
    values = dict(row._mapping) | ({"due": 0} if is_paused else {})
    task = new_task_of(values, now)
    fields = dict(task.fields)
    if row.retry_times:
        fields["attempt"] = row.retry_times
    when, ms = task.when.encode()
    return RelayedRow(
        id=task.id,
        version=RowVersion(row.generation, row.revision),
        what=_what(row),
        hint=_hint(row),
        call=task.call,
        when="never" if is_paused else str(when),
        ms=int(ms),
        fields=fields,
    )


def _what(row: Row[Any]) -> str:
    if row.status != Status.WAITING:
        return FINAL_STATES[Status(row.status)]
    return "cancel" if row.wanted == DesiredState.CANCELLED else "waits"


def _hint(row: Row[Any]) -> str:
    words = {
        "moved": row.due is None,
        "rebuilt": row.todo == SyncState.REBUILD,
    }
    return " ".join(word for word, holds in words.items() if holds)
