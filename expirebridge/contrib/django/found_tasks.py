"""Finds Django's tasks in the handlers' modules, by the names that Redis has for them.

A name is looked up among those; nothing is imported because Redis names it.
"""

import functools
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from django.core.signals import setting_changed

from expirebridge.contrib.django.setting import SETTING
from expirebridge.contrib.django.task_functions import function_of
from expirebridge.contrib.django.tasks_api import Task
from expirebridge.handlers.definition import Handler
from expirebridge.handlers.registry import modules_at
from expirebridge.settings import Settings
from expirebridge.task.project import AnyFunction


def function_for(name: str, value: object) -> AnyFunction | None:
    """The function of a Task of our backend, which its module holds under the function's name.

    None for any other value: `urgent = send.using(queue_name="urgent")` is no handler beside
    `send`, and a Task of another backend is that one's.
    """
    # Not by isinstance, which has lazy objects of Django load what they stand for.
    if issubclass(type(value), Task) and value.func.__name__ == name and is_ours(value):  # type: ignore[attr-defined]
        return function_of(value)
    return None


def is_ours(task: Task) -> bool:
    """True if the Task is declared for a backend of ours."""
    return getattr(task.get_backend(), "runs_on_listeners", False)


def find_task(name: str) -> Task | None:
    """The Task whose handler has this name, or had it before; None if there is none.

    Raises HandlersError if the handlers' modules cannot be loaded.
    """
    return _tasks().get(name)


@functools.cache
def _tasks() -> dict[str, Task]:
    settings = Settings.read()
    found: dict[str, Task] = {}
    for module in modules_at(settings.tasks, settings.app_dir)[0]:
        for task in tasks_in(module.imported):
            handler = Handler.of(f"{module.name}.{task.name}", function_of(task))
            found |= dict.fromkeys((handler.name, *handler.aliases), task)
    return found


def tasks_in(module: ModuleType) -> Iterator[Task]:
    """The Tasks that a module defines."""
    for name, value in list(vars(module).items()):
        if function_for(name, value) and value.func.__module__ == module.__name__:
            yield value


def _forget(*, setting: str, **_: Any) -> None:
    if setting in {SETTING, "INSTALLED_APPS", "TASKS"}:
        _tasks.cache_clear()
        function_of.cache_clear()


setting_changed.connect(_forget, dispatch_uid="expirebridge.found_tasks")
