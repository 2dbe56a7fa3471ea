"""The URL of the ledger's database, from Django's DATABASES."""

from typing import Any, Final

from django.db import connections

from expirebridge.contrib.django.setting import LEDGER, SETTING
from expirebridge.errors import InvalidSetting

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
    given = wrapper.settings_dict
    if dialect == "sqlite":
        name = None if wrapper.is_in_memory_db() else str(given["NAME"])
        return URL.create("sqlite", database=name).render_as_string()
    host, port, query = _address(dialect, given)
    url = URL.create(
        dialect,
        username=given["USER"] or None,
        password=given["PASSWORD"] or None,
        host=host,
        port=port,
        database=given["NAME"] or None,
        query=query | _options(given["OPTIONS"]),
    )
    return url.render_as_string(hide_password=False)


def _wrapper_of(alias: object) -> Any:
    if not isinstance(alias, str) or alias not in connections:
        known = ", ".join(sorted(connections))
        raise _refused(alias, f"no alias of DATABASES: give one of {known}")
    return connections[alias]


def _address(dialect: str, given: dict[str, Any]) -> tuple[str | None, int | None, dict[str, Any]]:
    """Host and port; in the query what is no host: a socket, or several hosts."""
    host, port = str(given["HOST"]), str(given["PORT"])
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
