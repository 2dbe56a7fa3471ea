"""The task whose handler is calling."""

from contextvars import ContextVar

from expirebridge.task import Task

running_task: ContextVar[Task] = ContextVar("expirebridge_running_task")
"""Set by the listener around each handler."""


def current_task() -> Task:
    """Return the task whose handler is calling. Raises LookupError outside of a handler."""
    try:
        return running_task.get()
    except LookupError:
        raise LookupError("current_task() is for handlers: no task is running here") from None
