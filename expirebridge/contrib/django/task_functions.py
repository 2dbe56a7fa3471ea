"""Runs Django's Tasks on listeners: finds them, calls their functions, and sends their signals."""

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Final

import orjson
from asgiref.sync import sync_to_async
from django.core.signals import setting_changed
from django.utils import timezone

from expirebridge.bridge import default_bridge
from expirebridge.contrib.django.database_connections import surround
from expirebridge.contrib.django.settings import SETTING
from expirebridge.contrib.django.task_results import AttemptFailed, amend, error_of, note, result_of
from expirebridge.contrib.django.tasks_api import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from expirebridge.errors import ServerError
from expirebridge.handlers.call_signature import call_signature
from expirebridge.handlers.definition import Handler, with_retry
from expirebridge.handlers.registry import modules_at
from expirebridge.hooks import End, Ended, Event, Lapsed
from expirebridge.settings import Settings
from expirebridge.task.framework import AnyFunction
from expirebridge.task.policies import Busy, Delays, Discard, Retry, RetryPolicy, Snooze
from expirebridge.task.task import Task as Found
from expirebridge.task.task import current_task

logger = logging.getLogger("expirebridge")

_ANSWERS: Final = (Retry, Snooze, Busy, Discard, asyncio.CancelledError, KeyboardInterrupt)
"""Exceptions that say by themselves what follows, or were raised into the Task."""

_ONE_ATTEMPT: Final = Delays(())


@functools.cache
def function_of(task: Task) -> AnyFunction:
    """The function that a listener calls for a Task, with the options of `@handler`, if it has any.

    Without the option `retry` it is attempted once: Django knows no retries.
    """
    make = _async_function if inspect.iscoroutinefunction(task.func) else _plain_function
    function: AnyFunction = functools.wraps(task.func)(make(task))
    signature = call_signature(task.func).signature
    others = list(signature.parameters.values())[task.takes_context :]
    function.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    with_retry(function, _ONE_ATTEMPT)
    return function


def retry_policy_of(task: Task) -> RetryPolicy:
    """How often a Task is attempted, unless the one that is run says otherwise."""
    return with_retry(function_of(task), _ONE_ATTEMPT)


def is_reported(task: Task, error: BaseException, attempt: int) -> bool:
    """True if the Task's function has sent `task_finished` after this error."""
    is_answer = isinstance(error, _ANSWERS)
    return not is_answer and retry_policy_of(task).delay(attempt) is None


def _plain_function(task: Task) -> AnyFunction:
    def call(*args: Any, **kwargs: Any) -> Any:
        found = current_task()
        if _was_attempted(found):
            found = _with_history(found)
        result = _begun(task, found)
        task_started.send_robust(_sender(task), task_result=result)
        try:
            value = _kept(task.func(*_arguments(task, result, args), **kwargs))
        except BaseException as error:
            if _fail(task, result, error):
                task_finished.send_robust(_sender(task), task_result=result)
            _note(error)
            raise
        _succeed(result, value)
        task_finished.send_robust(_sender(task), task_result=result)
        return value

    return call


def _async_function(task: Task) -> AnyFunction:
    async def call(*args: Any, **kwargs: Any) -> Any:
        found = current_task()
        if _was_attempted(found):
            found = await sync_to_async(_with_history)(found)
        result = _begun(task, found)
        await task_started.asend_robust(_sender(task), task_result=result)
        try:
            value = _kept(await task.func(*_arguments(task, result, args), **kwargs))
        except BaseException as error:
            if _fail(task, result, error):
                await task_finished.asend_robust(_sender(task), task_result=result)
            _note(error)
            raise
        _succeed(result, value)
        await task_finished.asend_robust(_sender(task), task_result=result)
        return value

    return call


def _sender(task: Task) -> type:
    return type(task.get_backend())


def _arguments(task: Task, result: TaskResult, args: Sequence[Any]) -> Sequence[Any]:
    return (TaskContext(task_result=result), *args) if task.takes_context else args


def _was_attempted(found: Found) -> bool:
    return found.attempt > 1 or found.lapses > 0


def _with_history(found: Found) -> Found:
    """A task with what its former attempts left in Redis; as it is, if Redis does not answer."""
    with contextlib.suppress(ServerError):
        if read := default_bridge().get(found.id):
            return replace(read, args=found.args, kwargs=found.kwargs)
    return found


def _begun(task: Task, found: Found) -> TaskResult:
    """The result of the attempt that begins."""
    result = result_of(found, task)
    now = timezone.now()
    amend(
        result,
        status=TaskResultStatus.RUNNING,
        started_at=result.started_at or now,
        last_attempted_at=result.last_attempted_at or now,
    )
    return result


def _kept(value: Any) -> Any:
    """What a Task returned, as JSON has it.

    Raises TypeError for what JSON cannot hold, and ValueError for what is not kept.
    """
    from expirebridge.listener.execution.outcome import (  # noqa: PLC0415 - not in producers
        MAX_RESULT,
    )

    plain = normalize_json(value)
    encoded = orjson.dumps(plain)
    if len(encoded) > MAX_RESULT:
        raise ValueError(
            f"it returned {len(encoded):,} bytes of JSON, and results of at most {MAX_RESULT:,} "
            "are kept: save it in your database, and return its id"
        )
    if orjson.loads(encoded) != plain:
        raise ValueError("it returned a number that JSON cannot hold, such as NaN")
    return plain


def _fail(task: Task, result: TaskResult, error: BaseException) -> bool:
    """Make the result that of a Task that failed; False if this error is not its end."""
    if not is_reported(task, error, current_task().attempt):
        return False
    result.errors.append(error_of(error))
    amend(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    return True


def _note(error: BaseException) -> None:
    if not isinstance(error, _ANSWERS):
        note(error, current_task().listener or "")


def _succeed(result: TaskResult, value: Any) -> None:
    amend(
        result,
        status=TaskResultStatus.SUCCESSFUL,
        finished_at=timezone.now(),
        _return_value=value,
    )


# Tasks by the names that Redis has for them. A name is looked up among those of the handlers'
# modules; nothing is imported because Redis names it.


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


setting_changed.connect(_forget, dispatch_uid="expirebridge.task_functions")


# A timeout, the end of a process, too many lapses and arguments that do not fit end a Task without
# its function, which sends the signal `task_finished` otherwise.


def hear(event: Event) -> None:
    """Send the signal, in a thread, if a Task failed and its function has not sent it."""
    match event:
        case Ended(end=End.FAILED, task=ours, error=error):
            task = find_task(ours.func)
            if task is None or (error is not None and is_reported(task, error, ours.attempt)):
                return
            id = ours.id
        case Lapsed(failed=True):
            id = event.id
        case _:
            return
    send = surround(partial(_send, id), is_async=False)
    asyncio.get_running_loop().run_in_executor(None, send)


def _send(id: str) -> None:
    try:
        found = default_bridge().get(id)
        task = find_task(found.func) if found is not None else None
        if found is None or task is None:
            return
        result = result_of(found, task)
        try:
            raise AttemptFailed(found.error or found.state)  # noqa: TRY301
        except AttemptFailed:  # Django's own receiver logs it
            task_finished.send_robust(type(task.get_backend()), task_result=result)
    except Exception:
        logger.exception("task_finished of %s was not sent", id)
