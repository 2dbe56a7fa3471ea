"""What a public value shows of itself: one short line, and no arguments of tasks."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import expirebridge
from expirebridge import State, Task, events
from expirebridge.ledger import LedgerTask
from expirebridge.testing import Ran
from tests.kit.cases import each

LONGEST = 500
BY_USERS = {"Budget", "Exponential", "Limit", "Rate", "Spread"}
"""What users write themselves."""
SECRET = "s3cret"


def public() -> Iterator[Any]:
    """Every class of values that users are given."""
    for name in expirebridge.__all__:
        thing = getattr(expirebridge, name)
        if is_dataclass(thing) and name not in BY_USERS:
            yield thing
    yield from (LedgerTask, Ran)
    for thing in vars(events).values():
        if is_dataclass(thing) and {"task", "error"} & {one.name for one in fields(thing)}:
            yield thing


def filled(kind: Any, held: object) -> Any:
    """One of this class, whose fields all hold this."""
    value = object.__new__(kind)
    for one in fields(kind):
        object.__setattr__(value, one.name, held)
    return value


def a_task() -> Task:
    due = datetime(2026, 11, 27, 16, 21, 28, 977000, UTC)
    return Task(id="m1", func="mail.send", key=b"", state=State.PENDING, due=due)


PUBLIC = list(public())


@each("kind", PUBLIC)
@each(
    "held",
    ["x" * 10_000, ["x" * 10_000] * 1000, {"x": "y" * 10_000}, [a_task()] * 1000,
     datetime.max.replace(tzinfo=UTC)],
)  # fmt: skip
def test_the_repr_is_short_however_much_it_holds(kind: Any, held: object) -> None:
    assert len(repr(filled(kind, held))) <= LONGEST


@each("kind", PUBLIC)
def test_it_shows_no_arguments_and_nothing_that_was_made_of_them(kind: Any) -> None:
    value = filled(kind, "")
    for one in fields(kind):
        if one.name in {"args", "kwargs", "key", "result", "error", "history", "payload"}:
            object.__setattr__(value, one.name, SECRET)
    assert SECRET not in repr(value)


def test_it_says_which_task_that_is() -> None:
    assert repr(a_task()) == (
        "Task(id='m1', func='mail.send', state=pending, due=2026-11-27T16:21:28.977Z)"
    )


def test_of_a_long_list_it_shows_the_first_and_how_many_more_there_are() -> None:
    listing = expirebridge.Listing(tasks=[a_task()] * 100, examined=100, complete=True, cursor=None)
    assert repr(listing) == (
        f"Listing(tasks=[{a_task()}, {a_task()}, ... 98 more], examined=100, complete=True)"
    )
