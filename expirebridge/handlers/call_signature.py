"""The signature of a handler as a task calls it, decorators included.

`inspect.signature` shows what `functools.wraps` wraps. The call is that of the wrapper, which may
add a session, or take one argument away.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from enum import StrEnum
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any, NamedTuple

Function = Callable[..., Any]

_FIXED = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


class Basis(StrEnum):
    """How a signature was found out."""

    OWN = "own"  # the function itself says it
    WRAPPED = "wrapped"  # a wrapper with *args or **kwargs, by what it wraps and passes on
    UNKNOWN = "unknown"  # such a wrapper, which passes on nobody knows what


class CallSignature(NamedTuple):
    """The parameters that a call of a function has."""

    signature: Signature
    """That of the wrapper itself, `(*args, **kwargs)`, if the basis is UNKNOWN."""
    basis: Basis


@functools.lru_cache(maxsize=1024)
def call_signature(function: Function) -> CallSignature:
    """Find out the signature that counts: that of the function that is called.

    A wrapper with parameters of its own, or a `__signature__` of its own, takes those. One with
    `*args` or `**kwargs` takes what it wraps, less what its source is seen to add.

    Raises TypeError or ValueError if Python cannot tell the signature, and what the user's own
    `__signature__` raises.
    """
    wrapped = getattr(function, "__wrapped__", None)
    own = _own_signature(function, wrapped)
    if wrapped is None or all(one.kind in _FIXED for one in own.parameters.values()):
        return CallSignature(own, Basis.OWN)
    read = _read_through(function, own, wrapped)
    if read is None:
        return CallSignature(own, Basis.UNKNOWN)
    return CallSignature(read, Basis.WRAPPED)


def is_read_through(function: Function) -> bool:
    """True if its signature is that of what it wraps, as far as its source shows."""
    return _has_basis(function, Basis.WRAPPED)


def unclear(function: Function) -> str:
    """Why nobody can know what a call of this wrapper takes, with what to do; empty if one can."""
    if not _has_basis(function, Basis.UNKNOWN):
        return ""
    return (
        f"its decorator takes {call_signature(function).signature}, and what it passes on cannot "
        "be read: name the parameters of a call in the decorator's function, or set its "
        "__signature__"
    )


def _has_basis(function: Function, basis: Basis) -> bool:
    try:
        return call_signature(function).basis is basis
    except Exception:  # `__signature__` is the user's own, whatever it does
        return False


def _own_signature(function: Function, wrapped: object) -> Signature:
    given = getattr(function, "__signature__", None)
    inherited = given is not None and given is getattr(wrapped, "__signature__", None)
    if inherited and isinstance(function, FunctionType):  # `wraps` copied it
        bare = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        bare.__kwdefaults__ = function.__kwdefaults__
        function = bare
    return inspect.signature(function, follow_wrapped=False)


def _read_through(function: Function, own: Signature, wrapped: Any) -> Signature | None:
    """The signature of a wrapper by what it passes on; None if that cannot be known."""
    if not isinstance(function, FunctionType) or wrapped is function:
        return None
    kinds = [one.kind for one in own.parameters.values()]
    if _FIXED.intersection(kinds):
        return None
    from expirebridge.handlers.source_code import passed_on  # noqa: PLC0415 - parses sources

    added = passed_on(function, wrapped)
    inner = call_signature(wrapped)
    if added is None or inner.basis is Basis.UNKNOWN:
        return None
    try:
        parameters = list(inner.signature.parameters.values())
        parameters = _without_first(parameters, added.positional)
        for name in added.names:
            parameters = _without_name(parameters, name)
        if Parameter.VAR_KEYWORD not in kinds:
            parameters = list(_by_place_only(parameters))
        elif Parameter.VAR_POSITIONAL not in kinds:
            parameters = list(_by_name_only(parameters))
        return Signature(sorted(parameters, key=lambda one: one.kind))
    except ValueError:  # what it adds does not fit what it wraps
        return None


def _without_first(parameters: list[Parameter], count: int) -> list[Parameter]:
    """The parameters that are left after so many positional arguments. Raises ValueError."""
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    if count > len(positional) and all(
        one.kind is not Parameter.VAR_POSITIONAL for one in parameters
    ):
        raise ValueError("too many positional arguments")
    filled = positional[:count]
    return [one for one in parameters if one not in filled]


def _without_name(parameters: list[Parameter], name: str) -> list[Parameter]:
    """The parameters that are left after this keyword argument. Raises ValueError."""
    found = next((one for one in parameters if one.name == name), None)
    if found is None or found.kind not in _FIXED - {Parameter.POSITIONAL_ONLY}:
        if any(one.kind is Parameter.VAR_KEYWORD for one in parameters):
            return parameters
        raise ValueError(f"unexpected keyword argument {name!r}")
    place = parameters.index(found)
    # After it no argument can be given by its place.
    return [*parameters[:place], *_by_name_only(parameters[place + 1 :])]


def _by_place_only(parameters: list[Parameter]) -> Iterator[Parameter]:
    for one in parameters:
        if one.kind in _POSITIONAL:
            yield one.replace(kind=Parameter.POSITIONAL_ONLY)
        elif one.kind is Parameter.VAR_POSITIONAL:
            yield one
        elif one.kind is Parameter.KEYWORD_ONLY:
            _check_optional(one)


def _by_name_only(parameters: list[Parameter]) -> Iterator[Parameter]:
    for one in parameters:
        if one.kind is Parameter.POSITIONAL_ONLY:
            _check_optional(one)
        elif one.kind is Parameter.POSITIONAL_OR_KEYWORD:
            yield one.replace(kind=Parameter.KEYWORD_ONLY)
        elif one.kind is not Parameter.VAR_POSITIONAL:
            yield one


def _check_optional(parameter: Parameter) -> None:
    if parameter.default is Parameter.empty:
        raise ValueError(f"nothing can give it {parameter.name!r}")
