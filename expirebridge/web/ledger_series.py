"""The series of a ledger, for the pages of series: looked at, and steered, in SQL."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from expirebridge.ledger import Ledger
from expirebridge.ledger.engine import connected
from expirebridge.ledger.inspection import Auditor
from expirebridge.ledger.rows import LedgerTask
from expirebridge.ledger.threads import in_time
from expirebridge.model.task import Change
from expirebridge.series.state import Series, SeriesListing
from expirebridge.settings import Settings

T = TypeVar("T")


class LedgerSeries:
    """Each call is a transaction of its own, and waits 5 s for an answer.

    Each raises LedgerUnreachable after that, and LedgerError for whatever else the database says,
    such as that the login may not write.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.ledger is not None  # noqa: S101 - the caller's to see
        self._url = settings.ledger
        self._auditor = Auditor(settings)
        self._ledger = Ledger(settings.ledger, name=settings.ledger_name)

    async def list_series(self, limit: int, cursor: str | None) -> SeriesListing:
        """A page of the series."""
        return await asyncio.to_thread(self._auditor.series, limit, cursor)

    async def get_series(self, id: str) -> Series | None:
        """A series; None if there is none."""
        return await asyncio.to_thread(self._auditor.one_series, id)

    async def pause_series(self, id: str) -> Change:
        """Let a series make no ticks."""
        return await self._change(lambda at: self._ledger.pause_series(at, id))

    async def resume_series(self, id: str) -> Change:
        """Let a paused series go on."""
        return await self._change(lambda at: self._ledger.resume_series(at, id))

    async def run_series(self, id: str) -> LedgerTask | None:
        """Make one more tick, due now; None if there is no such series."""
        return await self._change(lambda at: self._ledger.run_series(at, id))

    async def _change(self, call: Callable[[Connection], T]) -> T:
        def change() -> T:
            with connected(self._url) as connection:
                return call(connection)

        return await asyncio.to_thread(in_time, change)
