"""Gives the records of series, whose arguments may be sealed, to who seals them again."""

from collections.abc import Sequence
from typing import Any

from expirebridge.series.replies import series_from
from expirebridge.store.record_values import text
from expirebridge.task.calls.call import CHUNK, Command, milliseconds, script
from expirebridge.task.calls.pages import RecordPage

KIND = "series"
"""What reseal.lua calls them."""
_LEASE = 1.0
"""The listing asks for one: who declared a series does not matter here."""


def record_page(cursor: str) -> Command[RecordPage]:
    """Read the records of series, a page at a time."""
    return script("list_series", milliseconds(_LEASE), cursor, CHUNK, read=_read_page)


def _read_page(reply: Sequence[Any]) -> RecordPage:
    found = [series_from(row) for row in reply[2:] if row]
    return RecordPage(text(reply[0]), len(found), [(one.id, one.record) for one in found])
