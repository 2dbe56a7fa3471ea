"""System checks: `manage.py check` finds settings and handlers that cannot be."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.core import checks
from django.core.checks import Error, Tags, register
from django.db import connections, router
from django.db.migrations.recorder import MigrationRecorder

from expirebridge.connection.urls import check_url
from expirebridge.contrib.django.ledger_tables import are_there
from expirebridge.contrib.django.settings import EXCLUDE, MODULES, SETTINGS, ledger_alias
from expirebridge.errors import HandlersError, InvalidSetting
from expirebridge.handlers import Registry
from expirebridge.settings import Settings


@register("expirebridge")
def check_expirebridge(**_: Any) -> list[checks.CheckMessage]:
    """Check the setting EXPIREBRIDGE, that handlers can be loaded, and that a ledger has tables."""
    return [*_errors(), *_forbidden_tables()]


def _forbidden_tables() -> Iterator[checks.CheckMessage]:
    try:
        alias = ledger_alias()
    except InvalidSetting:
        return  # said by the other check
    if alias in connections and not router.allow_migrate(alias, "expirebridge"):
        yield checks.Warning(
            f"No migration creates the ledger's tables: a router forbids them in {alias!r}.",
            id="expirebridge.W002",
            hint=f"Let allow_migrate({alias!r}, 'expirebridge') be true, or create them by "
            "`manage.py expirebridge ledger create`, and silence this.",
        )


@register(Tags.database)
def check_ledger_tables(*, databases: Sequence[str] | None, **_: Any) -> list[checks.Warning]:
    """Check that the ledger's tables are there, if our migration was applied.

    It was perhaps applied before there was a ledger.
    """
    try:
        alias = ledger_alias()
    except InvalidSetting:
        return []  # said by the other check
    if alias not in (databases or ()) or alias not in connections:
        return []
    applied = MigrationRecorder(connections[alias]).applied_migrations()
    if ("expirebridge", "0001_initial") not in applied or are_there(connections[alias]):
        return []
    return [
        checks.Warning(
            f"The ledger's tables are not in the database {alias!r}.", id="expirebridge.W001",
            hint="The migration was applied without them: `manage.py expirebridge ledger create`.",
        )
    ]  # fmt: skip


def _errors() -> Iterator[Error]:
    try:
        settings = Settings.read()
    except InvalidSetting as error:
        yield Error(
            str(error), id="expirebridge.E001",
            hint=f"The keys of EXPIREBRIDGE are {', '.join([*SETTINGS, MODULES, EXCLUDE])}.",
        )  # fmt: skip
        return
    try:
        check_url(settings.url)
    except InvalidSetting as error:
        yield Error(
            str(error), id="expirebridge.E002",
            hint="Set EXPIREBRIDGE['URL'], or EXPIREBRIDGE_URL in the environment.",
        )  # fmt: skip
    try:
        Registry.of(settings)
    except (HandlersError, InvalidSetting) as error:
        yield Error(
            str(error), id="expirebridge.E003",
            hint="No listener would start: see `manage.py expirebridge handlers`.",
        )  # fmt: skip
