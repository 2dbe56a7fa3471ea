"""Rows that wait for a signal: what decides them, and what is answered if it comes too late."""

import hashlib
import re
from functools import lru_cache
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Table, Update, and_, bindparam, update

from expirebridge.ledger.rows import (
    Decided,
    DesiredState,
    Row,
    Status,
    fields_about_signals,
    new_task_of,
)
from expirebridge.store.record_values import text
from expirebridge.task.signal_payload import Payload
from expirebridge.task.task import Change


def is_open(task: Table) -> ColumnElement[bool]:
    """True of a row that waits for a signal, and that nothing has decided; it may be NULL."""
    waits = task.c.options.like('%"on_signal"%')
    return and_(task.c.decided.is_(None), waits).label("is_open")


@lru_cache
def deciding(task: Table) -> Update:
    """Let the deadline of the task `b_id` decide, as long as nothing has, and it has this version.

    Its other parameters are `b_ledger`, `b_generation` and `b_revision`.
    """
    return (
        update(task)
        .where(
            task.c.ledger == bindparam("b_ledger"),
            task.c.id == bindparam("b_id"),
            task.c.generation == bindparam("b_generation"),
            task.c.revision == bindparam("b_revision"),
            task.c.status == Status.WAITING.value,
            task.c.wanted == DesiredState.NONE.value,
            task.c.decided.is_(None),
        )
        .values(decided=Decided.DEADLINE.value)
    )


def answer_to(said: Payload, row: Row) -> Change | None:
    """The answer to a signal that decides nothing; None if it decides."""
    awaited = fields_about_signals(row)
    if "signalled" in awaited:
        same = _is_same(said, text(awaited["signalled"]))
        return Change.SIGNALLED if same else Change.SIGNALLED_BEFORE
    if "on_signal" not in awaited:
        return Change.NOT_AWAITED
    if row["status"] != Status.WAITING or row["wanted"] != DesiredState.NONE:
        return Change.FINISHED
    return Change.BEGUN if row["decided"] == Decided.DEADLINE else None


def signalled(said: Payload, row: Row) -> dict[str, Any]:
    """What the row gets, as parameters of the statement. Raises InvalidTask if it is no task."""
    lost, options = new_task_of(row, row["now"]).call, orjson.loads(row["options"])
    func = options.pop("on_signal")
    options |= {
        "lost": lost.decode(),
        "signal": said.stored.decode(),
        "signalled": f"{row['now']} {_digests(said)[0]} {said.by}",
    }
    return {
        "b_func": func,
        "b_options": orjson.dumps(options).decode(),
        "b_written": row["now"],
        "b_generation": row["generation"],
        "b_revision": row["revision"],
    }


def _is_same(said: Payload, before: str) -> bool:
    """True if this very signal has decided: webhooks come again, hours later."""
    known = re.fullmatch(r"\d+ (\S+) (.*)", before)
    return known is not None and known[1] in _digests(said) and known[2] == said.by


def _digests(said: Payload) -> list[str]:
    """As signal.lua has them."""
    plain = hashlib.sha1(said.stored, usedforsecurity=False).hexdigest()
    return said.digests.split(",") if said.digests else [plain]
