"""Reads limits, and places in their lanes, out of the replies of scripts."""

from collections.abc import Sequence
from typing import Any

import orjson

from expirebridge.limits.lanes import DeclaredLimit, QueuePlace, limit_name_of
from expirebridge.task.hold import HOLD
from expirebridge.task.task import from_ms


def limit_from(name: str, raw: bytes | None, functions: Sequence[str] = ()) -> DeclaredLimit | None:
    """Read what a listener declared; None if there is nothing, or it cannot be read."""
    spec = _object(raw)
    most, interval = _number(spec.get("most")), _number(spec.get("interval"))
    if most is None and interval is None:
        return None
    burst, wait = _number(spec.get("burst")), _number(spec.get("wait"))
    return DeclaredLimit(
        name=name,
        most=int(most) if most is not None and interval is None else None,
        interval=None if interval is None else interval / 1_000_000,
        burst=None if interval is None else max(int(burst or 1), 1),
        wait=None if wait is None else wait / 1000,
        fair=spec.get("fair") is True,
        ordered=spec.get("ordered") is True,
        functions=tuple(functions),
    )


def limits_from(columns: Sequence[bytes]) -> dict[str, DeclaredLimit]:
    """Read the hash of all limits, as names and values; those that can be read, by their names."""
    raw = {columns[at]: columns[at + 1] for at in range(0, len(columns), 2)}
    functions: dict[str, list[str]] = {}
    for field in sorted(raw):
        if field.startswith(b"f "):
            for name in _names_in(raw[field]):
                functions.setdefault(name, []).append(_text(field[2:]))
    found: dict[str, DeclaredLimit] = {}
    for field in sorted(raw):
        name = _text(field[2:])
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


def place_from(row: Sequence[Any]) -> QueuePlace:
    """Read where a waiting task stands from the reply of `get`."""
    name, held, rank, spec = row
    lane = _text(name)
    is_hold = lane.startswith(HOLD)
    return QueuePlace(
        lane=lane,
        position=rank + 1 if rank >= 0 else None,
        held=held,
        limit=None if is_hold else limit_from(limit_name_of(lane), spec),
        hold=_hold(spec) if is_hold else "",
    )


def _hold(raw: bytes | None) -> str:
    """What was said of a hold, to follow its name."""
    spec = _object(raw)
    until, by, reason = _number(spec.get("until")), spec.get("by"), spec.get("reason")
    words = "" if until is None else f", until {from_ms(int(until)):%Y-%m-%d %H:%M:%S} UTC"
    words += f", by {by}" if by else ""
    return words + (f": {reason}" if reason else "")


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


def _object(raw: bytes | None) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    try:
        value = orjson.loads(raw or b"")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 2**63 else None
