"""Which partitions a call concerns, if the database has several."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class OfId(NamedTuple):
    """The partition of this id."""

    id: str


class ByItem(NamedTuple):
    """The partition of each item: the call is divided, and its results are put in order again."""

    items: Sequence[Any]
    id_of: Callable[[Any], str]
    call_of: Callable[[list[Any]], Any]
    """The call for some of the items, whose result is a list with one place for each."""
    hasty: bool = False
    """Whether not to wait until a node that does not answer has a successor."""
    bulk: bool = False
    """Whether an item is one of many, so that the error says which were not done."""


class Everywhere(NamedTuple):
    """Every partition, one after the other."""

    join: Callable[[list[Any]], Any]
    """Makes one result of those of all partitions, which are in order."""


class Anywhere(NamedTuple):
    """Any partition that answers, since all know the same: the first, if it does."""


class At(NamedTuple):
    """The partition of this number."""

    number: int


class IfThere(NamedTuple):
    """The partition of this number, which is left out if it cannot be asked."""

    number: int
    hasty: bool
    """Whether not to wait until a node that does not answer has a successor."""


class Creation(NamedTuple):
    """The partitions themselves, which are created."""

    partitions: int


Route = OfId | ByItem | Everywhere | Anywhere | At | IfThere | Creation


class Ready(NamedTuple):
    """An answer that was read already, and joined, where several partitions were asked."""

    result: Any


def by_id(ids: Sequence[str], call_of: Callable[[list[str]], Any]) -> ByItem:
    """The route of a call for ids."""
    return ByItem(ids, _same, call_of)


def _same(id: str) -> str:
    return id
