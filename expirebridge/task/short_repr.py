"""The repr of a public value: short, and without what may be a secret."""

from collections.abc import Mapping, Sized
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

_SECRETS = frozenset({"args", "kwargs", "key", "result", "error", "reason", "message"})
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
