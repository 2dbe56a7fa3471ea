"""What people see of a series, and of a task that is one of its ticks."""

from collections.abc import Sequence

from expirebridge.task.calls.call import Steps
from expirebridge.task.fields import FieldValue, Format, Reference, ShownField
from expirebridge.task.task import Task

FIELDS = (
    ShownField("id"),
    ShownField("schedule", label="Schedule", order=10),
    ShownField("func", Format.FUNC, "Function", 20),
    ShownField("args", Format.JSON),
    ShownField("tags", Format.TAGS, "Tags", 130),
    ShownField("ledger", text="in"),
    ShownField("declared", label="Declared", order=40),
    ShownField("standing", label="Standing", order=30),
    ShownField("paused", Format.MOMENT, "Paused", 110),
    ShownField("created", Format.MOMENT, "Made", 100),
    ShownField("next", Format.MOMENT),
    ShownField("due", Format.MOMENT, "Next task", 50),
    ShownField("last_id", label="Last task", order=60, text="last"),
    ShownField("began", Format.MOMENT),
    ShownField("late", Format.DURATION, "It began late by", 80),
    ShownField("ended", Format.MOMENT, "It ended", 70),
    ShownField("succeeded", Format.MOMENT, "Last success", 90),
    ShownField("missed", label="Not run", order=120),
    ShownField("overlapped"),
)


def series_of_tick(task: Task) -> str | None:
    """The id of the series that made a task; None if none did."""
    return None if task.tick is None else task.id.rpartition("@")[0] or None


def of_task(task: Task) -> Steps[Sequence[FieldValue]]:
    """Of a tick: its series."""
    yield from ()
    series = series_of_tick(task)
    if series is None:
        return []
    reference = Reference(name=series, page="series", key="id", remark="tick", at=task.tick)
    # The command's text has the tick alone.
    return [(ShownField("series", Format.REFERENCE, "Series", 90, text=""), reference)]
