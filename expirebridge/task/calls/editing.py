"""The calls of an edit: read a task, and give it other arguments if it is still as it was."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from expirebridge.store.record_values import call_of, funcs_of, ring_for, text
from expirebridge.store.task_records import task_from
from expirebridge.task.calls.call import Command, OfId, new_nonce, rows_of, script
from expirebridge.task.calls.producing import change_of
from expirebridge.task.key_ring import MARK, KeyRing, NotOpened
from expirebridge.task.keys import IN_RECORD, MAX_ARGS_IN_KEY, is_hidden
from expirebridge.task.task import Change, Task

_OTHER_CALL = 9


class EditedTask(NamedTuple):
    """A task as it was read for an edit."""

    task: Task
    call: bytes
    """Function and arguments, or `@`, as the record has them."""
    field: bytes
    """The record's field `args`, empty if there is none."""
    args: bytes
    """The arguments as JSON."""
    funcs: tuple[str, ...]
    """The functions for which they are sealed."""
    hidden: str
    """Why `args` has not the arguments, if they are encoded, or sealed and not opened here."""
    in_ledger: bool


def read_task(id: str, key_ring: KeyRing | None = None) -> Command[EditedTask | None]:
    """Read a task that is to be edited; None if there is none of that id."""

    def read(row: Any) -> EditedTask | None:
        return _edited(row, key_ring) if row else None

    return script("get", id, read=read, route=OfId(id))


def _edited(row: Sequence[Any], key_ring: KeyRing | None) -> EditedTask:
    record = {text(name): value for name, value in rows_of(row[4], 2)}
    _, stored = call_of(record)
    args, funcs = stored, funcs_of(record)
    hidden = ""
    if stored.startswith(MARK):
        try:
            args = ring_for(stored, key_ring).open_arguments(stored, text(row[0]), *funcs)
        except NotOpened as fault:
            hidden = str(fault)
    if not hidden and is_hidden(args):
        hidden = "a codec encoded them"
    task = task_from(row, key_ring)
    field = record.get("args", b"")
    return EditedTask(task, record["call"], field, args, funcs, hidden, "ledger" in record)


def edit(id: str, before: EditedTask | None, args: bytes) -> Command[Change | None]:
    """Give a task these arguments, as they are to be stored, if it has the call that was read.

    What is in the record stays there, since it may be private. None if it has another call by now,
    or was None before: then it must be read again.
    """
    call, field = (before.call, before.field) if before is not None else (b"", b"")
    func, _, place = call.partition(b"?")
    in_key = place != IN_RECORD and len(args) <= MAX_ARGS_IN_KEY and not is_hidden(args)
    return script(
        "edit", new_nonce(), id, call, field,
        func + b"?" + (args if in_key else IN_RECORD), b"" if in_key else args,
        read=lambda code: None if code == _OTHER_CALL else change_of(code, Change.EDITED),
        route=OfId(id),
    )  # fmt: skip
