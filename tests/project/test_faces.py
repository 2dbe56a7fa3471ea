"""What a task, a series or a group has is shown: by the command, as text and as JSON, and on pages.

That the pages show it is tested with each: tests/web, tests/django.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime

import pytest

from expirebridge import Group, Outcome, Series, State, Task
from expirebridge.cli.output import as_rows, task_as_data, task_as_rows
from expirebridge.groups import fields as of_groups
from expirebridge.series import fields as of_series
from expirebridge.task import fields as of_tasks
from expirebridge.task.fields import Format, Reference, ShownField
from expirebridge.task.history import HistoryEntry
from expirebridge.task.lateness import LateCause, Lateness
from expirebridge.task.queue_place import QueuePlace
from expirebridge.task.signal import Signal

NOW = datetime(2026, 5, 1, tzinfo=UTC)
FULL = Task(
    id="a@1", func="mail.send", args=[1], kwargs={"b": 2}, key=b"x", state=State.SUCCEEDED, due=NOW,
    created=NOW, attempt=3, tags=("red",), outcome=Outcome.CREATED, started=NOW, listener="x",
    ended=NOW, result=False, error="boom", lapses=1, snoozes=2, waited=1.5,
    late=Lateness(2, LateCause.UNKNOWN), tick=NOW, trace="00", after="b", then="c",
    queued=QueuePlace(lane="x", position=1, held=1, limit=None),
    history=(HistoryEntry(at=NOW, what="created"),), in_clear=("error",),
    on_signal="mail.answer", urgent=True, signal=Signal({"ref": 7}, "psp", "mail.remind", NOW),
)  # fmt: skip
"""Has all that a task can have."""

DESCRIBED: Mapping[type, tuple[Sequence[ShownField], Mapping[str, str]]] = {
    Task: (
        of_tasks.FIELDS,
        {
            "kwargs": "shown with `args`",
            "history": "shown below the others",
            "listener": "for programs",
            "waited": "for programs",
            "trace": "for tracing, in no face",
            "signal": "its parts are shown",
            "completer": "a listener gives it to a handler",
            "spending": "a listener gives it to a handler",
        },
    ),
    Series: (
        of_series.FIELDS,
        {
            "kwargs": "shown with `args`",
            "carriers": "shown with `declared`",
            "state": "shown with `ended`",
            "behind": "a part of `standing`",
            "over": "a part of `standing`",
            "last": "the last tick's id has it",
            "outcome": "of the call that made it",
        },
    ),
    Group: (
        of_groups.FIELDS,
        {
            "closed": "a part of `state`",
            "total": "a part of `progress`",
            "left": "a part of `progress`",
        },
    ),
}
"""Of each class its description, and why people see other attributes elsewhere or not at all."""


@pytest.mark.parametrize("shown", DESCRIBED)
def test_each_attribute_is_described_once_or_has_a_reason(shown: type) -> None:
    described, others = DESCRIBED[shown]
    names = [field.name for field in described]
    attributes = {field.name for field in fields(shown)}
    assert len(names) == len(set(names))
    assert set(names).isdisjoint(others)
    assert attributes - set(names) == set(others)
    assert all(hasattr(shown, name) for name in names)


@pytest.mark.parametrize("shown", DESCRIBED)
def test_no_two_fields_stand_in_one_place_of_a_page(shown: type) -> None:
    on_page = [field for field in DESCRIBED[shown][0] if field.order]
    assert len({field.order for field in on_page}) == len(on_page)
    assert all(field.label for field in on_page)


def test_the_text_of_a_task_has_all_that_is_described() -> None:
    names = [name for name, _ in task_as_rows(FULL)]
    described = [field.text or field.name for field in of_tasks.FIELDS]
    assert names == [*described, "history"]


def test_the_text_of_a_task_has_what_capabilities_add() -> None:
    group = Reference(name="import-7", page="groups", key="name", remark="closed")
    rows = task_as_rows(FULL, [(ShownField("group", Format.REFERENCE), group)])
    assert rows[-2:] == [("group", "import-7: closed"), rows[-1]]


def test_the_json_of_a_task_has_all_its_attributes() -> None:
    assert set(task_as_data(FULL)) == {field.name for field in fields(Task)} - {"trace"}


def test_what_is_empty_is_no_row() -> None:
    least = Task(id="a", func="f", key=b"", state=State.PENDING, due=NOW, result=0)
    names = [name for name, _ in as_rows(of_tasks.values_of(least, of_tasks.FIELDS))]
    assert names == ["id", "state", "func", "args", "due", "result"]
