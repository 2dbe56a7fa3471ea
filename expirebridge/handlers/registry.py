"""The registry: which functions may run, found once at the start and looked up ever after.

Any client of Redis can write any function's name, so a name is only ever looked up, never
imported or resolved. What can run is decided by the files under the handlers' folder, or the
modules that the program lists: the public functions that are defined there, or those of them that
are marked or listed, and nothing that is merely imported.
"""

import difflib
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Protocol, Self, cast

from expirebridge.capabilities import given
from expirebridge.errors import HandlersError, InvalidSetting, InvalidTask
from expirebridge.handlers.aliases import Alias, owners_of_aliases, renames_in, suggestion
from expirebridge.handlers.definition import Function, Handler
from expirebridge.handlers.loading import HandlersFolder, HandlersModule, is_left_out, modules_in
from expirebridge.handlers.module_list import ModuleList
from expirebridge.handlers.selection import beside_tasks, listed_in, refuse_lost_marks, select
from expirebridge.hooks import Hook, Lifespan
from expirebridge.settings import HandlersPlace, Settings
from expirebridge.task import framework
from expirebridge.task.keys import check_func


class Declares(Protocol):
    """What a capability's module `declaration` has."""

    def declared(self, handlers: Iterable[Handler], /) -> Sequence[Any]:
        """Return the series that these declare. Raises HandlersError if they do not agree."""
        ...

    def refuse_lost(self, modules: Iterable[ModuleType], handlers: Iterable[Handler], /) -> None:
        """Raise HandlersError if a function of these modules says something, and is no handler."""


def _declaring() -> tuple[Declares, ...]:
    return cast("tuple[Declares, ...]", given("declaration"))


class Registry:
    """The handlers by name, with the hooks and lifespans of their modules.

    `renames` are aliases beside those that the handlers carry. Raises HandlersError if an alias is
    the name of a handler, or belongs to two handlers; if a series that `@every` declares cannot be,
    or has the id of another; and if handlers share a limit and disagree about it.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        renames: Sequence[Alias] = (),
        hooks: Sequence[Hook] = (),
        lifespans: Sequence[Lifespan] = (),
    ) -> None:
        owners = owners_of_aliases(handlers, renames)
        aliases: dict[str, list[str]] = {name: [] for name in handlers}
        for alias, owner in owners.items():
            aliases[owner].append(alias)
        self._handlers = {
            name: replace(handler, aliases=tuple(aliases[name]))
            for name, handler in handlers.items()
        }
        self._names = self._handlers | {
            alias: self._handlers[owner] for alias, owner in owners.items()
        }
        self.loaded = len(self._handlers)
        """How many handlers there are, those that this registry leaves out included."""
        self.series: tuple[Any, ...] = tuple(
            each for one in _declaring() for each in one.declared(self._handlers.values())
        )
        """The series that `@every` declares, each a `SeriesSpec`, by id."""
        self.hooks = tuple(hooks)
        self.lifespans = tuple(lifespans)

    @classmethod
    def load(
        cls, place: HandlersPlace, *, app_dir: Path | None = None, only_marked: bool = False
    ) -> Self:
        """Import every module under a folder, or that a function lists, and take its handlers.

        Those are the functions that the module's HANDLERS lists. Without it, they are its public
        functions, or with `only_marked` those with `@handler`. What no task can name, and
        generators and classes that are not marked, are left out with a warning: they may just be
        there to help others.

        `app_dir` is the directory in which the outermost package is. Without it, that is the first
        one above the folder that has no `__init__.py`. ALIASES in the `__init__.py` of the folder
        itself maps old names of functions and modules to present ones.

        Raises HandlersError if the folder is missing, is not below `app_dir`, or cannot be a
        package's name; if a module fails to import (the message then holds the file's name and the
        traceback), is hidden by another, or is imported under two names; if what is
        marked or listed cannot be a handler; if an alias is not free, or leads nowhere; if a
        series cannot be, has the id of another, or is declared by a function that is no handler;
        or if a limit has no argument to choose a lane, or differs from another of its name.
        """
        handlers: dict[str, Handler] = {}
        hooks: list[Hook] = []
        lifespans: list[Lifespan] = []
        modules, packages = modules_at(place, app_dir)
        for module in modules:
            selected = select(module, only_marked=only_marked)
            handlers |= selected.handlers
            hooks += selected.hooks
            lifespans += selected.lifespans
        hooks += framework.hooks()
        for one in _declaring():
            one.refuse_lost(_modules_of(packages), handlers.values())
        refuse_lost_marks(_modules_of(packages), handlers.values())
        # Listed modules have no package in common that could name their former names.
        renames = [] if isinstance(place, str) else renames_in(sys.modules[packages[0]], handlers)
        return cls(handlers, renames=renames, hooks=hooks, lifespans=lifespans)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the registry of a listener with these settings.

        Raises HandlersError as `load`, and InvalidSetting as `only`.
        """
        everything = cls.load(
            settings.tasks, app_dir=settings.app_dir, only_marked=settings.only_marked
        )
        return everything.only(settings.functions) if settings.functions else everything

    def only(self, patterns: Sequence[str]) -> Self:
        """A registry with just the handlers whose name matches one of the patterns.

        Patterns are those of a shell (`*`, `?`, `[...]`), and case matters. They are compared with
        present names only, and a handler keeps all its aliases: so the same listeners run it under
        each of its names. Series go with their handlers. Hooks and lifespans stay.

        Raises InvalidSetting for a pattern that matches no handler.
        """
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self._handlers):
                raise InvalidSetting(self._mismatch(pattern), setting="functions", value=pattern)
        matching = {
            name: handler
            for name, handler in self._handlers.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }
        restricted = type(self)(matching, hooks=self.hooks, lifespans=self.lifespans)
        restricted.loaded = self.loaded
        # Not of what is left: a function may have two names, and its series belongs to one.
        restricted.series = tuple(one for one in self.series if one.func in matching)
        return restricted

    def find(self, name: str) -> Handler | None:
        """Return the handler that has exactly this name or alias, or None."""
        return self._names.get(name)

    def names(self) -> Mapping[str, Handler]:
        """Every name that a task may use, aliases included, with its handler."""
        return MappingProxyType(self._names)

    def suggest(self, name: str) -> str:
        """Suggest registered names for a missing one, as a half sentence; empty without a match."""
        return suggestion(name, self._names)

    def __iter__(self) -> Iterator[Handler]:
        return iter(sorted(self._handlers.values(), key=lambda handler: handler.name))

    def __len__(self) -> int:
        return len(self._handlers)

    def _mismatch(self, pattern: str) -> str:
        """Why the pattern matches no handler, and what may have been meant."""
        former = {one.name for name, one in self._names.items() if fnmatchcase(name, pattern)}
        if former:
            present = ", ".join(sorted(former))
            return f"it matches only former names: give the present ones: {present}"
        modules = sorted({f"{name.rpartition('.')[0]}.*" for name in self._handlers})
        near = difflib.get_close_matches(pattern, [*modules, *self._handlers], n=3)
        hint = f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
        return f"no handler matches{hint}"


def modules_at(
    place: HandlersPlace, app_dir: Path | None = None
) -> tuple[list[HandlersModule], list[str]]:
    """The handlers' modules, imported, and the packages or modules in which they are.

    Raises HandlersError.
    """
    if isinstance(place, str):
        listed = ModuleList.at(place)
        return listed.modules(), list(listed.names)
    folder = HandlersFolder.at(place, app_dir)
    return modules_in(folder), [folder.package]


def watched(place: HandlersPlace, app_dir: Path | None = None) -> list[Path]:
    """The directories in which a change may concern the handlers. Raises HandlersError."""
    if isinstance(place, str):
        return ModuleList.at(place).watched()
    return [HandlersFolder.at(place, app_dir).outermost]


def _modules_of(packages: Sequence[str]) -> Iterator[ModuleType]:
    """Each module of packages that was imported, but tests: private ones and the packages, too."""
    for name, module in list(sys.modules.items()):
        for package in packages:
            if f"{name}.".startswith(f"{package}.") and isinstance(module, ModuleType):
                *folders, last = name.removeprefix(package).split(".")
                if not is_left_out(folders, last):
                    yield module
                break


def name_of(function: Function, place: HandlersPlace) -> str:
    """Return the name under which `function` is registered when `place` is loaded.

    Raises InvalidTask when it is not a public function defined in a module there.
    """
    source = getattr(inspect.getmodule(function), "__file__", None)
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function) or source is None:
        raise InvalidTask(f"func={name}: give a function defined in a module, or its name")
    if "." in name:
        raise InvalidTask(f"func={name}: only functions of a module's top level are handlers")
    if isinstance(place, str):
        module = _listed_module(function, place)
    else:
        module = _module_under(place, source, name)
    if any(part.startswith("_") for part in (*module.split("/"), name)):
        raise InvalidTask(f"func={name}: only public functions of public modules are handlers")
    _check_selected(function, name)
    return check_func(f"{module}.{name}")


def refuse_left_out(name: str, place: str) -> None:
    """Raise InvalidTask for the name of a function that stands beside Tasks without a mark.

    Only of modules that this program has imported: nobody knows here what others hold.
    """
    owner, _, function = name.rpartition(".")
    names: Mapping[str, str] = {}
    with suppress(Exception):  # a name can be given before modules can be listed
        names = ModuleList.at(place).names
    for module_name, owned in names.items():
        module = sys.modules.get(module_name) if owned == owner else None
        if module is not None and (fault := beside_tasks(module, function)):
            raise InvalidTask(f"func={name!r}: {fault}")


def _module_under(folder: Path, source: str, name: str) -> str:
    try:
        module = Path(source).resolve().relative_to(folder.resolve())
    except ValueError:
        raise InvalidTask(
            f"func={name}: {source} is not under the handlers' folder {folder.resolve()}; "
            "set EXPIREBRIDGE_TASKS, or give `tasks` to the Bridge or Ledger; or give the name"
        ) from None
    if is_left_out(module.parent.parts, module.stem):
        raise InvalidTask(
            f"func={name}: {source} is named like a test, which no listener loads: move the "
            "function, or rename the file"
        )
    return module.with_suffix("").as_posix()


def _listed_module(function: Function, place: str) -> str:
    names = ModuleList.at(place).names
    if function.__module__ in names:
        return names[function.__module__]
    known = ", ".join(names) or "none"
    raise InvalidTask(
        f"func={function.__name__}: {function.__module__} is no module of handlers; those are "
        f"{known} (listed by {place}). Move the function into one, or list its module, too"
    )


def _check_selected(function: Function, name: str) -> None:
    module = inspect.getmodule(function)
    try:
        listed = listed_in(module) if module is not None else None
    except HandlersError as error:
        raise InvalidTask(f"func={name}: {error}") from None
    if listed is not None and name not in listed:
        raise InvalidTask(f"func={name}: HANDLERS in its module does not list it")
    if listed is None and module is not None and (fault := beside_tasks(module, name)):
        raise InvalidTask(f"func={name}: {fault}")
