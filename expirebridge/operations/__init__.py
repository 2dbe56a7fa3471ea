"""What producers can do, described once: each operation is checked here and becomes calls.

`Bridge` and `AsyncBridge` in `bridge.py` run these descriptions and add nothing of their own.
"""

from expirebridge.operations.changing import ChangingOperations
from expirebridge.operations.looking import LookingOperations
from expirebridge.operations.making import MakingOperations
from expirebridge.operations.partitioning import PartitionOperations
from expirebridge.operations.scheduling import SchedulingOperations

__all__ = ["Operations"]


class Operations(
    MakingOperations,
    LookingOperations,
    ChangingOperations,
    SchedulingOperations,
    PartitionOperations,
):
    """The operations of a producer, with the settings and hooks that they need."""
