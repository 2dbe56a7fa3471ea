"""Sets up the Django project that a process belongs to, before its handlers are loaded."""

import os
import sys
from pathlib import Path

from expirebridge.errors import InvalidSetting

APP = "expirebridge.contrib.django"
_VARIABLE = "DJANGO_SETTINGS_MODULE"


def hint_of_project() -> str:
    """How to start a command where a project of Django seems to be, as a part of a sentence."""
    if os.environ.get(_VARIABLE) or not Path("manage.py").is_file():
        return ""
    return (
        f" (in a project of Django, start `python manage.py expirebridge ...`, or set {_VARIABLE})"
    )


def hint_of_exclusion(place: str, module: str) -> str:
    """How a project of Django leaves out a module with no handlers of its own, as a last line."""
    if not place.startswith(APP):
        return ""
    return f"\nif it has no handlers of yours, leave it out: EXPIREBRIDGE['EXCLUDE'] = ['{module}']"


def set_up_django() -> None:
    """Call `django.setup()`, if DJANGO_SETTINGS_MODULE names a project that has our app.

    Modules are found in the working directory, too, as `manage.py` finds them in its own. Raises
    InvalidSetting if there is no such module, and what the project raises.
    """
    module = os.environ.get(_VARIABLE)
    if not module:
        return
    try:
        import django  # noqa: PLC0415 - only where there is a project
        from django.apps import apps  # noqa: PLC0415
        from django.conf import settings  # noqa: PLC0415
    except ImportError:
        return
    if apps.ready:
        return
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        installed = settings.INSTALLED_APPS
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise InvalidSetting(
            f"{_VARIABLE}={module}: there is no module {error.name}; start the command in the "
            "directory of manage.py, or unset the variable"
        ) from None
    if any(app.startswith(APP) for app in installed):
        django.setup()
