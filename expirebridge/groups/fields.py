"""What people see of a group, and of a task that belongs to one."""

from collections.abc import Sequence

from expirebridge.groups import calls
from expirebridge.task.calls.call import Steps
from expirebridge.task.fields import FieldValue, Format, Reference, ShownField
from expirebridge.task.keys import group_of
from expirebridge.task.task import Task

FIELDS = (
    ShownField("name", text="group"),
    ShownField("state", Format.STATE, "State", 10),
    ShownField("progress", Format.PROGRESS, "Members that have ended", 20, text="members"),
    ShownField("succeeded", Format.NUMBER, "Succeeded", 30),
    ShownField("failed", Format.NUMBER, "Failed", 40, text=""),  # `progress` has it
    ShownField("cancelled", Format.NUMBER, "Cancelled", 50),
    ShownField("on_failed", Format.TEXT, "If a member fails", 60, text="on failed"),
    ShownField("failed_at", Format.MOMENT, text="last failed"),
    ShownField("then", Format.TASK, "Follow-up", 70, text="follow-up"),
    ShownField("created", Format.MOMENT, "Made", 80),
    ShownField("stopped", Format.MOMENT, "Cancelled since", 90, rare=True),
    ShownField("ended", Format.MOMENT, "Ended", 100),
)


def of_task(task: Task) -> Steps[Sequence[FieldValue]]:
    """Of a member or a follow-up: its group, and how far that is."""
    name = group_of(task.id)
    group = (yield from calls.get_group(name)) if name is not None else None
    if group is None:
        return []
    label = "Follow-up of group" if group.then == task.id else "Group"
    remark = f"{group.state}, {group.progress}"
    reference = Reference(name=group.name, page="groups", key="name", remark=remark)
    return [(ShownField("group", Format.REFERENCE, label, 100), reference)]
