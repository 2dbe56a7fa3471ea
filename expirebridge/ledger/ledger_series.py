"""The series of a ledger, each call in a transaction of its own."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# First, so that without SQLAlchemy the error is that of `expirebridge.ledger`.
from expirebridge.ledger import Ledger, LedgerTask
from expirebridge.ledger.engine import connected, with_timeout
from expirebridge.series.values import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.task.task import Change

T = TypeVar("T")


class LedgerSeries:
    """Each raises LedgerError for what the database says, such as that the login may not write."""

    def __init__(self, settings: Settings) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller checks it
        self._url = settings.ledger
        self._ledger = Ledger(settings.ledger, name=settings.ledger_name)

    def list_series(self, *, limit: int, cursor: str | None) -> SeriesListing:
        """Return a page of the series."""
        with connected(self._url, reads_only=True) as at:
            return self._ledger.list_series(at, limit=limit, cursor=cursor)

    def get_series(self, id: str) -> Series | None:
        """Return a series; None if there is none."""
        with connected(self._url, reads_only=True) as at:
            return self._ledger.get_series(at, id)

    def pause_series(self, id: str) -> Change:
        """Let a series make no ticks."""
        with connected(self._url) as at:
            return self._ledger.pause_series(at, id)

    def resume_series(self, id: str) -> Change:
        """Let a paused series go on."""
        with connected(self._url) as at:
            return self._ledger.resume_series(at, id)

    def run_series(self, id: str) -> LedgerTask | None:
        """Make one more tick, due now; None if there is no such series."""
        with connected(self._url) as at:
            return self._ledger.run_series(at, id)

    def unschedule(self, id: str) -> Change:
        """Remove a series."""
        with connected(self._url) as at:
            return self._ledger.unschedule(at, id)


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
