"""The program that this process belongs to, as its framework describes it: default settings, and
what surrounds each call of a handler.

`expirebridge.contrib.django` registers its project here. The core asks, and imports no framework.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

AnyFunction = Callable[..., Any]


class Surround(Protocol):
    """Surrounds the calls of a handler."""

    def __call__(self, function: AnyFunction, /, *, is_async: bool) -> AnyFunction:
        """Return a function that calls this one, with what is done before and after it.

        What an async handler returns is awaited, and what surrounds it, too.
        """
        ...


class Framework(NamedTuple):
    """What a framework says of its project."""

    defaults: Callable[[], Mapping[str, Any]]
    """Returns the settings that hold where neither an argument nor the environment says another
    value, by their names. Raises InvalidSetting."""
    surround: Surround
    function_for: Callable[[str, object], AnyFunction | None]
    """Returns the function of which a value stands for a handler, which a module holds under this
    name, such as a Task of Django; None for other values."""
    hooks: Callable[[], Sequence[Callable[[Any], None]]]
    """Returns hooks for each listener, beside those of its handlers' modules, which are loaded."""


_registered: Framework | None = None
_surrounds = True
"""False while the handlers of a test are described."""


def register(framework: Framework) -> None:
    """Let this be the framework of this process from now on."""
    global _registered  # noqa: PLW0603 - a process belongs to one program
    _registered = framework


def defaults() -> Mapping[str, Any]:
    """The settings of the project, by their names; none without one. Raises InvalidSetting."""
    return {} if _registered is None else _registered.defaults()


def surrounded(function: AnyFunction, *, is_async: bool) -> AnyFunction:
    """A handler's function, with what the project does around each call of it."""
    if _registered is None or not _surrounds:
        return function
    return _registered.surround(function, is_async=is_async)


def function_for(name: str, value: object) -> AnyFunction | None:
    """The function of a value, held under this name, that stands for a handler; else None."""
    return None if _registered is None else _registered.function_for(name, value)


def hooks() -> Sequence[Callable[[Any], None]]:
    """The hooks of the project."""
    return () if _registered is None else _registered.hooks()


@contextmanager
def bare_handlers() -> Iterator[None]:
    """For a block, let `surrounded` return functions as they are.

    A test calls its handlers in its own thread, and its connections are its own affair.
    """
    global _surrounds  # noqa: PLW0603 - as above
    _surrounds = False
    try:
        yield
    finally:
        _surrounds = True
