"""Reads the limits that listeners declared."""

from collections.abc import Sequence

import orjson

from expirebridge.store.queue_places import limit_from
from expirebridge.store.record_values import text
from expirebridge.task.queue_place import DeclaredLimit


def limits_from(columns: Sequence[bytes]) -> dict[str, DeclaredLimit]:
    """Read the hash of all limits, as names and values; those that can be read, by their names."""
    raw = {columns[at]: columns[at + 1] for at in range(0, len(columns), 2)}
    functions: dict[str, list[str]] = {}
    for field in sorted(raw):
        if field.startswith(b"f "):
            for name in _names_in(raw[field]):
                functions.setdefault(name, []).append(text(field[2:]))
    found: dict[str, DeclaredLimit] = {}
    for field in sorted(raw):
        name = text(field[2:])
        if field.startswith(b"l ") and (
            limit := limit_from(name, raw[field], functions.get(name, ()))
        ):
            found[name] = limit
    return found


def _names_in(raw: bytes) -> list[str]:
    """The names of a function's limits: `[[name, place, parameter, default], ...]`."""
    try:
        listed = orjson.loads(raw)
    except ValueError:
        return []
    rows = listed if isinstance(listed, list) else []
    return [row[0] for row in rows if isinstance(row, list) and row and isinstance(row[0], str)]
