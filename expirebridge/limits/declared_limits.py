"""The limits of all handlers: checked against each other, and as a listener declares them."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import orjson

from expirebridge.errors import HandlersError
from expirebridge.handlers.definition import Function, Handler
from expirebridge.limits.bound_limits import BoundLimit


def refuse_conflicting_limits(handlers: Iterable[Handler]) -> None:
    """Raise HandlersError if handlers share a limit and disagree about it.

    One name must have the same numbers everywhere, and `per` everywhere or nowhere. A function that
    its module holds under two names needs names for its limits: else it would have each twice.
    """
    first: dict[str, tuple[BoundLimit, Handler]] = {}
    owners: dict[Function, Handler] = {}
    for handler in sorted(handlers, key=lambda one: one.name):
        owner = owners.setdefault(handler.function, handler)
        for bound in handler.limits:
            if owner is not handler and bound.limit.name is None:
                raise HandlersError(
                    f"{handler.place}: {handler.name} and {owner.name} are one function, and "
                    f"{bound.limit} would count for each: give it a name, such as name='shared'"
                )
            other, declaring = first.setdefault(bound.name, (bound, handler))
            if _kind(bound) != _kind(other):
                raise HandlersError(
                    f"{handler.place}: the limit {bound.name!r} is {bound.limit} here, and "
                    f"{other.limit} for {declaring.place}: give both the same numbers, and `per` "
                    "to both or to none; or give one another name"
                )


def _kind(bound: BoundLimit) -> tuple[bytes, bool]:
    """Everything in which handlers that share a limit must agree."""
    return bound.limit.encode(), bound.argument is None


class LimitsDeclaration(NamedTuple):
    """What a listener declares of the limits of its handlers."""

    fingerprint: str
    """Identifies the fields; empty if no handler has a limit."""
    fields: list[tuple[str, bytes]]
    """For the hash `limits`."""

    @classmethod
    def of(cls, handlers: Mapping[str, Handler]) -> Self:
        """Describe the limits of these handlers, by every name that tasks may use."""
        fields = declaration(handlers)
        if not any(handler.limits for handler in handlers.values()):
            return cls("", fields)
        return cls(hashlib.sha256(repr(fields).encode()).hexdigest()[:16], fields)


def declaration(handlers: Mapping[str, Handler]) -> list[tuple[str, bytes]]:
    """Return the fields of the hash `limits`, each with its JSON, sorted by name.

    `handlers` has every name that tasks may use, aliases included. `f <function>` holds the
    function's limits in the order in which a task takes its slots, also if there are none;
    `l <limit>` holds the numbers of a limit.
    """
    functions = {
        f"f {name}": orjson.dumps([bound.entry() for bound in handler.limits])
        for name, handler in handlers.items()
    }
    limits = {
        f"l {bound.name}": bound.limit.encode()
        for handler in handlers.values()
        for bound in handler.limits
    }
    return sorted((functions | limits).items())
