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
from expirebridge.limits.values import Budget, Limit, Pace, lane_value, limits_of, turn

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
class CostArgument:
    """The argument that says what a task takes of a budget."""

    parameter: str
    place: int
    """As of a LaneArgument."""
    default: int | None
    """The cost of a task that does not give the argument; None: the whole burst."""


_Argument = LaneArgument | CostArgument


@dataclass(frozen=True, slots=True)
class BoundLimit:
    """A limit, a rate or a budget of one handler."""

    name: str
    """Its own name; without one, the handler's name, and after a `:` that of the parameter; a
    rate's ends in `#rate`, that of a budget of tokens in `#tokens`."""
    limit: Limit | Pace
    argument: LaneArgument | None
    """None: one lane for all tasks."""
    tenant: LaneArgument | None = None
    """The argument whose values take turns; None: the first due is the first."""
    cost: CostArgument | None = None
    """What a task takes of a budget."""

    @property
    def of(self) -> str | None:
        """What a budget is of; None for anything else."""
        return self.limit.of if isinstance(self.limit, Budget) else None

    def is_rate(self, per: str | None, name: str | None) -> bool:
        """True if it is a rate or a budget of this name; if none is given, with this `per`."""
        if isinstance(self.limit, Limit):
            return False
        return self.name == name if name is not None else self.limit.per == per

    def entry(self) -> list[str | int | None]:
        """What the database holds of it for each name of the handler."""
        parts: list[_Argument | None] = [self.argument, self.tenant, self.cost]
        while parts and parts[-1] is None:
            parts.pop()
        return [self.name, *(word for part in parts for word in _entry(part))]


def _entry(
    argument: _Argument | None,
) -> tuple[int | None, str | None, str | int | None]:
    if argument is None:
        return None, None, None
    return argument.place, argument.parameter, argument.default


def binding_of(
    limit: Limit | Sequence[Limit] | None, rate: Pace | Sequence[Pace] | None
) -> Callable[[Callable[..., Any], str], tuple[BoundLimit, ...]]:
    """Return what binds the limits that `@handler` was given. Raises InvalidTask as `limits_of`."""
    return partial(bind_limits, limits_of(limit, rate))


def bind_limits(
    limits: Sequence[Limit | Pace], function: Callable[..., Any], name: str
) -> tuple[BoundLimit, ...]:
    """Bind limits to the function of the handler with this name, in the order of `turn`.

    Raises InvalidTask if `per` is no parameter whose value could choose a lane, `of` none that
    could be a cost, and if two limits have one name.
    """
    bound = [_bind(limit, function, name) for limit in limits]
    bound.sort(key=lambda one: turn(one.limit, one.name))
    names = [one.name for one in bound]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise InvalidTask(f"limit=, rate=: two have the name {twice!r}: give one of them another")
    return tuple(bound)


def limits_on(handler: Handler) -> tuple[BoundLimit, ...]:
    """The limits and rates of a handler, in the order in which a task takes its slots."""
    limits: tuple[BoundLimit, ...] = handler.limits
    return limits


def _bind(limit: Limit | Pace, function: Callable[..., Any], name: str) -> BoundLimit:
    argument = None if limit.per is None else _argument(limit.per, function)
    fair = limit.fair if isinstance(limit, Limit) else None
    tenant = None if fair is None else _argument(fair, function, name="fair")
    own = name if limit.per is None else f"{name}:{limit.per}"
    if not isinstance(limit, Limit):
        own = f"{own}#{limit.kind}"
    cost = _cost(limit.of, function) if isinstance(limit, Budget) else None
    return BoundLimit(limit.name or own, limit, argument, tenant, cost)


def _argument(per: str, function: Callable[..., Any], name: str = "per") -> LaneArgument:
    parameter, place = _parameter(per, function, name)
    if parameter is None:
        return LaneArgument(per, place, None)
    return LaneArgument(per, place, _default_value(parameter, name))


def _cost(of: str, function: Callable[..., Any]) -> CostArgument:
    parameter, place = _parameter(of, function, "of")
    default = Parameter.empty if parameter is None else parameter.default
    if default is Parameter.empty:
        return CostArgument(of, place, None)
    if type(default) is not int or default < 0:
        raise InvalidTask(
            f"of={of!r}: its default {default!r} is no cost: give it a whole number from 0, or none"
        )
    return CostArgument(of, place, default)


def _parameter(per: str, function: Callable[..., Any], name: str) -> tuple[Parameter | None, int]:
    """The parameter, None if it is one of `**kwargs`, and its place."""
    try:
        parameters = call_signature(function).signature.parameters
    except Exception as error:  # `__signature__` and `__wrapped__` are the user's own
        raise InvalidTask(f"{name}={per!r}: the function's signature cannot be read") from error
    if fault := unclear(function):
        raise InvalidTask(f"{name}={per!r}: {fault}")
    parameter = parameters.get(per)
    if parameter is None:
        if any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values()):
            return None, KEYWORD_ONLY
        shown = ", ".join(parameters) or "none"
        raise InvalidTask(f"{name}={per!r}: the function has no such parameter; it has: {shown}")
    if parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
        stars = "*" if parameter.kind is Parameter.VAR_POSITIONAL else "**"
        raise InvalidTask(
            f"{name}={per!r}: {stars}{per} holds many arguments: name a parameter of its own"
        )
    positional = [one for one in parameters.values() if one.kind in _POSITIONAL]
    return parameter, positional.index(parameter) if parameter in positional else KEYWORD_ONLY


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
