"""The functions of ours that the names of another library mean."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from expirebridge.errors import InvalidSetting, InvalidTask
from expirebridge.handlers import Registry
from expirebridge.handlers.signatures import Shape
from expirebridge.importing.job import Refused
from expirebridge.task import keys


class Names:
    """Which function of ours a job calls.

    `pairs` are the values of --map. With a registry, the function must be one of its handlers,
    and its signature must fit the arguments.
    Raises InvalidSetting for a pair that is not old=new, InvalidTask for a new name that is none.
    """

    def __init__(self, pairs: Sequence[str], registry: Registry | None) -> None:
        self._map: dict[str, str] = {}
        self._registry = registry
        self._unused: set[str] = set()
        self._shapes: dict[str, Shape] = {}
        for pair in pairs:
            # A name of the other library may hold a =, and a name of ours does not.
            old, equals, new = pair.rpartition("=")
            if not equals or not old:
                raise InvalidSetting(
                    f"--map {pair}: write old=new, such as mail.tasks.send=mail.send"
                )
            if old in self._map:
                raise InvalidSetting(f"--map {pair}: {old} is mapped to {self._map[old]} already")
            self._map[old] = keys.check_func(new)
            self._unused.add(old)
            if registry and registry.find(new) is None:
                raise InvalidSetting(
                    f"--map {pair}: there is no handler {new}{registry.suggest(new)}"
                )

    def function_of(self, names: Sequence[str]) -> str:
        """The function for a job. Raises Refused if there is none, with what to do."""
        for name in names:
            if name in self._map:
                self._unused.discard(name)
                return self._map[name]
        name = names[0]
        try:
            keys.check_func(name)
        except InvalidTask:
            raise Refused(
                f"{name} is not a function here: --map {name}={self._near(name)}"
            ) from None
        if self._registry and self._registry.find(name) is None:
            raise Refused(f"there is no handler {name}: --map {name}={self._near(name)}")
        return name

    def check_arguments(self, func: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raise Refused if the handler cannot be called with so many arguments of these names."""
        handler = self._registry.find(func) if self._registry else None
        if handler is None:
            return
        if func not in self._shapes:
            self._shapes[func] = Shape.of(handler.function)
        shape = self._shapes[func]
        if shape.known and (misfit := shape.fits(len(args), tuple(sorted(kwargs)))) is not None:
            raise Refused(f"{func}{shape}: {misfit}")

    def unused(self) -> list[str]:
        """The mapped names that no job had: mistyped, perhaps."""
        return sorted(self._unused)

    def _near(self, name: str) -> str:
        """Suggestions for a name."""
        words = [re.sub(r"\W", "_", word, flags=re.ASCII) for word in name.split(".")]
        if self._registry is None:
            return ".".join(words[-2:]) if len(words) > 1 else f"module.{words[0]}"
        handlers = [handler.name for handler in self._registry]
        same = [handler for handler in handlers if handler.rpartition(".")[2] == words[-1]]
        return (same or difflib.get_close_matches(name, handlers, n=1) or ["module.function"])[0]
