"""Counts the rows that Redis does not have, by when they are due."""

from collections import Counter

from expirebridge.errors import InvalidSetting
from expirebridge.settings import Settings


def count_coming(
    settings: Settings, *, start: int, width: int, spans: int
) -> list[Counter[str]] | None:
    """Count those of each function in each span of so many ms from a time on, in ms.

    None without a ledger. Raises a LedgerError if its database fails.
    """
    if settings.ledger is None:
        return None
    try:
        from expirebridge.ledger.inspection import LedgerInspector  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None
    counts = [Counter[str]() for _ in range(spans)]
    for number, func, count in LedgerInspector(settings).count_coming(start, width, spans):
        counts[number][func] += count
    return counts
