"""The Django app."""

from typing import Any

from django.apps import AppConfig

from expirebridge.contrib.django.database_connections import surround
from expirebridge.contrib.django.defaults import defaults
from expirebridge.model import project


class ExpirebridgeConfig(AppConfig):
    """Makes the project's settings those of expirebridge."""

    name = "expirebridge.contrib.django"
    label = "expirebridge"
    verbose_name = "expirebridge"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Not in `ready`: a module of models, imported before, may hold a Bridge.
        project.register(project.Project(defaults=defaults, surround=surround))

    def ready(self) -> None:
        """Register the system checks."""
        from expirebridge.contrib.django import checks  # noqa: F401, PLC0415 - apps are loaded now
