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
    from expirebridge.handlers import Call, Then
    from expirebridge.hooks import hook, lifespan
    from expirebridge.limits.hold import Hold
    from expirebridge.limits.lanes import Lane, SetNumber
    from expirebridge.limits.values import Budget, Limit, LimitListing, Rate
    from expirebridge.listener.listener import Listener
    from expirebridge.marking import handler
    from expirebridge.observe.logs import log_event
    from expirebridge.series.declaration import every
    from expirebridge.series.values import Series, SeriesListing, SeriesOutcome
    from expirebridge.settings import Settings
    from expirebridge.task.codec import Codec
    from expirebridge.task.history import HistoryEntry
    from expirebridge.task.lateness import LateCause, Lateness
    from expirebridge.task.listings import Counts, LeftOut, Listing, Moving
    from expirebridge.task.policies import Busy, Discard, Exponential, Retry, Snooze, Spread
    from expirebridge.task.queue_place import DeclaredLimit, QueuePlace
    from expirebridge.task.reason import Reason
    from expirebridge.task.signal import Signal
    from expirebridge.task.task import Change, Outcome, State, Task, current_task

__all__ = [
    "AsyncBridge",
    "Bridge",
    "Budget",
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
    "SetNumber",
    "Settings",
    "Signal",
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

_NAMES = {
    "bridge": "AsyncBridge Bridge make_task make_tasks",
    "errors": (
        "EmbeddedServerError ExpirebridgeError FormatTooNew GroupClosed GroupDiffers GroupError "
        "GroupIncomplete GroupNotFound HandlersError InvalidSetting InvalidTask "
        "LimitsNeedOnePartition ListenerStuck NotPermitted PartitionsDiffer PartlyDone "
        "SeriesDeclared ServerError ServerOutOfMemory ServerReadOnly ServerUnreachable "
        "ServerUnsuitable SlotMoving SlotUnserved TaskDiffers TaskExists"
    ),
    "groups.values": "Group GroupListing GroupState",
    "handlers": "Call Then",
    "hooks": "hook lifespan",
    "limits.hold": "Hold",
    "limits.lanes": "Lane SetNumber",
    "limits.values": "Budget Limit LimitListing Rate",
    "listener.listener": "Listener",
    "marking": "handler",
    "observe.logs": "log_event",
    "series.declaration": "every",
    "series.values": "Series SeriesListing SeriesOutcome",
    "settings": "Settings",
    "task.codec": "Codec",
    "task.history": "HistoryEntry",
    "task.lateness": "LateCause Lateness",
    "task.listings": "Counts LeftOut Listing Moving",
    "task.policies": "Busy Discard Exponential Retry Snooze Spread",
    "task.queue_place": "DeclaredLimit QueuePlace",
    "task.reason": "Reason",
    "task.signal": "Signal",
    "task.task": "Change Outcome State Task current_task",
}
"""The names of each module."""


if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _NAMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
