"""Tasks that run later: one plain Redis key with a TTL each, on time and never lost.

The names are imported when they are used: the pytest plugin in this package is loaded by each run
of pytest, and is to cost it nothing.
"""

from typing import TYPE_CHECKING

from expirebridge.task.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.bridge import AsyncBridge, Bridge, make_task, make_tasks
    from expirebridge.errors import (
        EmbeddedServerError,
        ExpirebridgeError,
        FormatTooNew,
        GroupClosed,
        GroupDiffers,
        GroupError,
        GroupIncomplete,
        GroupNotFound,
        HandlersError,
        InvalidSetting,
        InvalidTask,
        LimitsNeedOnePartition,
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
    from expirebridge.groups.values import Group, GroupListing, GroupState
    from expirebridge.handlers import Call, Then, handler
    from expirebridge.hooks import hook, lifespan
    from expirebridge.limits.lanes import DeclaredLimit, Lane, QueuePlace
    from expirebridge.limits.values import Limit, Rate
    from expirebridge.listener.listener import Listener
    from expirebridge.observe.logs import log_event
    from expirebridge.series.declaration import every
    from expirebridge.series.values import Series, SeriesListing, SeriesOutcome
    from expirebridge.settings import Settings
    from expirebridge.task.answers import Counts, LeftOut, LimitListing, Listing, Moving
    from expirebridge.task.codec import Codec
    from expirebridge.task.history import HistoryEntry
    from expirebridge.task.hold import Hold
    from expirebridge.task.lateness import LateCause, Lateness
    from expirebridge.task.policies import Busy, Discard, Exponential, Retry, Snooze, Spread
    from expirebridge.task.reason import Reason
    from expirebridge.task.task import Change, Outcome, State, Task, current_task

__all__ = [
    "AsyncBridge",
    "Bridge",
    "Busy",
    "Call",
    "Change",
    "Codec",
    "Counts",
    "DeclaredLimit",
    "Discard",
    "EmbeddedServerError",
    "ExpirebridgeError",
    "Exponential",
    "FormatTooNew",
    "Group",
    "GroupClosed",
    "GroupDiffers",
    "GroupError",
    "GroupIncomplete",
    "GroupListing",
    "GroupNotFound",
    "GroupState",
    "HandlersError",
    "HistoryEntry",
    "Hold",
    "InvalidSetting",
    "InvalidTask",
    "Lane",
    "LateCause",
    "Lateness",
    "LeftOut",
    "Limit",
    "LimitListing",
    "LimitsNeedOnePartition",
    "Listener",
    "ListenerStuck",
    "Listing",
    "Moving",
    "NotPermitted",
    "Outcome",
    "PartitionsDiffer",
    "PartlyDone",
    "QueuePlace",
    "Rate",
    "Reason",
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
    "Then",
    "current_task",
    "every",
    "handler",
    "hook",
    "lifespan",
    "log_event",
    "make_task",
    "make_tasks",
]

_MODULES = {
    "AsyncBridge": "bridge",
    "Bridge": "bridge",
    "Busy": "task.policies",
    "Call": "handlers",
    "Change": "task.task",
    "Codec": "task.codec",
    "Counts": "task.answers",
    "DeclaredLimit": "limits.lanes",
    "Discard": "task.policies",
    "EmbeddedServerError": "errors",
    "ExpirebridgeError": "errors",
    "Exponential": "task.policies",
    "FormatTooNew": "errors",
    "Group": "groups.values",
    "GroupClosed": "errors",
    "GroupDiffers": "errors",
    "GroupError": "errors",
    "GroupIncomplete": "errors",
    "GroupListing": "groups.values",
    "GroupNotFound": "errors",
    "GroupState": "groups.values",
    "HandlersError": "errors",
    "HistoryEntry": "task.history",
    "Hold": "task.hold",
    "InvalidSetting": "errors",
    "InvalidTask": "errors",
    "Lane": "limits.lanes",
    "LateCause": "task.lateness",
    "Lateness": "task.lateness",
    "Listener": "listener.listener",
    "ListenerStuck": "errors",
    "LeftOut": "task.answers",
    "Limit": "limits.values",
    "LimitListing": "task.answers",
    "LimitsNeedOnePartition": "errors",
    "Listing": "task.answers",
    "Moving": "task.answers",
    "NotPermitted": "errors",
    "PartitionsDiffer": "errors",
    "PartlyDone": "errors",
    "Outcome": "task.task",
    "QueuePlace": "limits.lanes",
    "Rate": "limits.values",
    "Reason": "task.reason",
    "Retry": "task.policies",
    "Series": "series.values",
    "SeriesDeclared": "errors",
    "SeriesListing": "series.values",
    "SeriesOutcome": "series.values",
    "ServerError": "errors",
    "ServerOutOfMemory": "errors",
    "ServerReadOnly": "errors",
    "ServerUnreachable": "errors",
    "ServerUnsuitable": "errors",
    "Settings": "settings",
    "SlotMoving": "errors",
    "SlotUnserved": "errors",
    "Snooze": "task.policies",
    "Spread": "task.policies",
    "State": "task.task",
    "Task": "task.task",
    "TaskDiffers": "errors",
    "TaskExists": "errors",
    "Then": "handlers",
    "current_task": "task.task",
    "every": "series.declaration",
    "handler": "handlers",
    "hook": "hooks",
    "lifespan": "hooks",
    "log_event": "observe.logs",
    "make_task": "bridge",
    "make_tasks": "bridge",
}
"""Where each name is."""


if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _MODULES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
