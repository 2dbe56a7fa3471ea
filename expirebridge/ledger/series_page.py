"""The series of a ledger, for the pages of series."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from expirebridge.ledger import LedgerTask
from expirebridge.ledger.engine import with_timeout
from expirebridge.ledger.ledger_series import LedgerSeries
from expirebridge.series.values import Series, SeriesListing
from expirebridge.task.task import Change

T = TypeVar("T")


class LedgerSeriesPages:
    """The series of a ledger for the pages of series: each call waits 5 s for an answer.

    Each raises LedgerUnreachable after that, and LedgerError for whatever else the database says,
    such as that the login may not write.
    """

    def __init__(self, series: LedgerSeries) -> None:
        self._series = series

    async def list_series(self, *, limit: int, cursor: str | None) -> SeriesListing:
        """A page of the series."""
        return await _answer(lambda: self._series.list_series(limit=limit, cursor=cursor))

    async def get_series(self, id: str) -> Series | None:
        """A series; None if there is none."""
        return await _answer(lambda: self._series.get_series(id))

    async def pause_series(self, id: str) -> Change:
        """Let a series make no ticks."""
        return await _answer(lambda: self._series.pause_series(id))

    async def resume_series(self, id: str) -> Change:
        """Let a paused series go on."""
        return await _answer(lambda: self._series.resume_series(id))

    async def run_series(self, id: str) -> LedgerTask | None:
        """Make one more tick, due now; None if there is no such series."""
        return await _answer(lambda: self._series.run_series(id))


async def _answer(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(with_timeout, call)
