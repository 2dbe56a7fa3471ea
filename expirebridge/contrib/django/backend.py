"""A backend for Django's tasks: `django.tasks` of Django 6, or the package `django-tasks`.

    TASKS = {"default": {"BACKEND": "expirebridge.contrib.django.backend.ExpirebridgeBackend"}}

`manage.py expirebridge listen` runs what it enqueues.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, Final

from django.apps import apps
from django.core import checks
from django.db import connections
from django.utils import timezone

from expirebridge.bridge import default_bridge, make_task
from expirebridge.contrib.django.on_commit import ledger_in, refuse_other_transactions
from expirebridge.contrib.django.settings import SETTING, ledger_alias
from expirebridge.contrib.django.task_functions import find_task, function_of, is_ours, tasks_in
from expirebridge.contrib.django.task_results import QUEUE, local, queue_tags, result_of
from expirebridge.contrib.django.tasks_api import (
    BaseTaskBackend,
    InvalidDjangoTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from expirebridge.errors import HandlersError, InvalidSetting, InvalidTask
from expirebridge.handlers import name_of, typed_arguments
from expirebridge.ledger.rows import LedgerTask, Status
from expirebridge.settings import HandlersPlace, Settings
from expirebridge.task.framework import AnyFunction
from expirebridge.task.keys import check_tags
from expirebridge.task.task import State
from expirebridge.task.task import Task as Found

_APP: Final = "expirebridge.contrib.django"


class ExpirebridgeBackend(BaseTaskBackend):
    """Enqueues Django's tasks, for listeners of expirebridge to run.

    The Tasks are those in the handlers' modules: each app's `tasks`, and EXPIREBRIDGE["MODULES"].
    With EXPIREBRIDGE["LEDGER"], what is enqueued is a row in the transaction of that database;
    without it, it is enqueued at once, whatever becomes of a transaction.

    A priority above 0 makes a task urgent: it is taken before others that are due. All other
    priorities are one. A queue is a tag, `queue:<name>`, which lists and holds can name. The
    setting OPTIONS stays empty.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True
    runs_on_listeners = True
    """Its Tasks are handlers."""

    def validate_task(self, task: Task) -> None:
        """Raise Django's InvalidTask for a Task that this backend cannot enqueue."""
        if isinstance(task.run_after, timedelta):  # documented by Django, and not checked there
            task = dataclasses.replace(task, run_after=None)
        super().validate_task(task)
        try:
            check_tags(queue_tags(task))
        except InvalidTask as error:
            raise InvalidDjangoTask(f"Queue {task.queue_name!r}: {error}") from error

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Make a task that runs a Task's function, as soon as its `run_after` allows.

        Raises Django's InvalidTask if the Task is in no module of handlers, or its function cannot
        take the arguments; TypeError for arguments that are no JSON; and a ServerError if Redis
        fails or refuses, or what the database of the ledger raises.
        """
        self.validate_task(task)
        function = function_of(_defined(task))
        if typed_arguments(function) is None:
            args, kwargs = normalize_json(list(args)), normalize_json(kwargs)
        try:
            made = _make(task, function, args, kwargs)
        except InvalidTask as error:
            raise InvalidDjangoTask(str(error)) from error
        result = TaskResult(
            task=task,
            id=made.id,
            status=TaskResultStatus.READY,
            # To the second, as Redis keeps it.
            enqueued_at=local((made.created or datetime.now(UTC)).replace(microsecond=0)),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(made.args),
            kwargs=dict(made.kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Read the result of a Task: for an hour after it has succeeded, for 30 days if it failed.

        Raises TaskResultDoesNotExist if there is none any more, or if it is of no Task of this
        project, and a ServerError if Redis fails.
        """
        try:
            found = self._found(result_id)
        except InvalidTask:  # no task has such an id
            found = None
        task = find_task(found.func) if found is not None else None
        if found is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        return result_of(found, task, backend=self.alias)

    def _found(self, id: str) -> Found | None:
        """The task, from Redis or its row; it may leave the row between the two looks."""
        return default_bridge().get(id) or _unrelayed(id) or default_bridge().get(id)

    def check(self, **_: Any) -> Iterator[checks.CheckMessage]:
        """Check the entry in TASKS, and that listeners can find each Task."""
        place = f"TASKS[{self.alias!r}]"
        if not apps.is_installed(_APP):
            yield checks.Error(
                f"{place}: the app {_APP!r} is not installed",
                hint="Add it to INSTALLED_APPS.", id="expirebridge.E101",
            )  # fmt: skip
            return
        if self.options:
            yield checks.Error(
                f"{place}['OPTIONS']: the backend has no options",
                hint=f"Give settings in {SETTING}.", id="expirebridge.E102",
            )  # fmt: skip
        for queue in sorted(self.queues):
            try:
                check_tags([f"{QUEUE}{queue}"])
            except InvalidTask as error:
                yield checks.Error(f"{place}['QUEUES']: {error}", id="expirebridge.E103")
        yield from self._check_places()

    def _check_places(self) -> Iterator[checks.CheckMessage]:
        with suppress(HandlersError, InvalidSetting):  # another check reports them
            place = Settings.read().tasks
            for module in list(sys.modules.values()):
                for task in tasks_in(module) if isinstance(module, ModuleType) else ():
                    if task.backend == self.alias and (fault := _fault_of(task, place)):
                        yield checks.Warning(
                            f"{task.module_path} cannot be enqueued: {fault}",
                            id="expirebridge.W101",
                        )


def _fault_of(task: Task, place: HandlersPlace) -> str:
    try:
        name_of(function_of(task), place)
    except InvalidTask as error:
        return str(error)
    return ""


def _defined(task: Task) -> Task:
    """The Task as its module holds it. Raises Django's InvalidTask if listeners cannot find it."""
    module = sys.modules.get(task.func.__module__)
    held = None if module is None else vars(module).get(task.func.__name__)
    if not isinstance(held, Task) or held.func is not task.func:
        raise InvalidDjangoTask(
            f"{task.module_path} is no Task there: define it by @task above a function of a module"
        )
    if not is_ours(held):
        raise InvalidDjangoTask(
            f"{task.module_path} is a Task of another backend, {held.backend!r}, and listeners run "
            f"only Tasks of this one: define it by @task(backend={task.backend!r})"
        )
    return held


def _make(
    task: Task, function: AnyFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Found | LedgerTask:
    options: dict[str, Any] = {"kwargs": kwargs, "tags": queue_tags(task), **_when(task)}
    if task.priority > 0:
        options["urgent"] = True
    alias = ledger_alias()
    if alias is None:
        return make_task(function, args, **options)
    refuse_other_transactions(alias, "Enqueue it after the commit: transaction.on_commit")
    return ledger_in(alias).make_task(connections[alias], function, args, **options)


def _when(task: Task) -> dict[str, Any]:
    """The arguments of `make_task` for its `run_after`."""
    match task.run_after:
        case None:
            return {"delay": 0}
        case timedelta() as delay:
            return {"delay": delay}
        case moment:
            return {"at": moment if timezone.is_aware(moment) else timezone.make_aware(moment)}


def _unrelayed(id: str) -> Found | None:
    """A task whose row is in the ledger, and not in Redis yet; None if there is none."""
    alias = ledger_alias()
    row = None if alias is None else ledger_in(alias).get(connections[alias], id)
    if row is None or row.status is not Status.WAITING or row.created is None:
        return None
    return Found(
        id=id, func=row.func, args=row.args, kwargs=row.kwargs, key=b"", state=State.PENDING,
        due=row.due or row.created, created=row.created, tags=row.tags,
    )  # fmt: skip
