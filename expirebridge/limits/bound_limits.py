"""Limits bound to a handler: the name of each, and the argument that chooses its lane."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any

from expirebridge.errors import InvalidTask
from expirebridge.handlers.call_signature import call_signature, unclear
from expirebridge.handlers.definition import Handler
from expirebridge.limits.values import Limit, Rate, lane_value, limits_of

KEYWORD_ONLY = -1
"""The place of an argument that is given by its name only."""


@dataclass(frozen=True, slots=True)
class LaneArgument:
    """The argument whose value chooses a lane."""

    parameter: str
    place: int
    """Its index among positional arguments, from 0, or KEYWORD_ONLY."""
    default: str | None
    """The lane's value for a task that does not give the argument; None: there is no default."""


@dataclass(frozen=True, slots=True)
class BoundLimit:
    """A limit or a rate of one handler."""

    name: str
    """Its own name; without one, the handler's name, and after a `:` that of the parameter; a
    rate's ends in `#rate`."""
    limit: Limit | Rate
    argument: LaneArgument | None
    """None: one lane for all tasks."""
    tenant: LaneArgument | None = None
    """The argument whose values take turns; None: the first due is the first."""

    def is_rate(self, per: str | None) -> bool:
        """True if it is a rate with this `per`."""
        return isinstance(self.limit, Rate) and self.limit.per == per

    def entry(self) -> list[str | int | None]:
        """What the database holds of it for each name of the handler."""
        if self.tenant is not None:
            return [self.name, *_entry(self.argument), *_entry(self.tenant)]
        if self.argument is not None:
            return [self.name, *_entry(self.argument)]
        return [self.name]


def _entry(argument: LaneArgument | None) -> tuple[int | None, str | None, str | None]:
    if argument is None:
        return None, None, None
    return argument.place, argument.parameter, argument.default


def binding_of(
    limit: Limit | Sequence[Limit] | None, rate: Rate | None
) -> Callable[[Callable[..., Any], str], tuple[BoundLimit, ...]]:
    """Return what binds the limits that `@handler` was given. Raises InvalidTask as `limits_of`."""
    return partial(bind_limits, limits_of(limit, rate))


def bind_limits(
    limits: Sequence[Limit | Rate], function: Callable[..., Any], name: str
) -> tuple[BoundLimit, ...]:
    """Bind limits to the function of the handler with this name.

    Raises InvalidTask if `per` is no parameter whose value could choose a lane, and if two limits
    have one name.
    """
    bound = tuple(_bind(limit, function, name) for limit in limits)
    if len(bound) == 2 and bound[0].name == bound[1].name:
        raise InvalidTask(
            f"limit=, rate=: both have the name {bound[0].name!r}: give one of them another"
        )
    return bound


def limits_on(handler: Handler) -> tuple[BoundLimit, ...]:
    """The limits and the rate of a handler, in the order in which a task takes its slots."""
    limits: tuple[BoundLimit, ...] = handler.limits
    return limits


def _bind(limit: Limit | Rate, function: Callable[..., Any], name: str) -> BoundLimit:
    argument = None if limit.per is None else _argument(limit.per, function)
    fair = limit.fair if isinstance(limit, Limit) else None
    tenant = None if fair is None else _argument(fair, function, name="fair")
    own = name if limit.per is None else f"{name}:{limit.per}"
    if isinstance(limit, Rate):
        own += "#rate"
    return BoundLimit(limit.name or own, limit, argument, tenant)


def _argument(per: str, function: Callable[..., Any], name: str = "per") -> LaneArgument:
    try:
        parameters = call_signature(function).signature.parameters
    except Exception as error:  # `__signature__` and `__wrapped__` are the user's own
        raise InvalidTask(f"{name}={per!r}: the function's signature cannot be read") from error
    if fault := unclear(function):
        raise InvalidTask(f"{name}={per!r}: {fault}")
    parameter = parameters.get(per)
    if parameter is None:
        if any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values()):
            return LaneArgument(per, KEYWORD_ONLY, None)
        shown = ", ".join(parameters) or "none"
        raise InvalidTask(f"{name}={per!r}: the function has no such parameter; it has: {shown}")
    if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        stars = "*" if parameter.kind is Parameter.VAR_POSITIONAL else "**"
        raise InvalidTask(
            f"{name}={per!r}: {stars}{per} holds many arguments: name a parameter of its own"
        )
    positional = [one for one in parameters.values() if one.kind in _POSITIONAL]
    place = positional.index(parameter) if parameter in positional else KEYWORD_ONLY
    return LaneArgument(per, place, _default_value(parameter, name))


_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


def _default_value(parameter: Parameter, name: str) -> str | None:
    default = parameter.default
    if default is Parameter.empty:
        return None
    # An Enum may be a text, too, but is no JSON.
    if default is None or type(default) in {str, int, bool} or _is_finite(default):
        try:
            return lane_value(default)
        except UnicodeEncodeError:
            pass
    raise InvalidTask(
        f"{name}={parameter.name!r}: its default {default!r} is not text, a number, True, False or "
        "None, as JSON has them: give it such a default, or none"
    )


def _is_finite(default: object) -> bool:
    return type(default) is float and math.isfinite(default)
