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
    most, starts, every = (_number(spec.get(word)) for word in ("most", "starts", "every"))
    is_rate = starts is not None and every is not None and starts > 0 and every > 0
    if most is None and not is_rate:
        return None
    burst, wait, of = _number(spec.get("burst")), _number(spec.get("wait")), spec.get("of")
    usual = starts if of else 1
    return DeclaredLimit(
        name=name,
        most=int(most) if most is not None and not is_rate else None,
        starts=int(starts) if is_rate and starts is not None else None,
        every=every / 1_000_000 if is_rate and every is not None else None,
        burst=max(int(burst or usual or 1), 1) if is_rate else None,
        of=of if is_rate and isinstance(of, str) else "",
        wait=None if wait is None else wait / 1000,
        fair=spec.get("fair") is True,
        ordered=spec.get("ordered") is True,
        functions=tuple(functions),
    )


def place_from(row: Sequence[Any]) -> QueuePlace:
    """Read where a waiting task stands from the reply of `get`."""
    name, held, rank, spec, number = row
    lane = text(name)
    is_hold = lane.startswith(HOLD)
    limit = None if is_hold else limit_from(limit_name_of(lane), spec)
    return QueuePlace(
        lane=lane,
        position=rank + 1 if rank >= 0 else None,
        held=held,
        limit=limit.with_number(number) if limit else None,
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
