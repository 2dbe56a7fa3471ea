"""Gives the series of a ledger to the commands and the pages for series."""

from typing import TYPE_CHECKING

from expirebridge.errors import InvalidSetting
from expirebridge.ledger.calls import read_ledgers
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps

if TYPE_CHECKING:
    from expirebridge.ledger.ledger_series import LedgerSeries, LedgerSeriesPages


def place_of(settings: Settings) -> "LedgerSeries | None":
    """Return the series of the ledger that the settings name; None if they name none."""
    if settings.ledger is None:
        return None
    try:
        from expirebridge.ledger.ledger_series import LedgerSeries  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as missing:
        raise InvalidSetting(str(missing)) from None
    return LedgerSeries(settings)


def place_for_pages(settings: Settings) -> "LedgerSeriesPages | None":
    """Return the same, to be awaited."""
    series = place_of(settings)
    if series is None:
        return None
    from expirebridge.ledger.ledger_series import LedgerSeriesPages  # noqa: PLC0415 - needs an extra

    return LedgerSeriesPages(series)


def is_in_use() -> Steps[bool]:
    """Return whether the database belongs to a ledger."""
    return any(known.nonce for known in (yield from read_ledgers()).values())
