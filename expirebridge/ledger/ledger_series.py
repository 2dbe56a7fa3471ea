"""The series of a ledger, each call in a transaction of its own."""

# First, so that without SQLAlchemy the error is that of `expirebridge.ledger`.
from expirebridge.ledger import Ledger, LedgerTask
from expirebridge.ledger.engine import connected
from expirebridge.series.values import Series, SeriesListing
from expirebridge.settings import Settings
from expirebridge.task.task import Change


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
