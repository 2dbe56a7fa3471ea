"""The default settings of expirebridge in a Django project."""

from collections.abc import Mapping
from typing import Any, Final

from expirebridge.contrib.django.ledger_url import ledger_url
from expirebridge.contrib.django.setting import SETTINGS, given, ledger_alias

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
