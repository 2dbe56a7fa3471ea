"""The operations of a producer: each checks its arguments and becomes calls.

`Bridge` and `AsyncBridge` in `bridge.py` run these descriptions and add nothing of their own.
"""

from expirebridge.producer.base import PartitionOperations
from expirebridge.producer.changing import ChangingOperations
from expirebridge.producer.editing import EditingOperations
from expirebridge.producer.grouping import GroupOperations
from expirebridge.producer.holding import HoldingOperations
from expirebridge.producer.looking import LookingOperations
from expirebridge.producer.scheduling import SchedulingOperations

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
