"""The Django app."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from django.apps import AppConfig
from django.conf import settings

from expirebridge.contrib.django.database_connections import surround
from expirebridge.contrib.django.settings import defaults
from expirebridge.task import framework


class ExpirebridgeConfig(AppConfig):
    """Makes the project's settings those of expirebridge."""

    name = "expirebridge.contrib.django"
    label = "expirebridge"
    verbose_name = "expirebridge"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Not in `ready`: a module of models, imported before, may hold a Bridge.
        framework.register(
            framework.Framework(
                defaults=defaults, surround=surround, function_for=_function_for, hooks=_hooks
            )
        )

    def ready(self) -> None:
        """Register the system checks."""
        from expirebridge.contrib.django import checks  # noqa: F401, PLC0415 - apps are loaded now

        # Django 6 registers the check of TASKS when its tasks are imported, which may be too late.
        if settings.is_overridden("TASKS") and find_spec("django.tasks"):
            import_module("django.tasks")


# Django's tasks are imported only if the project has imported them.

_TASKS_API: Final = {"django.tasks", "django_tasks"}


def _function_for(name: str, value: object) -> framework.AnyFunction | None:
    if _TASKS_API.isdisjoint(sys.modules):
        return None
    from expirebridge.contrib.django.task_functions import function_for  # noqa: PLC0415

    return function_for(name, value)


def _hooks() -> Sequence[Callable[[Any], None]]:
    if _TASKS_API.isdisjoint(sys.modules):
        return ()
    from expirebridge.contrib.django.task_functions import hear  # noqa: PLC0415

    return (hear,)
