"""Reads single values of a record. What cannot be read gives None: bad data stops nobody."""

from datetime import datetime
from typing import Any

import orjson

from expirebridge.model.task import from_ms


def text(raw: bytes) -> str:
    """Bytes as text, whatever they are."""
    return raw.decode(errors="backslashreplace")


def words(raw: bytes) -> tuple[str, ...]:
    """What spaces separate."""
    return tuple(raw.decode(errors="backslashreplace").split())


def number(raw: bytes) -> float | None:
    """Any number."""
    try:
        return float(raw)
    except ValueError:
        return None


def whole(raw: bytes) -> int | None:
    """A whole number."""
    try:
        return int(raw)
    except ValueError:
        return None


def moment(raw: bytes) -> datetime | None:
    """Milliseconds since 1970 as a time."""
    ms = whole(raw)
    return from_ms(ms) if ms is not None else None


def first_moment(raw: bytes) -> datetime | None:
    """The first of some times, in milliseconds since 1970."""
    return moment(raw.partition(b" ")[0])


def json(raw: bytes) -> Any:
    """JSON, or else text."""
    try:
        return orjson.loads(raw)
    except ValueError:
        return text(raw)
