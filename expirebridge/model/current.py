"""The task of the handler that is running."""

from contextvars import ContextVar

from expirebridge.model.task import Task

running_task: ContextVar[Task] = ContextVar("expirebridge_running_task")
"""The listener sets it around each handler."""


def current_task() -> Task:
    """Return the task of the calling handler. Raises LookupError outside of a handler."""
    try:
        return running_task.get()
    except LookupError:
        raise LookupError(
            "current_task() works only in a handler, while a listener calls it: no task is running "
            "here. In a test, call the handler by expirebridge.testing.run_handler"
        ) from None
