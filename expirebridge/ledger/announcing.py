"""Tells hooks of the tasks that a ledger makes, as a Bridge does of its own."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from expirebridge.hooks import Hooks, Made, Making, NotMade
from expirebridge.ledger.rows import LedgerTask
from expirebridge.model.task import Outcome, State, Task, from_ms
from expirebridge.store.commands import NewTask, When
from expirebridge.store.task_records import split_call


def announce(hooks: Hooks, new: Sequence[NewTask]) -> None:
    """Tell that tasks are about to be made; a hook may give each a place in a trace."""
    for task in new if hooks else ():
        making = Making(id=task.id, func=split_call(task.call)[0])
        hooks.emit(making)
        if making.trace is not None:
            task.fields["trace"] = making.trace


@contextmanager
def not_made(hooks: Hooks, new: Sequence[NewTask]) -> Iterator[None]:
    """Tell that none of these was made if the block raises: the transaction is lost, or ends so."""
    try:
        yield
    except Exception as error:
        for task in new if hooks else ():
            hooks.emit(NotMade(id=task.id, error=error))
        raise


def emit_made(hooks: Hooks, new: NewTask, made: LedgerTask) -> None:
    """Tell that the statement of a task was sent. Its due time is by this machine's clock."""
    if not hooks:
        return
    task = Task(
        id=made.id,
        func=made.func,
        args=made.args,
        kwargs=made.kwargs,
        key=b"",
        state=State.PENDING,
        due=_due(new.when),
        tags=tuple(str(new.fields.get("tags", "")).split()),
        outcome=made.outcome or Outcome.CREATED,
    )
    hooks.emit(Made(task=task))


def _due(when: When) -> datetime:
    return from_ms(when.ms + (round(time.time() * 1000) if when.relative else 0))
