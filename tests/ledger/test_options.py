"""What a ledger's calls take: the options of a Bridge's, written out for editors, and the same."""

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import pytest

from expirebridge import Bridge, Then, every
from expirebridge.ledger import Ledger

OWN = {"session", "if_exists", "ext"}
"""What only a ledger's calls have, or have in another way."""


def options_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Their names, kinds and defaults: two modules may write the same type in different words."""
    parameters = inspect.signature(function).parameters
    return {
        name: one.replace(annotation=Parameter.empty)
        for name, one in parameters.items()
        if name not in OWN
    }


@pytest.mark.parametrize("name", ["schedule", "unschedule"])
def test_a_series_of_a_ledger_takes_what_a_bridge_takes(name: str) -> None:
    ours, theirs = options_of(getattr(Ledger, name)), options_of(getattr(Bridge, name))
    assert list(ours.values()) == list(theirs.values())


def test_a_task_of_a_ledger_takes_what_a_bridge_takes() -> None:
    ours, theirs = options_of(Ledger.make_task), options_of(Bridge.make_task)
    # What is private in a ledger is so by its keys.
    assert theirs.keys() - ours.keys() == {"max_wait", "window", "private"}
    assert ours == {name: theirs[name] for name in ours}


def test_a_follow_up_takes_what_a_bridge_takes() -> None:
    ours, theirs = (
        inspect.signature(Then).parameters,
        inspect.signature(Bridge.make_task).parameters,
    )
    assert ours.keys() == theirs.keys() - {"self"}
    assert {name: one.default for name, one in ours.items()} == {
        name: theirs[name].default for name in ours
    }


def test_a_declared_series_takes_what_a_scheduled_one_takes() -> None:
    declared, scheduled = options_of(every), options_of(Bridge.schedule)
    assert scheduled.keys() - declared.keys() == {"self", "func", "cron", "every"}
    assert declared.keys() - scheduled.keys() == {"when"}
    # Positional there: the id that must be given, and the arguments after the function.
    shared = declared.keys() & scheduled.keys() - {"id", "args"}
    assert {name: declared[name] for name in shared} == {name: scheduled[name] for name in shared}
