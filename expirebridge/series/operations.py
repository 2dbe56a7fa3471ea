"""Operations on series: what recurs.

They are described here, and done in `series_work.py`, which a process that has no series does not
load. So what is named there is text in their types.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from expirebridge.task.calls.call import BATCH, Steps
from expirebridge.task.durations import Duration
from expirebridge.task.new_task import Func
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.task import Change, Task

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from expirebridge.series.schedule import Missed, Overlap
    from expirebridge.series.series_work import SeriesWork
    from expirebridge.series.values import Series, SeriesListing, SeriesOutcome
    from expirebridge.task.policies import MisfireSpec, RetrySpec


class SchedulingOperations(OperationGroup):
    """Schedule series, steer them, look at them."""

    def schedule(
        self,
        id: str,
        func: Func,
        args: Sequence[Any] = (),
        *,
        cron: str | None = None,
        every: Duration | None = None,
        kwargs: Mapping[str, Any] | None = None,
        tz: "str | ZoneInfo | None" = None,
        jitter: Duration | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        missed: "Missed" = "latest",
        overlap: "Overlap" = "skip",
        tags: Sequence[str] = (),
        retry: "RetrySpec | None" = None,
        timeout: Duration | None = None,
        late_after: Duration | None = None,
        misfire: "MisfireSpec | None" = None,
    ) -> Steps["Series"]:
        """Let `func` run again and again: at the times of `cron`, or each `every`.

        Each time is a tick: an ordinary task `<id>@<ms>` with its own key, of which the next one
        always waits. Any client may move, pause or delete a tick; the series goes on. Listeners
        make the ticks, so it needs one that runs.

        `cron` has five fields, or is `@daily` or the like, in the time zone `tz`, UTC if none is
        given. `every` is at least a second, and counts from `start`, or from now. `jitter` puts
        each tick off by less than that, for one series always by the same. There are no ticks
        before `start` or after `until`. `missed` says what happens to ticks for which no listener
        was there in time: with `"latest"` the last of them runs late, with `"skip"` none does.
        With `overlap="skip"`, a tick does not run while another one of the series does, and its
        retries end when the next is due. The other arguments are those of `make_task`, and are for
        each tick.

        If the id belongs to a series, that is changed: its waiting tick is replaced, in one step.
        The same once more changes nothing. A series never begins with a tick at once.

        Returns the series; `series.outcome` says what was done.

        Raises InvalidTask if it cannot be (nothing was sent then), SeriesDeclared if handlers
        declare a series of this id, and a ServerError if the server failed or refused a call. After
        ServerUnreachable it is safe to call again.
        """
        return self._series.schedule(
            id, func, args, cron=cron, every=every, kwargs=kwargs, tz=tz, jitter=jitter,
            start=start, until=until, missed=missed, overlap=overlap, tags=tags,
            retry=retry, timeout=timeout, late_after=late_after, misfire=misfire,
        )  # fmt: skip

    def schedule_many(self, series: Iterable[Mapping[str, Any]]) -> Steps["list[SeriesOutcome]"]:
        """Schedule many series: each is a mapping of `schedule`'s arguments by their names.

        All are checked before the first is sent. They are sent in chunks of up to 20; each chunk is
        made whole or not at all. Returns for each, in order, what was done.

        Raises InvalidTask, whose message names the position, and what `schedule` raises; the chunks
        before the one that failed are made then.
        """
        return self._series.schedule_many(series)

    def unschedule(self, id: str) -> Steps[Change]:
        """Remove a series and its waiting tick; what runs, or is retried, runs to its end.

        Returns removed, not found, or declared: a listener's handlers declare it, so it would come
        back. Raises InvalidTask for an illegal id.
        """
        return self._series.unschedule(id)

    def get_series(self, id: str) -> Steps["Series | None"]:
        """Return the series of this id, or None. Raises InvalidTask for an illegal id."""
        return self._series.get(id)

    def list_series(
        self, *, limit: int = BATCH, cursor: str | None = None
    ) -> Steps["SeriesListing"]:
        """Return up to `limit` series, those first whose next tick is first; paused ones last.

        `listing.cursor` is where the next page begins. Pages are no snapshot: of series that come,
        go or have a tick between two pages, some may be listed twice, or not at all.

        Raises InvalidTask for values that cannot be.
        """
        return self._series.list(limit, cursor)

    def pause_series(self, id: str) -> Steps[Change]:
        """Let a series make no ticks until it is resumed; its waiting tick is removed.

        A later deploy does not resume it. Returns paused or not found. Raises InvalidTask for an
        illegal id.
        """
        return self._series.pause(id)

    def resume_series(self, id: str) -> Steps[Change]:
        """Let a paused series go on, with the first tick from now on.

        Returns resumed or not found. Raises InvalidTask for an illegal id, and if its schedule
        cannot be read.
        """
        return self._series.resume(id)

    def run_series(self, id: str) -> Steps[Task | None]:
        """Make one more tick of a series, due now; the others stay as they are.

        With `overlap="skip"` it does not run while another one does. Returns its task, or None if
        there is no such series. Raises InvalidTask for an illegal id.
        """
        return self._series.run(id)

    def prune_series(self) -> Steps[Sequence[str]]:
        """Remove the series that no listener's handlers declare any more; returns their ids.

        What producers scheduled stays. Without a live listener nothing is removed: only listeners
        report what is declared.
        """
        return self._series.prune()

    @cached_property
    def _series(self) -> "SeriesWork":
        from expirebridge.series.series_work import SeriesWork  # noqa: PLC0415 - see above

        return SeriesWork(self._settings, self._unknown, self._writer)
