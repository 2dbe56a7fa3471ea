"""What is said of a task that waits for a signal, whatever else it waits for."""

from dataclasses import replace

from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.explaining import clock, remaining
from expirebridge.task.reason import Reason
from expirebridge.task.task import UNCLAIMED


def remark(found: Circumstances, reason: Reason) -> Reason:
    """Say which function a signal runs: also of a due task, since its first claim decides."""
    task = found.task
    if task.on_signal is None or task.state not in UNCLAIMED:
        return reason
    if reason.code == "scheduled":
        until = f"{clock(task.due)} (in {remaining(task.due - found.now)})"
        text = f"waits for a signal until {until}: then {task.on_signal}, else {task.func}"
        return replace(reason, code="signal", text=text, remedy=f"expirebridge signal {task.id}")
    return replace(reason, text=f"{reason.text}; a signal before it starts runs {task.on_signal}")
