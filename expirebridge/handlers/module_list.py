"""The handlers' modules that a function of the program lists, in place of a folder."""

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Self

from expirebridge.errors import HandlersError
from expirebridge.handlers.django_project import hint_of_exclusion
from expirebridge.handlers.loading import HandlersModule, unimported


@dataclass(frozen=True, slots=True)
class ModuleList:
    """The handlers' modules that a function lists."""

    place: str
    """The function: `module:function`."""
    names: Mapping[str, str]
    """For each module's dotted name, the module part of its handlers' names."""

    @classmethod
    def at(cls, place: str) -> Self:
        """Call the function. Raises HandlersError if there is none, and what it raises."""
        module, _, name = place.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise HandlersError(
                f"the handlers' modules are listed by {place}, which cannot be imported: {error}"
            ) from error
        return cls(place, function())

    def modules(self) -> list[HandlersModule]:
        """Import the modules. Raises HandlersError if one cannot be imported."""
        return [HandlersModule(name, self._import(module)) for module, name in self.names.items()]

    def _import(self, module: str) -> ModuleType:
        try:
            return importlib.import_module(module)
        except (Exception, SystemExit) as error:
            spec = importlib.util.find_spec(module)
            origin = spec.origin if spec is not None else None
            hint = hint_of_exclusion(self.place, module)
            raise unimported(Path(origin or module), error, hint) from error

    def watched(self) -> list[Path]:
        """The directories of the outermost packages, and the modules that are in no package."""
        outermost = {module.partition(".")[0] for module in self.names}
        found: list[Path] = []
        for spec in map(importlib.util.find_spec, sorted(outermost)):
            if spec is not None and spec.submodule_search_locations:
                found += map(Path, spec.submodule_search_locations)
            elif spec is not None and spec.has_location and spec.origin:
                found.append(Path(spec.origin))
        return found
