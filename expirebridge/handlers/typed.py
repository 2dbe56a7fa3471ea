"""The arguments of typed handlers: checked, and converted to and from JSON, by annotations.

Pydantic does both. It is strict: it takes no text for a number, no number for a text, and no bool
for an int. It takes an int where a float is expected, and in JSON a text for what JSON lacks, such
as a UUID.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Self, get_type_hints

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers.call_signature import call_signature, unclear
from expirebridge.task.policies import Discard

_SHOWN = 3
"""How many of the mistakes in one argument an error names."""


class TypedParameter:
    """One parameter with an annotation."""

    def __init__(self, name: str, annotation: Any) -> None:
        self._name = name
        self._annotation = inspect.formatannotation(annotation)
        self._adapter: TypeAdapter[Any] = TypeAdapter(annotation)

    def write(self, value: Any) -> Any:
        """Return the value as JSON can hold it.

        Raises InvalidTask if it is not of the annotated type, or if the handler would not receive
        an equal value.
        """
        try:
            self._adapter.validate_python(value, strict=True)
        except ValidationError as error:
            raise InvalidTask(
                f"{self._mismatch(value, error)}: pass a value of that type, or correct the "
                "annotation"
            ) from None
        try:
            written = self._adapter.dump_python(
                value, mode="json", by_alias=True, round_trip=True, warnings="error"
            )
            if self.read(written) == value:
                return written
            reason = "the handler would not receive an equal value"
        except (ValueError, TypeError) as error:  # an InvalidTask is a ValueError
            reason = str(error)
        raise InvalidTask(
            f"{self._name}: this {type(value).__name__} cannot be stored as {self._annotation}: "
            f"{reason}"
        )

    def read(self, written: Any) -> Any:
        """Return the value of this JSON. Raises InvalidTask if it does not fit."""
        try:
            return self._adapter.validate_json(orjson.dumps(written), strict=True)
        except ValidationError as error:
            raise InvalidTask(self._mismatch(written, error)) from None
        except orjson.JSONEncodeError as error:  # nested deeper than can be written
            raise InvalidTask(f"{self._name}: {error}") from None

    def _mismatch(self, value: Any, error: ValidationError) -> str:
        """The place and reason of each mismatch, without the value, which may be a secret."""
        found = error.errors(include_url=False, include_context=False, include_input=False)
        details = [
            ".".join(map(str, one["loc"])) + ": " * bool(one["loc"]) + one["msg"]
            for one in found[:_SHOWN]
        ]
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return (
            f"{self._name} is of type {type(value).__name__}, which does not fit "
            f"{self._annotation} ({'; '.join(details)}{more})"
        )


class TypedArguments:
    """The arguments of one function, as its annotations describe them.

    Those without an annotation, or with `Any`, stay as they are.
    """

    def __init__(self, signature: inspect.Signature, typed: Mapping[str, TypedParameter]) -> None:
        parameters = signature.parameters.values()
        self._signature = signature
        self._typed = typed
        self._in_order = [
            one.name
            for one in parameters
            if one.kind in {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
        ]
        self._by_name = {
            one.name
            for one in parameters
            if one.kind in {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
        }
        self._rest = _name_of_kind(signature, Parameter.VAR_POSITIONAL)
        self._others = _name_of_kind(signature, Parameter.VAR_KEYWORD)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Self:
        """Read a function's annotations.

        Raises HandlersError for one that cannot be found, or that pydantic does not know, and for
        a wrapper of which nobody knows what it passes on.
        """
        if fault := unclear(function):
            raise HandlersError(fault)
        signature = call_signature(function).signature
        try:
            annotations = get_type_hints(function, include_extras=True)
        except Exception as error:  # an annotation as text is evaluated: it may raise anything
            raise HandlersError(
                f"its annotations cannot be read: {error}; import what they name when the program "
                "runs, not under TYPE_CHECKING"
            ) from None
        typed: dict[str, TypedParameter] = {}
        for name in signature.parameters:
            annotation = annotations.get(name, Any)
            if annotation is Any:
                continue
            try:
                typed[name] = TypedParameter(name, annotation)
            except (PydanticUserError, TypeError) as error:
                raise HandlersError(
                    f"{name}: {inspect.formatannotation(annotation)} cannot be converted: "
                    f"{str(error).splitlines()[0]}; annotate it with Any or a type that pydantic "
                    "knows"
                ) from None
        return cls(signature, typed)

    def write(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments that fit the signature as JSON can hold them.

        Raises InvalidTask if one is not of its annotated type, or cannot be stored.
        """
        return self._converted(TypedParameter.write, args, kwargs)

    def read(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of this JSON.

        Raises InvalidTask for one that does not fit its annotation. Whether the signature takes so
        many, and these names, is for the call to find out.
        """
        return self._converted(TypedParameter.read, args, kwargs)

    def reading(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function, so that it is called with values converted from the JSON.

        It raises TypeError for arguments that do not fit the signature, and Discard for those that
        do not fit the annotations: another attempt would not change them.
        """

        @functools.wraps(function)
        def read_and_call(*args: Any, **kwargs: Any) -> Any:
            try:
                values, named = self.read(args, kwargs)
            except InvalidTask as error:
                # Of arguments that do not fit the signature either, a listener with other code
                # may know more: that is a TypeError, as without annotations.
                self._signature.bind(*args, **kwargs)
                raise Discard(f"its arguments do not fit: {error}") from None
            return function(*values, **named)

        return read_and_call

    def _converted(
        self,
        convert: Callable[[TypedParameter, Any], Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[list[Any], dict[str, Any]]:
        def converted(name: str, value: Any) -> Any:
            parameter = self._typed.get(name)
            return value if parameter is None else convert(parameter, value)

        beyond = [self._rest] * (len(args) - len(self._in_order))
        names = [*self._in_order, *beyond]
        return (
            [converted(name, value) for name, value in zip(names, args, strict=False)],
            {
                name: converted(name if name in self._by_name else self._others, value)
                for name, value in kwargs.items()
            },
        )


def _name_of_kind(signature: inspect.Signature, kind: Any) -> str:
    """The name of `*args` or `**kwargs`; nothing if there is none."""
    return next((one.name for one in signature.parameters.values() if one.kind is kind), "")
