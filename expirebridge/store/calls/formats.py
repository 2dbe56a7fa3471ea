"""The calls about the format of a database: read it, raise it, lower it."""

from collections.abc import Sequence
from typing import Any

from expirebridge.store.calls.call import Call, milliseconds, script
from expirebridge.store.calls.routes import Everywhere
from expirebridge.store.reading import text, whole
from expirebridge.task import Format


def read_format(lease: float) -> Call[Format]:
    """Read the format, and who beats within `lease` seconds and knows only format 1."""
    return script("read_format", milliseconds(lease), read=_read_format, route=Everywhere(_joined))


def raise_format(lease: float) -> Call[None]:
    """Raise the format to 2. Raises FormatRefused while such a listener beats."""
    return script(
        "raise_format", milliseconds(lease), read=lambda _: None, route=Everywhere(lambda _: None)
    )


def lower_format() -> Call[None]:
    """Lower the format to 1. Raises FormatRefused while something needs format 2."""
    return script("lower_format", read=lambda _: None)


def _joined(formats: Sequence[Format]) -> Format:
    """The highest, and what any partition needs it for."""
    written = [each.written for each in formats if each.written is not None]
    return Format(
        written=max(written, default=None),
        known=formats[0].known,
        uses=list(dict.fromkeys(use for each in formats for use in each.uses)),
        older_listeners=sorted({name for each in formats for name in each.older_listeners}),
    )


def _read_format(reply: list[Any]) -> Format:
    written, known, uses, older = reply
    return Format(
        written=whole(written),
        known=known,
        uses=[text(use) for use in uses],
        older_listeners=sorted(text(name) for name in older),
    )
