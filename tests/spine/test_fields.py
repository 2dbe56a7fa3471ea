"""The table of a record's fields agrees with what else names them."""

import re
from dataclasses import fields

from expirebridge.store.script_loader import load
from expirebridge.store.task_records import CLAIMED, FIELDS
from expirebridge.task.task import Task


def test_each_field_stands_in_the_table_once() -> None:
    names = [field.name for field in FIELDS]
    assert len(names) == len(set(names))


def test_a_task_has_what_is_shown() -> None:
    shown = {field.name for field in FIELDS if field.shown}
    assert shown <= {field.name for field in fields(Task)}
    # The others come from what every task has, and from `make_task`.
    rest = {
        "id",
        "func",
        "args",
        "kwargs",
        "key",
        "state",
        "due",
        "created",
        "outcome",
        "late",
        "queued",
        "history",
        "listener",
        "in_clear",
        "signal",
    } | {"completer", "spending"}
    assert {field.name for field in fields(Task)} - shown == rest


def test_what_is_claimed_is_shown() -> None:
    assert all(field.shown for field in FIELDS if field.claimed)


def test_a_claim_replies_the_fields_in_the_order_of_the_table() -> None:
    text = load("claim").plain.text
    [first] = re.findall(r"^(?:local )?FIRST = (\d+)", text, re.MULTILINE)
    [last] = re.findall(r"^(?:local )?LAST = (\d+)", text, re.MULTILINE)
    [listed] = re.findall(r"^local FIELDS = \{(.+?)\}$", text, re.MULTILINE | re.DOTALL)
    replied = re.findall(r"'(\w+)'", listed)[: int(last) - int(first) + 1]
    assert replied == ["args", "retry", "timeout", "misfire", *(name for name, _ in CLAIMED)]
