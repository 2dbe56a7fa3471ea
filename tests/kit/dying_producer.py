"""A producer that dies half-way through the members of a group."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from expirebridge import Task
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.operations.making import MakingOperations

_make_all = MakingOperations._make_all


class Died(Exception):
    """The producer is gone."""


@contextmanager
def dying_after(count: int) -> Iterator[None]:
    """Producers in the block make so many members, and then raise Died if more were to be made."""

    def make_some(self: MakingOperations, new: Sequence[NewTask]) -> Steps[list[Task]]:
        made = yield from _make_all(self, new[:count])
        if count < len(new):
            raise Died
        return made

    with patch.object(MakingOperations, "_make_all", make_some):
        yield
