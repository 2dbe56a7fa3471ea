"""The operations of the spine: each checks its arguments and becomes calls.

The methods of the bridges run these descriptions, and add nothing of their own.
"""

from expirebridge.task.operations.base import PartitionOperations
from expirebridge.task.operations.changing import ChangingOperations
from expirebridge.task.operations.editing import EditingOperations
from expirebridge.task.operations.looking import LookingOperations
from expirebridge.task.operations.making import MakingOperations


class TaskOperations(
    MakingOperations,
    LookingOperations,
    ChangingOperations,
    EditingOperations,
    PartitionOperations,
):
    """The operations on tasks and partitions."""
