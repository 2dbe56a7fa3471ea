"""What people see of the signal that decided a task."""

from collections.abc import Sequence

from expirebridge.task.calls.call import Steps
from expirebridge.task.fields import FieldValue, Format, ShownField, values_of
from expirebridge.task.task import Task

FIELDS = (
    ShownField("payload", Format.JSON, "Signal", 91, text="signal"),
    ShownField("by", Format.TEXT, "Signalled by", 92, rare=True, text="signalled by"),
    ShownField("at", Format.MOMENT, "Signalled", 93, text="signalled"),
    ShownField("instead_of", Format.FUNC, "Instead of", 94, text="instead of"),
)


def of_task(task: Task) -> Steps[Sequence[FieldValue]]:
    """Of a task that was signalled: what the signal said, and instead of which function it runs."""
    yield from ()
    return values_of(task.signal, FIELDS) if task.signal is not None else []
