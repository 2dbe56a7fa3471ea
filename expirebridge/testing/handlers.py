"""The handlers of a test: those of a folder, or functions that the test names."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from expirebridge.errors import InvalidTask
from expirebridge.handlers import Handler, Registry, name_of
from expirebridge.settings import Settings
from expirebridge.task.framework import bare_handlers

Func = str | Callable[..., Any]
"""A handler, or its name."""


class Handlers:
    """Knows the handlers and their names; the folder is read when a task runs for the first time.

    `functions` are taken instead of those in the folder, if they are given.
    """

    def __init__(
        self, settings: Settings, functions: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        self._settings = settings
        self._functions = functions

    @cached_property
    def registry(self) -> Registry:
        """All of them. Raises HandlersError if they cannot be loaded."""
        with bare_handlers():
            if self._functions is None:
                return Registry.of(self._settings)
            return Registry({name: Handler.of(name, one) for name, one in self._functions.items()})

    def find(self, func: Func) -> Handler:
        """The handler of this name, or the function as one.

        Raises InvalidTask if there is none of that name, and HandlersError as `registry`.
        """
        if not isinstance(func, str):
            with bare_handlers():
                return Handler.of(self.name_of(func), func)
        handler = self.registry.find(func)
        if handler is None:
            near = self.registry.suggest(func)
            raise InvalidTask(f"func={func!r}: no such handler in {self._settings.tasks}{near}")
        return handler

    def name_of(self, func: Func) -> str:
        """Its name; for a function that is no handler, its module's name and its own."""
        if isinstance(func, str):
            return func
        for name, function in (self._functions or {}).items():
            if function is func:
                return name
        try:
            return name_of(func, self._settings.tasks)
        except InvalidTask:
            module = getattr(func, "__module__", "test").rpartition(".")[2].strip("_")
            return f"{module}.{getattr(func, '__name__', 'handler')}"
