"""The shape of a signature: what decides whether arguments fit, as a short text.

A shape has the names of the parameters, how each can be given, and which of them have defaults. It
has no types and no default values. As a text it looks like a signature in a stub:

    (to, /, subject=..., *files, urgent, **headers)

Two versions of a function have one shape if the same arguments fit both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any, Self

from expirebridge.handlers.call_signature import call_signature
from expirebridge.handlers.registry import Registry
from expirebridge.task.calls.fleet import digest_of

UNREADABLE = "(?)"
"""The text of a shape that Python cannot find out: any arguments may fit."""


class _AnyValue:
    """Stands for every default value, and for every argument."""

    def __repr__(self) -> str:
        return "..."


_ANY = _AnyValue()


@dataclass(frozen=True, slots=True)
class Shape:
    """The signature of a function, reduced to which arguments fit. `str(shape)` is its text."""

    _signature: Signature | None
    """Without types, and with one value for every default; None if it cannot be read."""

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Return the shape of the signature with which a function is called.

        See `call_signature` for what counts of a wrapper. If Python cannot tell the signature, the
        shape is not `known`. Raises nothing.
        """
        try:
            signature = call_signature(function).signature
        except Exception:  # `__signature__` and `__wrapped__` are the user's own, whatever they do
            return cls(None)
        return cls(Signature([_bare(each) for each in signature.parameters.values()]))

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a shape from its text. Raises ValueError for any other text."""
        if text == UNREADABLE:
            return cls(None)
        parts = text[1:-1].split(", ") if text != "()" else []
        try:
            shape = cls(Signature(list(_parameters(parts))))
        except ValueError as error:
            raise ValueError(f"{text[:100]!r} is not a shape: {str(error)[:100]}") from None
        if str(shape) != text:  # a `/` or `*` out of its place, or no parentheses
            raise ValueError(f"{text[:100]!r} is not a shape")
        return shape

    @property
    def known(self) -> bool:
        """True if anything is known about the arguments."""
        return self._signature is not None

    @property
    def is_open(self) -> bool:
        """True with `*args` or `**kwargs`, which take any number of arguments."""
        return self._signature is not None and any(
            parameter.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
            for parameter in self._signature.parameters.values()
        )

    def fits(self, positional: int, keywords: Iterable[str]) -> str | None:
        """Return why so many positional arguments, and keywords of these names, do not fit.

        None if they fit, as `inspect.Signature.bind` decides it, and if the shape is not `known`.
        """
        if self._signature is None:
            return None
        try:
            self._signature.bind(*(_ANY,) * positional, **dict.fromkeys(keywords, _ANY))
        except TypeError as error:
            return str(error)
        return None

    def __str__(self) -> str:
        return UNREADABLE if self._signature is None else str(self._signature)


def shape_of(function: Callable[..., Any]) -> str:
    """Return the text of a function's shape; see `Shape.of`."""
    return str(Shape.of(function))


def _bare(parameter: Parameter) -> Parameter:
    """The parameter without its type, and with the one value if it has a default."""
    default = Parameter.empty if parameter.default is Parameter.empty else _ANY
    return Parameter(parameter.name, parameter.kind, default=default)


def _parameters(parts: list[str]) -> Iterator[Parameter]:
    """Read the parts of a text, of which a `/` or a bare `*` is no parameter.

    Raises ValueError for a name that no parameter can have, and for a second `*args` or `**kwargs`.
    """
    if sum(part.startswith("*") and part[1:2] != "*" for part in parts) > 1:
        raise ValueError("more than one * or *args")  # Signature would take them
    if sum(part.startswith("**") for part in parts) > 1:
        raise ValueError("more than one **kwargs")
    slash = parts.index("/") if "/" in parts else 0
    kind: Any = Parameter.POSITIONAL_ONLY if slash else Parameter.POSITIONAL_OR_KEYWORD
    for place, part in enumerate(parts):
        if place == slash and slash:
            kind = Parameter.POSITIONAL_OR_KEYWORD
        elif part == "*":
            kind = Parameter.KEYWORD_ONLY
        elif part.startswith("**"):
            yield _parameter(part[2:], Parameter.VAR_KEYWORD)
        elif part.startswith("*"):
            yield _parameter(part[1:], Parameter.VAR_POSITIONAL)
            kind = Parameter.KEYWORD_ONLY
        else:
            name = part.removesuffix("=...")
            yield _parameter(name, kind, Parameter.empty if name == part else _ANY)


def _parameter(name: str, kind: Any, default: object = Parameter.empty) -> Parameter:
    if not name.isidentifier():  # Parameter takes ".0", and fails otherwise for ""
        raise ValueError(f"{name!r} is not the name of a parameter")
    return Parameter(name, kind, default=default)


# The fingerprint of a registry: the functions of a listener, and the shapes of their signatures.


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Identifies a set of functions and their shapes, such as those of a listener."""

    digest: str
    shapes: Mapping[str, str]
    """The shape of each function, by every name that tasks may give it."""

    @classmethod
    def of(cls, registry: Registry) -> Self:
        """Take the fingerprint of what this registry holds now."""
        shapes = {name: shape_of(handler.function) for name, handler in registry.names().items()}
        return cls(digest_of(shapes), shapes)
