"""The operation that gives a task other arguments."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expirebridge.errors import InvalidTask
from expirebridge.task import calls, keys
from expirebridge.task.calls.call import Steps
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.task import UNCLAIMED, Change, State, Task

if TYPE_CHECKING:
    from expirebridge.task.calls.editing import EditedTask

EDITABLE = frozenset({*UNCLAIMED, State.FAILED})
"""The states of tasks whose arguments can be edited."""


class EditingOperations(OperationGroup):
    """Edit the arguments of a task."""

    def edit(
        self,
        id: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        expected: Task | None = None,
    ) -> Steps[Change]:
        """Give a task that no listener runs, or that has failed, other arguments.

        `args` and `kwargs` are those of `make_task`; of the two, what is None stays as it is. The
        due time stays, too, and a failed task stays failed: `run_now` runs it with the new
        arguments. Its trigger key has another name afterwards, unless the arguments are in the
        record: those that are private, or were long at some time, stay there, however short the
        new ones are. If they name another lane of a limit, the task queues there.

        Returns edited; edited, not checked (no live listener has declared the signature, so nobody
        knows whether the arguments fit); running, finished (it succeeded, or was cancelled) or not
        found.

        `expected` is the task as you have read it: if its function or its arguments are others by
        now, nothing is done, and the answer is unchanged.

        Raises InvalidTask for an illegal id; for an `expected` that is no task; for arguments that
        JSON cannot hold, that have more than 64 KiB while the bridge has no codec, or that fit none
        of the signatures that live listeners declare for its function, or for the one of a signal
        that it waits for; for a task of a ledger, whose arguments are
        in its row; and if the present ones are encoded by a codec, or sealed with a key that the
        bridge has not. Raises what the codec raises.
        """
        keys.check_id(id)
        if expected is not None and not isinstance(expected, Task):
            raise InvalidTask(
                f"expected is of type {type(expected).__name__}: give the Task as you have read it"
            )
        if args is None and kwargs is None:
            raise InvalidTask("give args, kwargs, or both: what you do not give stays as it is")
        while True:
            found = yield from calls.editing.read_task(id, self._key_ring)
            if found is None or found.task.state not in EDITABLE:
                change = yield from calls.editing.edit(id, None, b"")
                checked = False
            elif expected is not None and not _is_as(expected, found.task):
                return Change.UNCHANGED
            else:
                new, checked = yield from check_edit(self, found, args, kwargs)
                stored = yield from self._writer.stored(found.funcs, id, new)
                change = yield from calls.editing.edit(id, found, stored)
            if change is not None:
                unchecked = change is Change.EDITED and not checked
                return Change.EDITED_UNCHECKED if unchecked else change

    def _is_checked(self, func: str, encoded: bytes) -> Steps[bool]:  # noqa: ARG002 - overridden
        """Hold arguments against the signatures of the listeners; False if there are none.

        Raises InvalidTask if they fit none. Overridden by the capability that knows what
        listeners declare.
        """
        yield from ()
        return False


def _is_as(expected: Task, found: Task) -> bool:
    """True if a task has the expected function and arguments."""
    return expected.func == found.func and _encoded(expected) == _encoded(found)


def _encoded(task: Task) -> bytes:
    return keys.encode_args(task.args, task.kwargs)


def check_edit(
    operations: EditingOperations,
    found: "EditedTask",
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
) -> Steps[tuple[bytes, bool]]:
    """Return the new arguments as JSON, with the present ones in place of None.

    Second, True if they were held against a signature of each function that may run: False if no
    listener has declared one of these. Raises InvalidTask as `edit`.
    """
    check_editable(found)
    args, kwargs = _merged(found, args, kwargs)
    encoded = keys.encode_args(args, kwargs, limited=not operations._writer.takes_large)
    checked = yield from operations._is_checked(found.task.func, encoded)
    if found.task.on_signal is not None:
        checked = (yield from operations._is_checked(found.task.on_signal, encoded)) and checked
    return encoded, checked


def check_editable(found: "EditedTask") -> None:
    """Raise InvalidTask if a task cannot have other arguments at all, whatever its state."""
    id, func = found.task.id, found.task.func
    keys.check_func(func)
    if found.hidden:
        raise InvalidTask(
            f"task {id!r}: its arguments cannot be edited here: {found.hidden}; make it again with "
            "if_exists='replace'"
        )
    if found.in_ledger:
        raise InvalidTask(
            f"task {id!r} is of a ledger, where its arguments are: replace it in a transaction, "
            f"ledger.make_task(session, {func!r}, [...], id={id!r}, if_exists='replace', at=...)"
        )


def _merged(
    found: "EditedTask", args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if args is None or kwargs is None:
        try:
            old_args, old_kwargs = keys.decode_args(found.args)
        except ValueError as error:
            raise InvalidTask(
                f"task {found.task.id!r}: its arguments cannot be read ({error}): give args and "
                "kwargs"
            ) from None
        args = old_args if args is None else args
        kwargs = old_kwargs if kwargs is None else kwargs
    return args, kwargs
