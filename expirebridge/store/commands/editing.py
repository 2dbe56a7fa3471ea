"""The calls of an edit: read a task, and give it other arguments if it is still as it was."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from expirebridge.model.keys import IN_RECORD, MAX_ARGS_IN_KEY
from expirebridge.model.task import Change, Task
from expirebridge.store.commands.call import Command, OfId, new_nonce, rows_of, script
from expirebridge.store.commands.producing import change_of
from expirebridge.store.task_records import call_of, task_from, text

_OTHER_CALL = 9


class EditedTask(NamedTuple):
    """A task as it was read for an edit."""

    task: Task
    call: bytes
    """Function and arguments, or `@`, as the record has them."""
    args: bytes
    """The arguments as JSON, wherever they are."""
    in_ledger: bool


def read_task(id: str) -> Command[EditedTask | None]:
    """Read a task that is to be edited; None if there is none of that id."""
    return script("get", id, read=lambda row: _edited(row) if row else None, route=OfId(id))


def _edited(row: Sequence[Any]) -> EditedTask:
    record = {text(name): value for name, value in rows_of(row[4], 2)}
    return EditedTask(task_from(row), record["call"], call_of(record)[1], "ledger" in record)


def edit(id: str, before: EditedTask | None, args: bytes) -> Command[Change | None]:
    """Give a task these arguments, JSON, if it has the call that was read.

    None if it has another one by now, or was None before: then it must be read again.
    """
    call, inline = (before.call, before.args) if before is not None else (b"", b"")
    func, _, place = call.partition(b"?")
    in_key = len(args) <= MAX_ARGS_IN_KEY
    return script(
        "edit", new_nonce(), id, call, inline if place == IN_RECORD else b"",
        func + b"?" + (args if in_key else IN_RECORD), b"" if in_key else args,
        read=lambda code: None if code == _OTHER_CALL else change_of(code, Change.EDITED),
        route=OfId(id),
    )  # fmt: skip
