"""The operations of a producer: each checks its arguments and becomes calls.

`Bridge` and `AsyncBridge` in `bridge.py` run these descriptions and add nothing of their own.
"""

from expirebridge.groups.operations import GroupOperations
from expirebridge.series.operations import SchedulingOperations
from expirebridge.task.operations.base import PartitionOperations
from expirebridge.task.operations.changing import ChangingOperations
from expirebridge.task.operations.editing import EditingOperations
from expirebridge.task.operations.holding import HoldingOperations
from expirebridge.task.operations.looking import LookingOperations

__all__ = ["Operations"]


class Operations(
    GroupOperations,
    LookingOperations,
    ChangingOperations,
    EditingOperations,
    SchedulingOperations,
    HoldingOperations,
    PartitionOperations,
):
    """The operations of a producer, with the settings and hooks that they need."""
