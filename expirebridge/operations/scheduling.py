"""Operations on series: what recurs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from expirebridge.durations import Duration
from expirebridge.errors import InvalidTask, PartitionsDiffer, SeriesDeclared
from expirebridge.misfire import MisfireSpec
from expirebridge.new_tasks import Func, call_of
from expirebridge.operations.subject import Subject
from expirebridge.policy.every import Missed, Overlap, schedule_of
from expirebridge.policy.series import SeriesSpec, check_series_id
from expirebridge.policy.task_policies import policy_fields
from expirebridge.retry import RetrySpec
from expirebridge.series.putting import put, put_new
from expirebridge.series.records import read_schedule
from expirebridge.series.state import Series, SeriesListing, SeriesOutcome
from expirebridge.series.times import first_after
from expirebridge.store import calls
from expirebridge.store.calls import LEFT_OUT, PARTITIONS, Put, Removal, Resumption, Steps
from expirebridge.streams import Part, Spot, Stream, encode_spots, read_spots, rows_of_each, take
from expirebridge.task import Change, Task, to_ms

_OUTCOMES = {
    Put.CREATED: SeriesOutcome.CREATED,
    Put.CHANGED: SeriesOutcome.CHANGED,
    Put.UNCHANGED: SeriesOutcome.UNCHANGED,
}
_REMOVALS = {
    Removal.REMOVED: Change.REMOVED,
    Removal.CARRIED: Change.DECLARED,
    Removal.NOT_FOUND: Change.NOT_FOUND,
}


def spec_from(
    folder: Path,
    id: str,
    func: Func,
    args: Sequence[Any] = (),
    *,
    kwargs: Mapping[str, Any] | None = None,
    tags: Sequence[str] = (),
    retry: RetrySpec | None = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: MisfireSpec | None = None,
    **when: Any,
) -> SeriesSpec:
    """Check the arguments of `schedule`. What says when it has its ticks goes to `schedule_of`."""
    name, encoded = call_of(folder, func, args, kwargs)
    return SeriesSpec(
        id=check_series_id(id),
        func=name,
        args=encoded,
        schedule=schedule_of(**when),
        fields=policy_fields(
            tags=tags, retry=retry, timeout=timeout, late_after=late_after, misfire=misfire
        ),
    )


def _checked(folder: Path, position: int, item: Mapping[str, Any]) -> SeriesSpec:
    """Check one of many series. An error names its position."""
    if not isinstance(item, Mapping):
        raise InvalidTask(f"series {position}: give a mapping of schedule's arguments")
    try:
        return spec_from(folder, **item)
    except (InvalidTask, TypeError) as error:
        reason = re.sub(r"\b(spec_from|schedule_of)\(\) ", "", str(error))
        raise InvalidTask(f"series {position}: {reason}") from error


class SchedulingOperations(Subject):
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
    ) -> Steps[Series]:
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
        declare a series of this id, FormatRefused if it would be the first series while a listener
        beats that does not know series, and a ServerError if the server failed or refused a call.
        After ServerUnreachable it is safe to call again.
        """
        spec = spec_from(
            self._settings.tasks, id, func, args, cron=cron, every=every, kwargs=kwargs, tz=tz,
            jitter=jitter, start=start, until=until, missed=missed, overlap=overlap, tags=tags,
            retry=retry, timeout=timeout, late_after=late_after, misfire=misfire,
        )  # fmt: skip
        return self._schedule(spec)

    def schedule_many(self, series: Iterable[Mapping[str, Any]]) -> Steps[list[SeriesOutcome]]:
        """Schedule many series: each is a mapping of `schedule`'s arguments by their names.

        All are checked before the first is sent. They are sent in chunks of up to 20; each chunk is
        made whole or not at all. Returns for each, in order, what was done.

        Raises InvalidTask, whose message names the position, and what `schedule` raises; the chunks
        before the one that failed are made then.
        """
        specs = [
            _checked(self._settings.tasks, position, one) for position, one in enumerate(series)
        ]
        if self._unknown.is_on:
            yield from self._unknown.check(list(dict.fromkeys(spec.func for spec in specs)))
        outcomes: list[SeriesOutcome] = []
        for chunk in calls.batches(specs, calls.MAX_TICKS):
            done = yield from put_new(chunk, lease=self._settings.lease)
            for spec, code in zip(chunk, done, strict=True):
                outcome = _OUTCOMES.get(code)
                if outcome is None:  # there is one of its id already
                    outcome = (yield from self._schedule(spec)).outcome
                    assert outcome is not None  # noqa: S101 - for the type checker
                outcomes.append(outcome)
        return outcomes

    def unschedule(self, id: str) -> Steps[Change]:
        """Remove a series and its waiting tick; what runs, or is retried, runs to its end.

        Returns removed, not found, or declared: a listener's handlers declare it, so it would come
        back. Raises InvalidTask for an illegal id.
        """
        [removal] = yield from calls.remove_series([check_series_id(id)], self._settings.lease)
        return _REMOVALS[removal]

    def get_series(self, id: str) -> Steps[Series | None]:
        """Return the series of this id, or None. Raises InvalidTask for an illegal id."""
        read = yield from calls.get_series(check_series_id(id), self._settings.lease)
        return None if read.series is None else Series.of(read.series, read.now)

    def list_series(
        self, *, limit: int = calls.BATCH, cursor: str | None = None
    ) -> Steps[SeriesListing]:
        """Return up to `limit` series, those first whose next tick is first; paused ones last.

        `listing.cursor` is where the next page begins. Pages are no snapshot: of series that come,
        go or have a tick between two pages, some may be listed twice, or not at all.

        Raises InvalidTask for values that cannot be.
        """
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        if cursor is not None and not _is_rank(cursor) and read_spots(cursor) is None:
            raise _foreign(cursor)
        return self._list(limit, cursor or "0")

    def pause_series(self, id: str) -> Steps[Change]:
        """Let a series make no ticks until it is resumed; its waiting tick is removed.

        A later deploy does not resume it. Returns paused or not found. Raises InvalidTask for an
        illegal id.
        """
        found = yield from calls.pause_series(check_series_id(id))
        return Change.PAUSED if found else Change.NOT_FOUND

    def resume_series(self, id: str) -> Steps[Change]:
        """Let a paused series go on, with the first tick from now on.

        Returns resumed or not found. Raises InvalidTask for an illegal id, and if its schedule
        cannot be read.
        """
        check_series_id(id)
        done = Resumption.RACE
        while done is Resumption.RACE:
            read = yield from calls.get_series(id, self._settings.lease)
            if read.series is None:
                return Change.NOT_FOUND
            schedule = read_schedule(read.series.record.get("spec", b""))
            made = read.series.whole("made") or read.now
            times = first_after(schedule, id, read.now, made=made)
            fingerprint = read.series.text("fingerprint")
            done = yield from calls.resume_series(id, fingerprint, times)
        return Change.RESUMED if done is Resumption.RESUMED else Change.NOT_FOUND

    def run_series(self, id: str) -> Steps[Task | None]:
        """Make one more tick of a series, due now; the others stay as they are.

        With `overlap="skip"` it does not run while another one does. Returns its task, or None if
        there is no such series. Raises InvalidTask for an illegal id.
        """
        tick = yield from calls.run_series(check_series_id(id))
        return None if tick is None else (yield from calls.get(tick))

    def prune_series(self) -> Steps[Sequence[str]]:
        """Remove the series that no listener's handlers declare any more; returns their ids.

        What producers scheduled stays. If no listener beats, nothing is removed: then nobody can
        tell.
        """
        counts = yield from calls.count(self._settings.lease)
        if not counts.listeners:
            return []
        orphans: list[str] = []
        cursor: str | None = "0"
        while cursor is not None:
            page = yield from self._list(calls.BATCH, cursor)
            orphans += [one.id for one in page.series if one.declared and not one.carriers]
            cursor = page.cursor
        removed: list[str] = []
        for batch in calls.batches(dict.fromkeys(orphans)):
            removals = yield from calls.remove_series(batch, self._settings.lease)
            pairs = zip(batch, removals, strict=True)
            removed += [id for id, removal in pairs if removal is Removal.REMOVED]
        return removed

    def _schedule(self, spec: SeriesSpec) -> Steps[Series]:
        lease = self._settings.lease
        if self._unknown.is_on:
            yield from self._unknown.check([spec.func])
        while True:
            read = yield from calls.get_series(spec.id, lease)
            if read.series is not None and "declared" in read.series.record:
                raise SeriesDeclared(spec.id)
            outcome = _OUTCOMES.get((yield from put(spec, read, declared=False, lease=lease)))
            if outcome is None:  # the time of its first tick passed, or another was faster
                continue
            after = yield from calls.get_series(spec.id, lease)
            if after.series is not None:
                return Series.of(after.series, after.now, outcome=outcome)

    def _list(self, limit: int, cursor: str) -> Steps[SeriesListing]:
        while True:
            count = yield from PARTITIONS
            listed = self._list_one if count == 1 else partial(self._list_several, count)
            try:
                return (yield from listed(limit, cursor))
            except PartitionsDiffer:
                if (yield from PARTITIONS) == count:
                    raise

    def _list_several(self, count: int, limit: int, cursor: str) -> Steps[SeriesListing]:
        """The series of all partitions, those first whose next tick is first."""
        spots = [Spot()] * count if cursor == "0" else read_spots(cursor)
        if spots is None or len(spots) != count:
            raise _foreign(cursor)
        streams = [
            Stream(partial(self._read_part, number, count), _order, spot)
            for number, spot in enumerate(spots)
        ]
        found, _ = yield from take(streams, limit=limit)
        left_out = yield from LEFT_OUT
        if all(stream.is_over for stream in streams):
            return SeriesListing(series=found, left_out=left_out)
        cursor = encode_spots([each.spot for each in streams])
        return SeriesListing(series=found, cursor=cursor, left_out=left_out)

    def _read_part(self, number: int, count: int, cursor: str) -> Steps[Part[Series] | None]:
        call = calls.series_page(cursor, self._settings.lease, rows_of_each(count))
        page = yield from calls.at_if_there(call, number, hasty=True)
        if page is None:
            return None
        series = [Series.of(one, page.now) for one in page.series]
        return Part(series, page.cursor, len(series))

    def _list_one(self, limit: int, cursor: str) -> Steps[SeriesListing]:
        if not _is_rank(cursor):
            raise _foreign(cursor)
        found: list[Series] = []
        while len(found) < limit:
            count = min(limit - len(found), calls.BATCH)
            page = yield from calls.series_page(cursor, self._settings.lease, count)
            found += [Series.of(one, page.now) for one in page.series]
            cursor = page.cursor
            if cursor == "0":
                return SeriesListing(series=found)
        return SeriesListing(series=found, cursor=cursor)


def _is_rank(cursor: str) -> bool:
    return cursor.isascii() and cursor.isdigit()


def _foreign(cursor: str) -> InvalidTask:
    return InvalidTask(f"cursor={cursor!r}: give that of the page before")


def _order(series: Series) -> float:
    return to_ms(series.due) if series.due is not None and series.paused is None else float("inf")
