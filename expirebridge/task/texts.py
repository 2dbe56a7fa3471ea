"""How values and events are shown: the repr of a public value, a number with its word, and the
structured part of a log record.

None holds what may be a secret: the arguments or the result of a task, or the text of an exception
that a handler raised.
"""

import logging
from collections.abc import Mapping, Sized
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

_SECRETS = frozenset({"args", "kwargs", "key", "result", "error", "reason", "message", "payload"})
"""Fields that hold arguments, or what a handler made of them: a repr is easily logged."""
_LONGEST_OF_ALL = 450
_MOST_ITEMS = 2
_LONGEST = 60
_LONGEST_ITEM = 160


def short_repr(value: Any, *names: str) -> str:
    """The repr of a dataclass: the fields of these names, or all, without empty ones."""
    shown: list[str] = []
    left = _LONGEST_OF_ALL
    for one in fields(value):
        held = getattr(value, one.name)
        wanted = one.name in names if names else one.repr and one.name not in _SECRETS
        if wanted and held is not None and not (isinstance(held, Sized) and len(held) == 0):
            part = f"{one.name}={_shown(held, _LONGEST)}"
            left -= len(part) + 2
            if left < 0:
                shown.append("...")
                break
            shown.append(part)
    return f"{type(value).__name__}({', '.join(shown)})"


def _shown(held: object, longest: int) -> str:
    if isinstance(held, datetime):
        moment = held.astimezone(UTC).isoformat(timespec="milliseconds")
        return moment.replace("+00:00", "Z")
    if isinstance(held, StrEnum):
        return str(held)
    if isinstance(held, list | tuple):
        items = [_shown(item, _LONGEST_ITEM) for item in held[:_MOST_ITEMS]]
        rest = [f"... {len(held) - _MOST_ITEMS:,} more"] if len(held) > _MOST_ITEMS else []
        return f"[{', '.join([*items, *rest])}]"
    text = f"<{len(held):,} items>" if isinstance(held, Mapping) else repr(held)
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def plural(count: int, one: str, more: str) -> str:
    """A number, with the word for one or for more."""
    return f"{count:,} {one if count == 1 else more}"


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a line of the log: the event, a name that does not change, and fields.

    `docs/reference/log-events.md` lists the events.
    """
    return {"event": name, "fields": fields}


def message_of(record: logging.LogRecord) -> str:
    """Return the record's message. A mistake in a handler's logging call must not break the log."""
    try:
        return record.getMessage()
    except Exception as error:
        return (
            f"a message that cannot be formatted ({type(error).__name__}): see "
            f"{record.pathname}, line {record.lineno}"
        )
