"""The calls about the format of a database: read it, raise it, lower it."""

from typing import Any

from expirebridge.store.calls.call import Call, milliseconds, script
from expirebridge.store.reading import text, whole
from expirebridge.task import Format


def read_format(lease: float) -> Call[Format]:
    """Read the format, and who beats within `lease` seconds and knows only format 1."""
    return script("read_format", milliseconds(lease), read=_read_format)


def raise_format(lease: float) -> Call[None]:
    """Raise the format to 2. Raises FormatRefused while such a listener beats."""
    return script("raise_format", milliseconds(lease), read=lambda _: None)


def lower_format() -> Call[None]:
    """Lower the format to 1. Raises FormatRefused while something needs format 2."""
    return script("lower_format", read=lambda _: None)


def _read_format(reply: list[Any]) -> Format:
    written, known, uses, older = reply
    return Format(
        written=whole(written),
        known=known,
        uses=[text(use) for use in uses],
        older_listeners=sorted(text(name) for name in older),
    )
