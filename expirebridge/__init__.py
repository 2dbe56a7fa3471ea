"""Tasks that run later: one plain Redis key with a TTL each, on time and never lost."""

from expirebridge.bridge import AsyncBridge, Bridge, make_task, make_tasks
from expirebridge.current import current_task
from expirebridge.errors import (
    EmbeddedServerError,
    ExpirebridgeError,
    FormatTooNew,
    HandlersError,
    InvalidSetting,
    InvalidTask,
    NotPermitted,
    ServerError,
    ServerOutOfMemory,
    ServerReadOnly,
    ServerUnreachable,
    ServerUnsuitable,
    TaskDiffers,
    TaskExists,
)
from expirebridge.handlers import handler
from expirebridge.hooks import hook, lifespan
from expirebridge.misfire import Spread
from expirebridge.retry import Discard, Exponential, Retry
from expirebridge.task import (
    Change,
    Counts,
    HistoryEntry,
    Listing,
    Outcome,
    State,
    Task,
)

__all__ = [
    "AsyncBridge",
    "Bridge",
    "Change",
    "Counts",
    "Discard",
    "EmbeddedServerError",
    "ExpirebridgeError",
    "Exponential",
    "FormatTooNew",
    "HandlersError",
    "HistoryEntry",
    "InvalidSetting",
    "InvalidTask",
    "Listing",
    "NotPermitted",
    "Outcome",
    "Retry",
    "ServerError",
    "ServerOutOfMemory",
    "ServerReadOnly",
    "ServerUnreachable",
    "ServerUnsuitable",
    "Spread",
    "State",
    "Task",
    "TaskDiffers",
    "TaskExists",
    "current_task",
    "handler",
    "hook",
    "lifespan",
    "make_task",
    "make_tasks",
]
