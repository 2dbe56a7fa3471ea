"""Reads the setting EXPIREBRIDGE of a Django project."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from django.conf import settings

from expirebridge.errors import InvalidSetting
from expirebridge.settings import Settings

SETTING: Final = "EXPIREBRIDGE"
LEDGER: Final = "LEDGER"
MODULES: Final = "MODULES"
EXCLUDE: Final = "EXCLUDE"
SETTINGS: Final = {one.name.upper(): one.name for one in fields(Settings)}
"""The keys that are settings of expirebridge, with their names there."""


def ledger_alias() -> str | None:
    """The alias of the database that holds the ledger; None without one."""
    alias: str | None = given().get(LEDGER)
    return alias


def more_modules() -> list[str]:
    """The dotted names of modules with handlers beside those of apps. Raises InvalidSetting."""
    return _modules(MODULES, example="shop.jobs")


def excluded_modules() -> list[str]:
    """The dotted names of packages and modules that are no handlers. Raises InvalidSetting."""
    return _modules(EXCLUDE, example="vendor.tasks")


def _modules(key: str, *, example: str) -> list[str]:
    names = given().get(key, [])
    if isinstance(names, list | tuple) and all(isinstance(name, str) for name in names):
        return list(names)
    raise InvalidSetting(
        f"{SETTING}[{key!r}]={names!r}: give a list of modules, such as [{example!r}]"
    )


def given() -> Mapping[str, Any]:
    """The setting itself. Raises InvalidSetting unless it is a dict of known keys."""
    found = getattr(settings, SETTING, {})
    if not isinstance(found, Mapping):
        raise InvalidSetting(f"{SETTING} is a {type(found).__name__}: it must be a dict")
    known = [*SETTINGS, MODULES, EXCLUDE]
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(str(key).upper(), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidSetting(f"{SETTING}[{key!r}] is not a setting{hint}")
    return found
