"""Operations on series: what recurs."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from expirebridge import series
from expirebridge.task import calls
from expirebridge.task.calls.call import CHUNK, Steps, chunks
from expirebridge.task.durations import Duration
from expirebridge.task.methods import AsyncMethods, Methods, awaits, waits
from expirebridge.task.new_task import Func
from expirebridge.task.operations.base import OperationGroup
from expirebridge.task.task import Change, Task

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from expirebridge.series.schedule import Missed, Overlap, SeriesSpec
    from expirebridge.series.values import Series, SeriesListing, SeriesOutcome
    from expirebridge.task.policies import MisfireSpec, RetrySpec


class SeriesOperations(OperationGroup):
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
        spec = series.definition.spec_from(
            self._settings.tasks, self._writer, id, func, args, cron=cron, every=every,
            kwargs=kwargs, tz=tz, jitter=jitter, start=start, until=until, missed=missed,
            overlap=overlap, tags=tags, retry=retry, timeout=timeout, late_after=late_after,
            misfire=misfire,
        )  # fmt: skip
        return self._schedule(spec)

    def schedule_many(self, series: Iterable[Mapping[str, Any]]) -> Steps["list[SeriesOutcome]"]:
        """Schedule many series: each is a mapping of `schedule`'s arguments by their names.

        All are checked before the first is sent. They are sent in chunks of up to 20; each chunk is
        made whole or not at all. Returns for each, in order, what was done.

        Raises InvalidTask, whose message names the position, and what `schedule` raises; the chunks
        before the one that failed are made then.
        """
        return self._schedule_many(series)

    def unschedule(self, id: str) -> Steps[Change]:
        """Remove a series and its waiting tick; what runs, or is retried, runs to its end.

        Returns removed, not found, or declared: a listener's handlers declare it, so it would come
        back. Raises InvalidTask for an illegal id.
        """
        series.schedule.check_series_id(id)
        [removal] = yield from series.calls.remove_series([id], self._settings.lease)
        return series.calls.CHANGES[removal]

    def get_series(self, id: str) -> Steps["Series | None"]:
        """Return the series of this id, or None. Raises InvalidTask for an illegal id."""
        series.schedule.check_series_id(id)
        read = yield from series.calls.get_series(id, self._settings.lease)
        if read.series is None:
            return None
        key_ring = self._key_ring
        return series.values.Series.of(read.series, read.now, key_ring=key_ring)

    def list_series(
        self, *, limit: int = CHUNK, cursor: str | None = None
    ) -> Steps["SeriesListing"]:
        """Return up to `limit` series, those first whose next tick is first; paused ones last.

        `listing.cursor` is where the next page begins. Pages are no snapshot: of series that come,
        go or have a tick between two pages, some may be listed twice, or not at all.

        Raises InvalidTask for values that cannot be.
        """
        return series.listing.SeriesWalk(self._settings).find(limit, cursor)

    def pause_series(self, id: str) -> Steps[Change]:
        """Let a series make no ticks until it is resumed; its waiting tick is removed.

        A later deploy does not resume it. Returns paused or not found. Raises InvalidTask for an
        illegal id.
        """
        found = yield from series.calls.pause_series(series.schedule.check_series_id(id))
        return Change.PAUSED if found else Change.NOT_FOUND

    def resume_series(self, id: str) -> Steps[Change]:
        """Let a paused series go on, with the first tick from now on.

        Returns resumed or not found. Raises InvalidTask for an illegal id, and if its schedule
        cannot be read.
        """
        series.schedule.check_series_id(id)
        done = series.calls.Resumption.RACE
        while done is series.calls.Resumption.RACE:
            read = yield from series.calls.get_series(id, self._settings.lease)
            if read.series is None:
                return Change.NOT_FOUND
            schedule = series.records.read_schedule(read.series.record.get("spec", b""))
            made = read.series.whole("made") or read.now
            times = series.ticks.first_after(schedule, id, read.now, made=made)
            fingerprint = read.series.record.get("fingerprint", b"")
            done = yield from series.calls.resume_series(id, fingerprint, times)
        is_resumed = done is series.calls.Resumption.RESUMED
        return Change.RESUMED if is_resumed else Change.NOT_FOUND

    def run_series(self, id: str) -> Steps[Task | None]:
        """Make one more tick of a series, due now; the others stay as they are.

        With `overlap="skip"` it does not run while another one does. Returns its task, or None if
        there is no such series. Raises InvalidTask for an illegal id.
        """
        tick = yield from series.calls.run_series(series.schedule.check_series_id(id))
        if tick is None:
            return None
        return (yield from calls.looking.get(tick, self._key_ring))

    def prune_series(self) -> Steps[Sequence[str]]:
        """Remove the series that no listener's handlers declare any more; returns their ids.

        What producers scheduled stays. Without a live listener nothing is removed: only listeners
        report what is declared.
        """
        counts = yield from calls.looking.count(self._settings.lease)
        if not counts.listeners:
            return []
        walk = series.listing.SeriesWalk(self._settings)
        orphans: list[str] = []
        cursor: str | None = series.listing.FIRST
        while cursor is not None:
            page = yield from walk.find(CHUNK, cursor)
            orphans += [one.id for one in page.series if one.declared and not one.carriers]
            cursor = page.cursor
        removed: list[str] = []
        for chunk in chunks(dict.fromkeys(orphans)):
            removals = yield from series.calls.remove_series(chunk, self._settings.lease)
            pairs = zip(chunk, removals, strict=True)
            removed += [id for id, removal in pairs if removal is series.calls.Removal.REMOVED]
        return removed

    def _schedule(self, spec: "SeriesSpec") -> Steps["Series"]:
        yield from self._before_making([spec.func])
        put = yield from series.definition.put_scheduled(spec, self._settings)
        yield from self._after_making([spec.func])
        return put

    def _schedule_many(self, items: Iterable[Mapping[str, Any]]) -> Steps["list[SeriesOutcome]"]:
        check = partial(series.definition.checked_spec, self._settings.tasks, self._writer)
        specs = [check(position, item) for position, item in enumerate(items)]
        yield from self._before_making(spec.func for spec in specs)
        outcomes = yield from series.definition.put_many_scheduled(specs, self._settings)
        yield from self._after_making(spec.func for spec in specs)
        return outcomes


class SeriesMethods(Methods):
    """Schedule, steer and find series, and wait for the server."""

    schedule = waits(SeriesOperations.schedule)
    schedule_many = waits(SeriesOperations.schedule_many)
    unschedule = waits(SeriesOperations.unschedule)
    get_series = waits(SeriesOperations.get_series)
    list_series = waits(SeriesOperations.list_series)
    pause_series = waits(SeriesOperations.pause_series)
    resume_series = waits(SeriesOperations.resume_series)
    run_series = waits(SeriesOperations.run_series)
    prune_series = waits(SeriesOperations.prune_series)


class AsyncSeriesMethods(AsyncMethods):
    """The same, awaited."""

    schedule = awaits(SeriesOperations.schedule)
    schedule_many = awaits(SeriesOperations.schedule_many)
    unschedule = awaits(SeriesOperations.unschedule)
    get_series = awaits(SeriesOperations.get_series)
    list_series = awaits(SeriesOperations.list_series)
    pause_series = awaits(SeriesOperations.pause_series)
    resume_series = awaits(SeriesOperations.resume_series)
    run_series = awaits(SeriesOperations.run_series)
    prune_series = awaits(SeriesOperations.prune_series)
