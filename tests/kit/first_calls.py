"""What an operation asks for, without a server: on one that would be asked, the database has one
partition.
"""

from typing import Any

from expirebridge.task.calls.call import Command, Known, KnownPartitions, Runnable, Steps
from expirebridge.task.partitions import PartitionLayout

ONE = KnownPartitions(PartitionLayout("expirebridge"))


def to_call(steps: Steps[Any], reply: Any = None) -> Command[Any]:
    """The next call to a server, after a reply to the one before."""
    step: Any = steps.send(reply)
    while isinstance(step, Known):
        step = steps.send(step.read(ONE))
    call: Command[Any] = step
    return call


def first_call(runnable: Runnable[Any]) -> Command[Any]:
    """The first call to a server."""
    return to_call(iter(runnable))
