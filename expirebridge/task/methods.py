"""The two colours of operations: methods that wait for the server, and methods that are awaited.

None has logic of its own: each runs the operation of the same name, which is described, documented
and typed once.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from expirebridge.store.partitions import Partitions, PartitionsByLoop
from expirebridge.task.calls.call import Runnable
from expirebridge.task.keywords import is_of_the_call, misnamed
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.operations.operations import TaskOperations
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

P = ParamSpec("P")
T = TypeVar("T")


class Methods:
    """Methods of a `Bridge`, which wait for the server."""

    _operations: OperationGroup
    """Has the operations of all methods."""
    _store: Partitions


class AsyncMethods:
    """Methods of an `AsyncBridge`, which are awaited."""

    _operations: OperationGroup
    _stores: PartitionsByLoop


def waits(
    operation: Callable[Concatenate[Any, P], Runnable[T]],
) -> Callable[Concatenate[Methods, P], T]:
    """Return the method that runs an operation, and waits for its result."""

    @_documented_by(operation)
    def method(self: Methods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            runnable = operation(self._operations, *args, **kwargs)
        except TypeError as error:
            raise misnamed_in(operation, error) from None
        if asyncio._get_running_loop() is not None:
            warn_of_waiting()
        return self._store.run(runnable)

    return method


def awaits(
    operation: Callable[Concatenate[Any, P], Runnable[T]],
) -> Callable[Concatenate[AsyncMethods, P], Coroutine[Any, Any, T]]:
    """Return the method that runs an operation, and is awaited."""

    @_documented_by(operation)
    async def method(self: AsyncMethods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            runnable = operation(self._operations, *args, **kwargs)
        except TypeError as error:
            raise misnamed_in(operation, error) from None
        return await self._stores.here().run(runnable)

    return method


@functools.cache
def warn_of_waiting() -> None:
    """Warn once that a `Bridge` blocks the event loop while it waits for the server."""
    logger.warning(
        "a Bridge, or make_task, was called inside of a running event loop, which stands still "
        "until the server answers: use AsyncBridge there (this is said once)",
        extra=event("loop waits"),
    )


def misnamed_in(operation: Callable[..., Any], error: TypeError) -> TypeError:
    """Return the error of a call that does not fit, with the right name of a foreign keyword."""
    return misnamed(error, operation, operation.__name__) if is_of_the_call(error) else error


def _documented_by(operation: Callable[..., Runnable[Any]]) -> Callable[[T], T]:
    """Give a method the name, text and parameters of its operation, and the result as its type."""

    def decorate(method: T) -> T:
        functools.update_wrapper(method, operation)  # type: ignore[arg-type]
        method.__signature__ = _signature_of(operation)  # type: ignore[attr-defined]
        return method

    return decorate


@functools.cache
def _signature_of(operation: Callable[..., Runnable[Any]]) -> inspect.Signature:
    """That of an operation, with what comes of it as the result."""
    signature = inspect.signature(operation)
    # Of Call[T], and of Steps[T]; the name of what is not loaded before it is needed.
    result = signature.return_annotation.__args__[-1]
    return signature.replace(return_annotation=getattr(result, "__forward_arg__", result))


class TaskMethods(Methods):
    """Make, find and change tasks, and wait for the server."""

    make_task = waits(TaskOperations.make_task)
    make_tasks = waits(TaskOperations.make_tasks)
    watch = waits(TaskOperations.watch)
    beat = waits(TaskOperations.beat)
    get = waits(TaskOperations.get)
    why = waits(TaskOperations.why)
    why_absent = waits(TaskOperations.why_absent)
    list = waits(TaskOperations.list)
    count = waits(TaskOperations.count)
    cancel = waits(TaskOperations.cancel)
    cancel_all = waits(TaskOperations.cancel_all)
    cancel_func = waits(TaskOperations.cancel_func)
    cancel_tag = waits(TaskOperations.cancel_tag)
    reschedule = waits(TaskOperations.reschedule)
    put_off = waits(TaskOperations.put_off)
    put_off_all = waits(TaskOperations.put_off_all)
    put_off_tag = waits(TaskOperations.put_off_tag)
    pause = waits(TaskOperations.pause)
    pause_all = waits(TaskOperations.pause_all)
    pause_tag = waits(TaskOperations.pause_tag)
    resume = waits(TaskOperations.resume)
    resume_all = waits(TaskOperations.resume_all)
    resume_tag = waits(TaskOperations.resume_tag)
    run_now = waits(TaskOperations.run_now)
    edit = waits(TaskOperations.edit)
    find_failed = waits(TaskOperations.find_failed)
    retry_failed = waits(TaskOperations.retry_failed)
    purge_failed = waits(TaskOperations.purge_failed)
    create_partitions = waits(TaskOperations.create_partitions)
    count_partitions = waits(TaskOperations.count_partitions)
    list_partitions = waits(TaskOperations.list_partitions)
    key_of = waits(TaskOperations.key_of)


class AsyncTaskMethods(AsyncMethods):
    """The same, awaited."""

    make_task = awaits(TaskOperations.make_task)
    make_tasks = awaits(TaskOperations.make_tasks)
    watch = awaits(TaskOperations.watch)
    beat = awaits(TaskOperations.beat)
    get = awaits(TaskOperations.get)
    why = awaits(TaskOperations.why)
    why_absent = awaits(TaskOperations.why_absent)
    list = awaits(TaskOperations.list)
    count = awaits(TaskOperations.count)
    cancel = awaits(TaskOperations.cancel)
    cancel_all = awaits(TaskOperations.cancel_all)
    cancel_func = awaits(TaskOperations.cancel_func)
    cancel_tag = awaits(TaskOperations.cancel_tag)
    reschedule = awaits(TaskOperations.reschedule)
    put_off = awaits(TaskOperations.put_off)
    put_off_all = awaits(TaskOperations.put_off_all)
    put_off_tag = awaits(TaskOperations.put_off_tag)
    pause = awaits(TaskOperations.pause)
    pause_all = awaits(TaskOperations.pause_all)
    pause_tag = awaits(TaskOperations.pause_tag)
    resume = awaits(TaskOperations.resume)
    resume_all = awaits(TaskOperations.resume_all)
    resume_tag = awaits(TaskOperations.resume_tag)
    run_now = awaits(TaskOperations.run_now)
    edit = awaits(TaskOperations.edit)
    find_failed = awaits(TaskOperations.find_failed)
    retry_failed = awaits(TaskOperations.retry_failed)
    purge_failed = awaits(TaskOperations.purge_failed)
    create_partitions = awaits(TaskOperations.create_partitions)
    count_partitions = awaits(TaskOperations.count_partitions)
    list_partitions = awaits(TaskOperations.list_partitions)
    key_of = awaits(TaskOperations.key_of)
