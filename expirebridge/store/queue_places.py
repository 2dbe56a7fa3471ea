"""Reads where waiting tasks stand out of the replies of scripts."""

from collections.abc import Sequence
from typing import Any

import orjson

from expirebridge.store.record_values import text
from expirebridge.task.queue_place import HOLD, DeclaredLimit, QueuePlace, limit_name_of
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


def place_from(row: Sequence[Any]) -> QueuePlace:
    """Read where a waiting task stands from the reply of `get`."""
    name, held, rank, spec = row
    lane = text(name)
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
