"""Reads the setting EXPIREBRIDGE of a Django project, with the URL of its ledger's database."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from django.conf import settings
from django.db import connections

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


# The URL of the ledger's database, from Django's DATABASES.

_DIALECTS: Final = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite"}
"""Of SQLAlchemy, by the vendors of Django's backends, MariaDB's among MySQL's."""
_DJANGOS: Final = {"assume_role", "isolation_level", "pool", "server_side_binding"}
"""OPTIONS for Django, not for the driver."""


def ledger_url(alias: str) -> str:
    """The URL with which listeners reach the database of this alias; it may hold a password.

    Raises InvalidSetting if there is no such alias, or its database can hold no ledger, and if
    SQLAlchemy is missing.
    """
    wrapper = _wrapper_of(alias)
    dialect = _DIALECTS.get(wrapper.vendor)
    if dialect is None:
        raise _refused(
            alias, f"a database of {wrapper.vendor} can hold no ledger: PostgreSQL, MariaDB, MySQL "
            "and SQLite can",
        )  # fmt: skip
    try:
        from sqlalchemy import URL  # noqa: PLC0415 - only with a ledger
    except ModuleNotFoundError:
        raise _refused(
            alias, "the ledger needs SQLAlchemy: pip install 'expirebridge[django,sql]'"
        ) from None
    database = wrapper.settings_dict
    if dialect == "sqlite":
        name = None if wrapper.is_in_memory_db() else str(database["NAME"])
        return URL.create("sqlite", database=name).render_as_string()
    host, port, query = _address(dialect, database)
    url = URL.create(
        dialect,
        username=database["USER"] or None,
        password=database["PASSWORD"] or None,
        host=host,
        port=port,
        database=database["NAME"] or None,
        query=query | _options(database["OPTIONS"]),
    )
    return url.render_as_string(hide_password=False)


def _wrapper_of(alias: object) -> Any:
    if not isinstance(alias, str) or alias not in connections:
        known = ", ".join(sorted(connections))
        raise _refused(alias, f"no alias of DATABASES: give one of {known}")
    return connections[alias]


def _address(
    dialect: str, database: Mapping[str, Any]
) -> tuple[str | None, int | None, dict[str, Any]]:
    """Host and port; in the query what is no host: a socket, or several hosts."""
    host, port = str(database["HOST"]), str(database["PORT"])
    if host.startswith("/"):
        return (
            None,
            None,
            {"unix_socket" if dialect == "mysql" else "host": host}
            | ({"port": port} if port and dialect == "postgresql" else {}),
        )
    if "," in host:
        return None, None, {"host": host} | ({"port": port} if port else {})
    return host or None, int(port) if port else None, {}


def _options(options: dict[str, Any]) -> dict[str, str]:
    """The driver's options as a URL holds them."""
    written: dict[str, str] = {}
    for name, value in options.items():
        if name == "ssl" and isinstance(value, dict):
            written |= {f"ssl_{part}": str(text) for part, text in value.items()}
        elif name not in _DJANGOS and isinstance(value, str | int | float):
            written[name] = str(value)
    return written


def _refused(alias: object, fault: str) -> InvalidSetting:
    return InvalidSetting(f"{SETTING}[{LEDGER!r}]={alias!r}: {fault}")


# The default settings of expirebridge in a Django project.

APP_MODULES: Final = "expirebridge.contrib.django.app_modules:app_modules"
"""The function that lists the handlers' modules, unless TASKS names a folder."""


def defaults() -> Mapping[str, Any]:
    """The settings in EXPIREBRIDGE, by their names in `Settings`.

    Raises InvalidSetting for a key that is none, and for a ledger that cannot be.
    """
    found = {"tasks": APP_MODULES}
    found |= {SETTINGS[key]: value for key, value in given().items() if key in SETTINGS}
    if alias := ledger_alias():
        found["ledger"] = ledger_url(alias)
    return found
