"""Tasks that run later: one plain Redis key with a TTL each, on time and never lost."""

from expirebridge.bridge import AsyncBridge, Bridge, make_task, make_tasks
from expirebridge.errors import (
    EmbeddedServerError,
    ExpirebridgeError,
    FormatTooNew,
    HandlersError,
    InvalidSetting,
    InvalidTask,
    ServerError,
    ServerOutOfMemory,
    ServerReadOnly,
    ServerUnreachable,
    ServerUnsuitable,
    TaskExists,
)
from expirebridge.handlers import handler
from expirebridge.listener.attempt import current_task
from expirebridge.retry import Discard, Exponential, Retry
from expirebridge.task import (
    Cancelled,
    Counts,
    Listing,
    Outcome,
    Rescheduled,
    State,
    Task,
)

__all__ = [
    "AsyncBridge",
    "Bridge",
    "Cancelled",
    "Counts",
    "Discard",
    "EmbeddedServerError",
    "ExpirebridgeError",
    "Exponential",
    "FormatTooNew",
    "HandlersError",
    "InvalidSetting",
    "InvalidTask",
    "Listing",
    "Outcome",
    "Rescheduled",
    "Retry",
    "ServerError",
    "ServerOutOfMemory",
    "ServerReadOnly",
    "ServerUnreachable",
    "ServerUnsuitable",
    "State",
    "Task",
    "TaskExists",
    "current_task",
    "handler",
    "make_task",
    "make_tasks",
]
