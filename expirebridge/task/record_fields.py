"""Reads a task's fields from JSON, as programs in other languages write them.

These are the fields of an exported task: docs/reference/task-lines.md shows them.
"""

from collections.abc import Mapping
from typing import Any, Final

from expirebridge.errors import InvalidTask
from expirebridge.store.task_records import EXPORTED_TEXTS
from expirebridge.task import keys
from expirebridge.task.calls.call import Argument
from expirebridge.task.decision_fields import check_decision
from expirebridge.task.policies import check_timeout, decode_misfire, decode_policy

_JSON = 'write JSON as text, such as "[{}]"'
HINTS: Final = {
    "id": 'write text, such as "order-17"',
    "series": 'write text, such as "nightly"',
    "func": 'write text, such as "mail.send"',
    "args": _JSON.format('42,\\"hi\\"'),
    "due": 'write a time with its zone, such as "2031-01-01T08:00:00+00:00"',
    "retry": _JSON.format("15,60"),
    "misfire": _JSON.format('\\"skip\\",300'),
}
_LARGEST = 2**53 - 1
"""Lua reads larger numbers inexactly."""


def record_fields(values: Mapping[str, Any]) -> dict[str, Argument]:
    """The record's fields for these, checked as make_task would. Raises InvalidTask."""
    fields: dict[str, Argument] = {}
    if tags := keys.check_tags(values.get("tags", ())):
        fields["tags"] = " ".join(tags)
    fields |= {name: text_of(values, name) for name in EXPORTED_TEXTS if name in values}
    for name, read in (("retry", decode_policy), ("misfire", decode_misfire)):
        if name in fields:
            try:
                read(str(fields[name]).encode())
            except ValueError as error:
                raise InvalidTask(f"{name}: {error}") from None
    check_decision(fields, values.get("func"))
    if "timeout" in values:
        fields["timeout"] = _timeout(values["timeout"])
    if "urgent" in values:
        fields |= _urgent(values["urgent"])
    if "ttl" in values:
        fields["ttl"] = whole_of(values, "ttl", least=1, unit=" of milliseconds")
    for name in ("attempt", "snoozes"):
        if name in values:
            fields[name] = whole_of(values, name, least=0)
    return fields


def text_of(values: Mapping[str, Any], name: str) -> str:
    """A field that must be text. Raises InvalidTask."""
    hint = HINTS.get(name, "write text")
    if name not in values:
        raise InvalidTask(f"{name}: it is missing; {hint}")
    value = values[name]
    if not isinstance(value, str):
        raise InvalidTask(f"{name}: {hint}")
    return value


def _timeout(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTask("timeout: write a number of seconds, such as 30 or 1.5")
    check_timeout(value)
    return str(int(value)) if value == int(value) else repr(value)


def _urgent(value: object) -> dict[str, Argument]:
    if not isinstance(value, bool):
        raise InvalidTask("urgent: write true or false")
    return {"urgent": 1} if value else {}


def whole_of(values: Mapping[str, Any], name: str, *, least: int, unit: str = "") -> int:
    """A field that must be a whole number. Raises InvalidTask."""
    value: Any = values.get(name)
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole or not least <= value <= _LARGEST:
        raise InvalidTask(f"{name}: write a whole number{unit}, {least} or more")
    return int(value)
