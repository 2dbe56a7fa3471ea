"""Tasks that are not here: capabilities may keep some elsewhere until they are due."""

from math import inf
from typing import Protocol, cast

from expirebridge.capabilities import given
from expirebridge.task.calls.call import Steps

_FORGOTTEN = "it was never made, or has ended and was forgotten"


class KeepsElsewhere(Protocol):
    """The module `absence` of a capability."""

    def where_it_may_be(self, id: str) -> Steps[str | None]:
        """Return where the task of this id may be that is not here, as a clause about it, and what
        finds it there; None if the capability keeps nothing elsewhere."""

    def what_is_elsewhere(self, due_within: float) -> Steps[str | None]:
        """Return which tasks are not here, as a sentence; None if all are that are due in so many
        seconds."""


def why_absent(id: str) -> Steps[str]:
    """Return why there may be no task of this id here, as clauses about it."""
    clauses = [_FORGOTTEN]
    for one in _given():
        elsewhere = yield from one.where_it_may_be(id)
        if elsewhere is not None:
            clauses.append(f"or {elsewhere}")
    return "; ".join(clauses)


def what_is_elsewhere(due_within: float = inf) -> Steps[list[str]]:
    """Return which tasks no listing of this database has, nor any change by a tag or a function.

    Nothing is said if all are here that are due in so many seconds.
    """
    sentences = list[str]()
    for one in _given():
        found = yield from one.what_is_elsewhere(due_within)
        if found is not None:
            sentences.append(found)
    return sentences


def _given() -> tuple[KeepsElsewhere, ...]:
    return cast("tuple[KeepsElsewhere, ...]", given("absence"))
