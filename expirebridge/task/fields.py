"""What people see of a task: each field once, for all that show it.

The command's text, the dashboard and Django's admin write a field in its format, but for those
few that one of them writes in a way of its own. JSON has all attributes, by their names.
A capability describes its own values in its module `fields`, which also knows what to add to a
task.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, cast

from expirebridge.capabilities import given
from expirebridge.task.calls.call import Steps
from expirebridge.task.task import Task


class Format(StrEnum):
    """How a field is written."""

    TEXT = "text"
    LINES = "lines"  # a long text
    STATE = "state"
    FUNC = "func"  # the name of a handler
    NUMBER = "number"  # 0 is shown, too
    PROGRESS = "progress"
    MOMENT = "moment"
    DURATION = "duration"
    LIST = "list"
    TAGS = "tags"
    JSON = "json"
    BYTES = "bytes"
    TASK = "task"  # the id of one
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class ShownField:
    """A field of a value, as people see it."""

    name: str
    """The attribute."""
    format: Format = Format.TEXT
    label: str = ""
    """Its label on a page."""
    order: int = 0
    """Where it stands on a page, the least first. 0: it is on none."""
    rare: bool = False
    """True if a page leaves it out where it is empty."""
    text: str | None = None
    """Its name in the command's text. None: that of the attribute; empty: it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A value that has a page of its own on the dashboard, `/<page>?<key>=<name>`."""

    name: str
    page: str
    key: str
    remark: str = ""
    at: datetime | None = None
    """A time that belongs to the remark."""

    def __str__(self) -> str:
        return f"{self.name}: {self.remark}"


FieldValue = tuple[ShownField, Any]
"""A field, and its value."""


class GivesFields(Protocol):
    """The module `fields` of a capability."""

    def of_task(self, task: Task) -> Steps[Sequence[FieldValue]]:
        """Read what the capability adds to a task."""


FIELDS = (
    ShownField("id"),
    ShownField("state", Format.STATE, "State", 10),
    ShownField("queued"),
    ShownField("func", Format.FUNC, "Function", 20),
    ShownField("on_signal", Format.FUNC, "On a signal", 25, rare=True, text="on signal"),
    ShownField("args", Format.JSON, "Arguments", 30),
    ShownField("due", Format.MOMENT, "Due", 40),
    ShownField("tick", Format.MOMENT),
    ShownField("created", Format.MOMENT, "Made", 50),
    ShownField("attempt", label="Attempts", order=60),
    ShownField("snoozes"),
    ShownField("lapses"),
    ShownField("tags", Format.TAGS, "Tags", 140),
    ShownField("urgent", label="Urgent", order=65, rare=True),
    ShownField("started", Format.MOMENT, "Last start", 70),
    ShownField("late"),
    ShownField("ended", Format.MOMENT, "Ended", 80),
    ShownField("result", Format.JSON, "Result", 150, rare=True),
    ShownField("error", Format.LINES, "Error", 160, rare=True),
    ShownField("in_clear", Format.LIST, "In clear", 130, rare=True, text="in clear"),
    ShownField("key", Format.BYTES),
    ShownField("outcome"),
    ShownField("after", Format.TASK, "Follows", 110, rare=True),
    ShownField("then", Format.TASK, "Follow-up", 120, rare=True),
)
"""In the order of the command's text, which ends with what capabilities add, and the history.

On a page, capabilities have the orders from 90 to 100.
"""


def capability_fields(task: Task) -> Steps[list[FieldValue]]:
    """Read what capabilities add to a task."""
    found = list[FieldValue]()
    for capability in cast("tuple[GivesFields, ...]", given("fields")):
        found += yield from capability.of_task(task)
    return found


def values_of(value: Any, described: Iterable[ShownField]) -> list[FieldValue]:
    """The fields of a value."""
    return [(field, getattr(value, field.name)) for field in described]


def on_page(shown: Iterable[FieldValue], *, apart: Container[str] = ()) -> list[FieldValue]:
    """Those that a page shows, in its order. It shows those of the names `apart` elsewhere."""
    found = [
        (field, value)
        for field, value in shown
        if field.order and field.name not in apart and not (field.rare and _is_empty(field, value))
    ]
    return sorted(found, key=lambda one: one[0].order)


def _is_empty(field: ShownField, value: Any) -> bool:
    return value is None if field.format is Format.JSON else not value
