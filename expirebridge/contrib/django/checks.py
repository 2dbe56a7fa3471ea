"""System checks: `manage.py check` finds settings and handlers that cannot be."""

from collections.abc import Iterator
from typing import Any

from django.core.checks import Error, register

from expirebridge.connection.urls import check_url
from expirebridge.errors import HandlersError, InvalidSetting
from expirebridge.handlers import Registry
from expirebridge.settings import Settings


@register("expirebridge")
def check_expirebridge(**_: Any) -> list[Error]:
    """Check the setting EXPIREBRIDGE, and that the handlers can be loaded."""
    return list(_errors())


def _errors() -> Iterator[Error]:
    try:
        settings = Settings.read()
    except InvalidSetting as error:
        yield Error(
            str(error), id="expirebridge.E001",
            hint="The keys of EXPIREBRIDGE are in docs/how-to/django.md.",
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
