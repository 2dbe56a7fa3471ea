"""The fields of a task's record, each once: how it is shown, claimed and exported.

What every task has (`call`, `args`, `key`, `made`) is read where it is needed; see views.py.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from expirebridge.store import reading


class Field(NamedTuple):
    """One field of a record."""

    name: str
    """In the record, in `Task`, and in an exported task."""
    shown: Callable[[bytes], Any] | None = None
    """How it is read for `Task`; None if that does not have it."""
    claimed: bool = False
    """Whether a handler sees it in its own `Task`: claim.lua replies these, in this order."""
    exported: Callable[[bytes], Any] | None = None
    """How it goes into an exported task; None if it stays behind. Bad data raises ValueError."""


def _text(raw: bytes) -> str:
    return raw.decode()


def _words(raw: bytes) -> list[str]:
    return raw.decode().split()


FIELDS = (
    Field("retry", exported=_text),
    Field("error", reading.text, exported=_text),
    Field("trace", reading.text, claimed=True, exported=_text),
    Field("misfire", exported=_text),
    Field("timeout", exported=float),
    Field("ttl", exported=float),
    Field("attempt", reading.whole, exported=float),
    Field("tags", reading.words, claimed=True, exported=_words),
    Field("snoozes", reading.whole, claimed=True, exported=float),
    Field("tick", reading.first_moment, claimed=True, exported=_text),
    Field("lapses", reading.whole),
    Field("started", reading.moment),
    Field("ended", reading.moment),
    Field("result", reading.json),
)

_SHOWN = [(field.name, field.shown) for field in FIELDS if field.shown]
CLAIMED = [(field.name, field.shown) for field in FIELDS if field.shown and field.claimed]
"""What a claim replies for a handler's own `Task`, and how it is read."""
EXPORTED = {field.name: field.exported for field in FIELDS if field.exported}
EXPORTED_TEXTS = tuple(name for name, write in EXPORTED.items() if write is _text)


def shown(record: Mapping[str, bytes]) -> dict[str, Any]:
    """What `Task` shows of a record; what is absent, or cannot be read, is left out."""
    return {
        name: value
        for name, read in _SHOWN
        if (raw := record.get(name)) is not None and (value := read(raw)) is not None
    }


def exported(record: Mapping[str, bytes]) -> dict[str, Any]:
    """What an exported task holds of a record. Raises ValueError for what cannot be read."""
    return {
        name: write(raw)
        for name, write in EXPORTED.items()
        if (raw := record.get(name)) is not None
    }
