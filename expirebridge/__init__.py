"""Tasks that run later: one plain Redis key with a TTL each, on time and never lost.

The names are imported when they are used: the pytest plugin in this package is loaded by each run
of pytest, and is to cost it nothing.
"""

from typing import TYPE_CHECKING

from expirebridge.model.lazy_imports import names_of

if TYPE_CHECKING:
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
    from expirebridge.handlers import Call, Then, every, handler
    from expirebridge.hooks import hook, lifespan
    from expirebridge.listener.listener import Listener
    from expirebridge.model.answers import Counts, LeftOut, LimitListing, Listing, Moving
    from expirebridge.model.codec import Codec
    from expirebridge.model.group import Group, GroupListing, GroupState
    from expirebridge.model.history import HistoryEntry
    from expirebridge.model.hold import Hold
    from expirebridge.model.lanes import DeclaredLimit, Lane, QueuePlace
    from expirebridge.model.lateness import LateCause, Lateness
    from expirebridge.model.limits import Limit, Rate
    from expirebridge.model.policies import Busy, Discard, Exponential, Retry, Snooze, Spread
    from expirebridge.model.reason import Reason
    from expirebridge.model.task import Change, Outcome, State, Task, current_task
    from expirebridge.observe.logs import log_event
    from expirebridge.producer.bridge import AsyncBridge, Bridge, make_task, make_tasks
    from expirebridge.series.state import Series, SeriesListing, SeriesOutcome
    from expirebridge.settings import Settings

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
    "AsyncBridge": "producer.bridge",
    "Bridge": "producer.bridge",
    "Busy": "model.policies",
    "Call": "handlers",
    "Change": "model.task",
    "Codec": "model.codec",
    "Counts": "model.answers",
    "DeclaredLimit": "model.lanes",
    "Discard": "model.policies",
    "EmbeddedServerError": "errors",
    "ExpirebridgeError": "errors",
    "Exponential": "model.policies",
    "FormatTooNew": "errors",
    "Group": "model.group",
    "GroupClosed": "errors",
    "GroupDiffers": "errors",
    "GroupError": "errors",
    "GroupIncomplete": "errors",
    "GroupListing": "model.group",
    "GroupNotFound": "errors",
    "GroupState": "model.group",
    "HandlersError": "errors",
    "HistoryEntry": "model.history",
    "Hold": "model.hold",
    "InvalidSetting": "errors",
    "InvalidTask": "errors",
    "Lane": "model.lanes",
    "LateCause": "model.lateness",
    "Lateness": "model.lateness",
    "Listener": "listener.listener",
    "ListenerStuck": "errors",
    "LeftOut": "model.answers",
    "Limit": "model.limits",
    "LimitListing": "model.answers",
    "LimitsNeedOnePartition": "errors",
    "Listing": "model.answers",
    "Moving": "model.answers",
    "NotPermitted": "errors",
    "PartitionsDiffer": "errors",
    "PartlyDone": "errors",
    "Outcome": "model.task",
    "QueuePlace": "model.lanes",
    "Rate": "model.limits",
    "Reason": "model.reason",
    "Retry": "model.policies",
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
    "Snooze": "model.policies",
    "Spread": "model.policies",
    "State": "model.task",
    "Task": "model.task",
    "TaskDiffers": "errors",
    "TaskExists": "errors",
    "Then": "handlers",
    "current_task": "model.task",
    "every": "handlers",
    "handler": "handlers",
    "hook": "hooks",
    "lifespan": "hooks",
    "log_event": "observe.logs",
    "make_task": "producer.bridge",
    "make_tasks": "producer.bridge",
}
"""Where each name is."""


if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _MODULES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
