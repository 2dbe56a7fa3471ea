"""Finds the handlers' modules of a Django project: `tasks` in each installed app."""

import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.signals import setting_changed
from django.utils.module_loading import module_has_submodule

from expirebridge.contrib.django.settings import (
    EXCLUDE,
    MODULES,
    SETTING,
    excluded_modules,
    more_modules,
)
from expirebridge.errors import HandlersError
from expirebridge.handlers.loading import module_files

_SUBMODULE = "tasks"


@functools.cache
def app_modules() -> dict[str, str]:
    """The module part of handlers' names for each module, by the module's dotted name.

    `shop/tasks.py` of the app `shop` is `shop`, and `shop/tasks/mail.py` is `shop/mail`; a module
    in MODULES has its own name, with slashes. What EXCLUDE names is left out.

    Raises HandlersError if two have one name, if a module in MODULES does not exist, or one in
    EXCLUDE has no handlers, and InvalidSetting if these are no lists of names.
    """
    names: dict[str, str] = {}
    owners: dict[str, str] = {}
    for module, name in _included(_found()):
        if module in names:
            continue
        owner = owners.setdefault(name, module)
        if owner != module:
            raise HandlersError(
                f"{owner} and {module} would both be {name!r} in the names of tasks: rename one of "
                "them, or give its app another label"
            )
        names[module] = name
    return names


def _included(found: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Those that are neither in EXCLUDE, nor in a package that is."""
    unused = excluded = excluded_modules()
    for module, name in found:
        owners = [one for one in excluded if f"{module}.".startswith(f"{one}.")]
        unused = [one for one in unused if one not in owners]
        if not owners:
            yield module, name
    if unused:
        raise HandlersError(
            f"{SETTING}[{EXCLUDE!r}]: no module of handlers is in {', '.join(unused)}"
        )


def _found() -> Iterator[tuple[str, str]]:
    for app in apps.get_app_configs():
        if module_has_submodule(app.module, _SUBMODULE):
            yield from _with_inner(f"{app.name}.{_SUBMODULE}", app.label)
    for module in more_modules():
        yield from _with_inner(module, module.replace(".", "/"))


def _with_inner(module: str, name: str) -> Iterator[tuple[str, str]]:
    """A module, and if it is a package the public modules in it."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise HandlersError(f"{SETTING}[{MODULES!r}]: there is no module {module}")
    if spec.origin is not None:
        yield module, name
    for place in spec.submodule_search_locations or ():
        folder = Path(place)
        for file in module_files(folder):
            parts = file.relative_to(folder).with_suffix("").parts
            yield ".".join((module, *parts)), "/".join((name, *parts))


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {SETTING, "INSTALLED_APPS"}:
        app_modules.cache_clear()


setting_changed.connect(_forget, dispatch_uid="expirebridge.app_modules")
