"""Tasks that run later: one plain Redis key with a TTL each, on time and never lost.

The names are imported when they are used: the pytest plugin in this package is loaded by each run
of pytest, and is to cost it nothing.
"""

from typing import TYPE_CHECKING

from expirebridge.on_demand import names_of

if TYPE_CHECKING:
    from expirebridge.bridge import AsyncBridge, Bridge, make_task, make_tasks
    from expirebridge.current import current_task
    from expirebridge.errors import (
        EmbeddedServerError,
        ExpirebridgeError,
        FormatTooNew,
        HandlersError,
        InvalidSetting,
        InvalidTask,
        ListenerStuck,
        NotPermitted,
        PartitionsDiffer,
        PartlyDone,
        SeriesDeclared,
        ServerError,
        ServerOutOfMemory,
        ServerReadOnly,
        ServerUnreachable,
        ServerUnsuitable,
        SlotMoving,
        SlotUnserved,
        TaskDiffers,
        TaskExists,
    )
    from expirebridge.handlers import Call, every, handler
    from expirebridge.hooks import hook, lifespan
    from expirebridge.listener.listener import Listener
    from expirebridge.misfire import Spread
    from expirebridge.retry import Discard, Exponential, Retry, Snooze
    from expirebridge.series.state import Series, SeriesListing, SeriesOutcome
    from expirebridge.settings import Settings
    from expirebridge.task import (
        Change,
        Counts,
        HistoryEntry,
        LeftOut,
        Listing,
        Moving,
        Outcome,
        State,
        Task,
    )

__all__ = [
    "AsyncBridge",
    "Bridge",
    "Call",
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
    "LeftOut",
    "Listener",
    "ListenerStuck",
    "Listing",
    "Moving",
    "NotPermitted",
    "Outcome",
    "PartitionsDiffer",
    "PartlyDone",
    "Retry",
    "Series",
    "SeriesDeclared",
    "SeriesListing",
    "SeriesOutcome",
    "ServerError",
    "ServerOutOfMemory",
    "ServerReadOnly",
    "ServerUnreachable",
    "ServerUnsuitable",
    "Settings",
    "SlotMoving",
    "SlotUnserved",
    "Snooze",
    "Spread",
    "State",
    "Task",
    "TaskDiffers",
    "TaskExists",
    "current_task",
    "every",
    "handler",
    "hook",
    "lifespan",
    "make_task",
    "make_tasks",
]

_MODULES = {
    "AsyncBridge": "bridge",
    "Bridge": "bridge",
    "Call": "handlers",
    "Change": "task",
    "Counts": "task",
    "Discard": "retry",
    "EmbeddedServerError": "errors",
    "ExpirebridgeError": "errors",
    "Exponential": "retry",
    "FormatTooNew": "errors",
    "HandlersError": "errors",
    "HistoryEntry": "task",
    "InvalidSetting": "errors",
    "InvalidTask": "errors",
    "Listener": "listener.listener",
    "ListenerStuck": "errors",
    "LeftOut": "task",
    "Listing": "task",
    "Moving": "task",
    "NotPermitted": "errors",
    "PartitionsDiffer": "errors",
    "PartlyDone": "errors",
    "Outcome": "task",
    "Retry": "retry",
    "Series": "series.state",
    "SeriesDeclared": "errors",
    "SeriesListing": "series.state",
    "SeriesOutcome": "series.state",
    "ServerError": "errors",
    "ServerOutOfMemory": "errors",
    "ServerReadOnly": "errors",
    "ServerUnreachable": "errors",
    "ServerUnsuitable": "errors",
    "Settings": "settings",
    "SlotMoving": "errors",
    "SlotUnserved": "errors",
    "Snooze": "retry",
    "Spread": "misfire",
    "State": "task",
    "Task": "task",
    "TaskDiffers": "errors",
    "TaskExists": "errors",
    "current_task": "current",
    "every": "handlers",
    "handler": "handlers",
    "hook": "hooks",
    "lifespan": "hooks",
    "make_task": "bridge",
    "make_tasks": "bridge",
}
"""Where each name is."""


if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _MODULES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
