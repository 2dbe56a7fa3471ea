"""What handlers say of limits, checked against each other."""

from collections.abc import Iterable
from types import ModuleType

from expirebridge.errors import HandlersError
from expirebridge.handlers.definition import Function, Handler
from expirebridge.limits.bound_limits import BoundLimit, limits_on


def declared(handlers: Iterable[Handler]) -> tuple[()]:
    """Raise HandlersError if handlers share a limit and disagree about it.

    Limits are declared by a listener, all at once: there is nothing of its own for each.

    One name must have the same numbers everywhere, and `per` everywhere or nowhere. A function that
    its module holds under two names needs names for its limits: else it would have each twice.
    """
    first: dict[str, tuple[BoundLimit, Handler]] = {}
    owners: dict[Function, Handler] = {}
    for handler in sorted(handlers, key=lambda one: one.name):
        owner = owners.setdefault(handler.function, handler)
        for bound in limits_on(handler):
            if owner is not handler and bound.limit.name is None:
                raise HandlersError(
                    f"{handler.location}: {handler.name} and {owner.name} are one function, and "
                    f"{bound.limit} would count for each: give it a name, such as name='shared'"
                )
            other, declaring = first.setdefault(bound.name, (bound, handler))
            if _kind(bound) != _kind(other):
                raise HandlersError(
                    f"{handler.location}: the limit {bound.name!r} is {bound.limit} here, and "
                    f"{other.limit} for {declaring.location}: give both the same numbers, and "
                    "`per` to both or to none; or give one another name"
                )
    return ()


def refuse_lost(_modules: Iterable[ModuleType], _handlers: Iterable[Handler]) -> None:
    """Do nothing: who marks handlers with `@handler` says it."""


def _kind(bound: BoundLimit) -> tuple[bytes, bool]:
    """Everything in which handlers that share a limit must agree."""
    return bound.limit.encode(), bound.argument is None
