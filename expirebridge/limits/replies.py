"""Reads the limits that listeners declared, and the numbers that were set instead."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import orjson

from expirebridge.limits.lanes import SetNumber
from expirebridge.store.queue_places import limit_from
from expirebridge.store.record_values import text
from expirebridge.task.queue_place import DeclaredLimit


class SetLimit(IntEnum):
    """What becomes of a number that is set for a limit: see numbers.lua."""

    DONE = 1
    UNKNOWN = 2  # no handler has a limit of that name
    ONE_LANE = 3  # it has no values
    ORDERED = 4  # its tasks run one at a time
    IMPOSSIBLE = 5  # it can have no such number


_IGNORED = {
    SetLimit.UNKNOWN: "no handler has such a limit",
    SetLimit.ONE_LANE: "it has one lane for all values",
    SetLimit.ORDERED: "its tasks run in order, one at a time",
    SetLimit.IMPOSSIBLE: "it can have no such number",
}


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


def numbers_from(
    rows: Iterable[Sequence[Any]], declared: Mapping[str, DeclaredLimit]
) -> list[SetNumber]:
    """Read the numbers that were set, by limit and value, beside what is declared."""
    found = []
    for field, stored, judged in rows:
        name, space, value = text(field).partition(" ")
        limit = declared.get(name)
        found.append(
            SetNumber(
                limit=name,
                value=value if space else None,
                number=int(stored) if judged == SetLimit.DONE else None,
                stored=text(stored),
                declared=limit.number if limit else None,
                ignored=_IGNORED.get(SetLimit(judged), ""),
            )
        )
    return sorted(found, key=lambda one: (one.limit, one.value is not None, one.value or ""))


def _names_in(raw: bytes) -> list[str]:
    """The names of a function's limits: `[[name, place, parameter, default], ...]`."""
    try:
        listed = orjson.loads(raw)
    except ValueError:
        return []
    rows = listed if isinstance(listed, list) else []
    return [row[0] for row in rows if isinstance(row, list) and row and isinstance(row[0], str)]
