"""The producer's side of series: what recurs, in the caller's own transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from expirebridge.errors import InvalidTask
from expirebridge.ledger.clock import ahead
from expirebridge.ledger.rows import LedgerTask
from expirebridge.ledger.series_queries import listing_of, place_in, series_of
from expirebridge.ledger.series_writer import Scheduler
from expirebridge.ledger.statements import Statements
from expirebridge.ledger.transaction import Channel, check_transaction
from expirebridge.model.durations import Duration
from expirebridge.model.policies import MisfireSpec, RetrySpec
from expirebridge.model.schedule import Missed, Overlap, check_series_id
from expirebridge.model.task import Change
from expirebridge.model.transactions import Transaction
from expirebridge.producer.new_task import Func
from expirebridge.producer.series_work import spec_from
from expirebridge.series.state import Series, SeriesListing


class SeriesCalls:
    """The calls of a Ledger that are about series."""

    name: str
    _folder: Path

    def schedule(
        self,
        session: Transaction,
        id: str,
        func: Func,
        args: Sequence[Any] = (),
        *,
        cron: str | None = None,
        every: Duration | None = None,
        kwargs: Mapping[str, Any] | None = None,
        tz: str | ZoneInfo | None = None,
        jitter: Duration | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        missed: Missed = "latest",
        overlap: Overlap = "skip",
        tags: Sequence[str] = (),
        retry: RetrySpec | None = None,
        timeout: Duration | None = None,
        late_after: Duration | None = None,
        misfire: MisfireSpec | None = None,
    ) -> Series:
        """Let `func` run again and again, from your commit on. The arguments are those of
        `Bridge.schedule`.

        The series and the time of its latest tick are in this database, and each tick is a task of
        the ledger, `<id>@<ms>`: so both survive Redis. The next time is computed by this database's
        clock.

        If the id belongs to a series of the ledger, that is changed: its waiting tick is replaced.
        The same once more changes nothing. Returns the series as `get_series` does;
        `series.outcome` says what was done. Raises InvalidTask, and LedgerUnsuitable as
        `make_task`.
        """
        check_transaction(session)
        spec = spec_from(
            self._folder, id, func, args, cron=cron, every=every, kwargs=kwargs, tz=tz,
            jitter=jitter, start=start, until=until, missed=missed, overlap=overlap, tags=tags,
            retry=retry, timeout=timeout, late_after=late_after, misfire=misfire,
        )  # fmt: skip
        outcome = self._scheduler(session).put(spec)
        series = self.get_series(session, id)
        assert series is not None  # noqa: S101 - this transaction has written it
        return replace(series, outcome=outcome)

    def unschedule(self, session: Transaction, id: str) -> Change:
        """Remove a series and its waiting tick, once you have committed; what runs goes on.

        Returns removed or not found. Raises InvalidTask for an illegal id, and LedgerUnsuitable as
        `make_task`.
        """
        return self._scheduler(session).remove(check_series_id(id))

    def get_series(self, session: Transaction, id: str) -> Series | None:
        """Return a series as it is in your transaction; None if there is none.

        When its last tick began, and how late, only Redis knows: those fields are None. Raises
        InvalidTask for an illegal id, and LedgerUnsuitable as `make_task`.
        """
        channel = self._channel(session)
        values = {"b_ledger": self.name, "b_id": check_series_id(id), "b_ahead": ahead()}
        rows = channel.rows(self._statements(channel).series_show, values)
        return series_of(rows[0]) if rows else None

    def list_series(
        self, session: Transaction, *, limit: int = 100, cursor: str | None = None
    ) -> SeriesListing:
        """Return up to `limit` series, those first whose next tick is first; paused ones last.

        `listing.cursor` is where the next page begins. Pages are no snapshot. Raises InvalidTask
        for values that cannot be, and LedgerUnsuitable as `make_task`.
        """
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        due, id = place_in(cursor)
        channel = self._channel(session)
        values = {
            "b_ledger": self.name, "b_due": due, "b_id": id, "b_limit": limit, "b_ahead": ahead(),
        }  # fmt: skip
        return listing_of(channel.rows(self._statements(channel).series_list, values), limit)

    def pause_series(self, session: Transaction, id: str) -> Change:
        """Let a series make no ticks until it is resumed, from your commit on.

        Its waiting tick is cancelled; one that is due within two seconds may still run. `schedule`
        does not resume it. Returns paused or not found. Raises as `unschedule`.
        """
        return self._scheduler(session).pause(check_series_id(id))

    def resume_series(self, session: Transaction, id: str) -> Change:
        """Let a paused series go on, with its first tick from now on.

        Returns resumed or not found. Raises as `unschedule`, and InvalidTask if its schedule cannot
        be read.
        """
        return self._scheduler(session).resume(check_series_id(id))

    def run_series(self, session: Transaction, id: str) -> LedgerTask | None:
        """Make one more tick of a series, due now; the others stay as they are.

        Returns its task, or None if there is no such series. Raises as `unschedule`.
        """
        tick = self._scheduler(session).run(check_series_id(id))
        return None if tick is None else self.get(session, tick)

    def _scheduler(self, session: Transaction) -> Scheduler:
        channel = self._changing(session)
        return Scheduler(self.name, channel, self._statements(channel))

    # What a Ledger has

    def get(self, session: Transaction, id: str) -> LedgerTask | None:
        """Return a task as its row is in your transaction; None if there is none."""
        raise NotImplementedError

    def _channel(self, session: Transaction) -> Channel:
        raise NotImplementedError

    def _changing(self, session: Transaction) -> Channel:
        raise NotImplementedError

    def _statements(self, channel: Channel) -> Statements:
        raise NotImplementedError
