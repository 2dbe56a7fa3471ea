"""The arguments that a handler is given: whether they fit it, and how JSON holds them."""

from collections.abc import Mapping, Sequence
from typing import Any

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers.call_signature import call_signature
from expirebridge.handlers.definition import Function, typed_arguments
from expirebridge.task import keys


def check_binding(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidTask unless the function can be called with these arguments.

    Nothing is raised if Python cannot tell the function's signature: only a call can show it then.
    """
    try:
        signature = call_signature(function).signature
    except Exception:  # `__signature__` and `__wrapped__` are the user's own, whatever they do
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidTask(f"{function.__name__}{signature}: {error}") from None


def plain_arguments(
    func: str | Function, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[Sequence[Any], Mapping[str, Any] | None]:
    """Return the arguments as JSON holds them: those of a typed handler, given itself, converted.

    Raises InvalidTask if they do not fit its annotations.
    """
    if isinstance(func, str):
        return args, kwargs
    try:
        typed = typed_arguments(func)
    except HandlersError as error:
        raise InvalidTask(f"func={func.__name__}: {error}") from None
    if typed is None:
        return args, kwargs
    keys.check_given(args, kwargs)
    try:
        return typed.write(args, kwargs or {})
    except InvalidTask as error:
        raise InvalidTask(f"{func.__name__}: {error}") from None
