"""The limits of all handlers, as a listener declares them."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple, Self

import orjson

from expirebridge.handlers.definition import Handler
from expirebridge.limits.bound_limits import limits_on


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
        if not any(limits_on(handler) for handler in handlers.values()):
            return cls("", fields)
        return cls(hashlib.sha256(repr(fields).encode()).hexdigest()[:16], fields)


def declaration(handlers: Mapping[str, Handler]) -> list[tuple[str, bytes]]:
    """Return the fields of the hash `limits`, each with its JSON, sorted by name.

    `handlers` has every name that tasks may use, aliases included. `f <function>` holds the
    function's limits in the order in which a task takes its slots, also if there are none;
    `l <limit>` holds the numbers of a limit.
    """
    functions = {
        f"f {name}": orjson.dumps([bound.entry() for bound in limits_on(handler)])
        for name, handler in handlers.items()
    }
    limits = {
        f"l {bound.name}": bound.limit.encode()
        for handler in handlers.values()
        for bound in limits_on(handler)
    }
    return sorted((functions | limits).items())
