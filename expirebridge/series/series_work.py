"""The work of the operations on series. It is loaded when one of them is first used."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from expirebridge.errors import InvalidTask, SeriesDeclared
from expirebridge.fleet.unknown_functions import UnknownFunctions
from expirebridge.series import calls as series_commands
from expirebridge.series.calls import Put, Removal, Resumption
from expirebridge.series.definition import put, put_new
from expirebridge.series.records import read_schedule
from expirebridge.series.schedule import SeriesSpec, check_series_id, schedule_of
from expirebridge.series.ticks import first_after
from expirebridge.series.values import Series, SeriesListing, SeriesOutcome
from expirebridge.settings import HandlersPlace, Settings
from expirebridge.task.argument_writer import ArgumentWriter
from expirebridge.task.calls import looking
from expirebridge.task.calls.call import (
    BATCH,
    LEFT_OUT,
    Steps,
    at_if_available,
    batches,
)
from expirebridge.task.durations import Duration
from expirebridge.task.keywords import advice_on
from expirebridge.task.new_task import Func, call_of, is_private
from expirebridge.task.operations.listing import (
    PageChunk,
    PageCursor,
    PageStream,
    encode_spots,
    is_rank,
    over_partitions,
    read_ranks,
    rows_of_each,
    take,
)
from expirebridge.task.policies import MisfireSpec, RetrySpec, policy_fields
from expirebridge.task.task import Change, Task, to_ms

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
    place: HandlersPlace,
    writer: ArgumentWriter,
    /,
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
    name, encoded = call_of(place, func, args, kwargs)
    if is_private(func) and not writer.seals:
        raise InvalidTask(
            f"func={name!r}: the ticks of a series keep private arguments out of their keys' names "
            "only if they are sealed: give keys (EXPIREBRIDGE_KEYS)"
        )
    return SeriesSpec(
        id=check_series_id(id),
        func=name,
        args=writer.sealed(encoded, id, name),
        schedule=schedule_of(**when),
        fields=policy_fields(
            tags=tags, retry=retry, timeout=timeout, late_after=late_after, misfire=misfire
        ),
    )


def _checked(
    place: HandlersPlace, writer: ArgumentWriter, position: int, item: Mapping[str, Any]
) -> SeriesSpec:
    """Check one of many series. An error names its position."""
    if not isinstance(item, Mapping):
        raise InvalidTask(f"series {position}: give a mapping of schedule's arguments")
    try:
        return spec_from(place, writer, **item)
    except (InvalidTask, TypeError) as error:
        reason = re.sub(r"\b(spec_from|schedule_of)\(\) ", "", str(error))
        advice = advice_on(error, spec_from, schedule_of) if isinstance(error, TypeError) else ""
        raise InvalidTask(f"series {position}: {reason}{advice}") from error


class SeriesWork:
    """The implementation of `SchedulingOperations`, method by method."""

    def __init__(
        self, settings: Settings, unknown: UnknownFunctions, writer: ArgumentWriter
    ) -> None:
        self._place = settings.tasks
        self._writer = writer
        self._key_ring = settings.key_ring
        self._lease = settings.lease
        self._unknown = unknown

    def schedule(self, id: str, func: Func, args: Sequence[Any], **options: Any) -> Steps[Series]:
        """Check the series at once, and put it. `options` are those of `spec_from`."""
        return self._schedule(spec_from(self._place, self._writer, id, func, args, **options))

    def schedule_many(self, series: Iterable[Mapping[str, Any]]) -> Steps[list[SeriesOutcome]]:
        """Check all, and put those that are new in chunks, the others one by one."""
        specs = [
            _checked(self._place, self._writer, position, one)
            for position, one in enumerate(series)
        ]
        if self._unknown.refuses:
            yield from self._unknown.check([spec.func for spec in specs])
        outcomes: list[SeriesOutcome] = []
        for chunk in batches(specs, series_commands.MAX_TICKS):
            done = yield from put_new(chunk, lease=self._lease)
            for spec, code in zip(chunk, done, strict=True):
                outcome = _OUTCOMES.get(code)
                if outcome is None:  # there is one of its id already
                    outcome = (yield from self._put(spec)).outcome
                    assert outcome is not None  # noqa: S101 - for the type checker
                outcomes.append(outcome)
        if self._unknown.warns:
            yield from self._unknown.warn([spec.func for spec in specs])
        return outcomes

    def unschedule(self, id: str) -> Steps[Change]:
        """Remove a series that no listener declares."""
        [removal] = yield from series_commands.remove_series([check_series_id(id)], self._lease)
        return _REMOVALS[removal]

    def get(self, id: str) -> Steps[Series | None]:
        """Read a series."""
        read = yield from series_commands.get_series(check_series_id(id), self._lease)
        return (
            None
            if read.series is None
            else Series.of(read.series, read.now, key_ring=self._key_ring)
        )

    def list(self, limit: int, cursor: str | None) -> Steps[SeriesListing]:
        """Read a page of series."""
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        if cursor is not None and not is_rank(cursor) and read_ranks(cursor) is None:
            raise _foreign(cursor)
        return self._list(limit, cursor or "0")

    def pause(self, id: str) -> Steps[Change]:
        """Pause a series."""
        found = yield from series_commands.pause_series(check_series_id(id))
        return Change.PAUSED if found else Change.NOT_FOUND

    def resume(self, id: str) -> Steps[Change]:
        """Resume a series, unless another change comes in between: then try again."""
        check_series_id(id)
        done = Resumption.RACE
        while done is Resumption.RACE:
            read = yield from series_commands.get_series(id, self._lease)
            if read.series is None:
                return Change.NOT_FOUND
            schedule = read_schedule(read.series.record.get("spec", b""))
            made = read.series.whole("made") or read.now
            times = first_after(schedule, id, read.now, made=made)
            fingerprint = read.series.text("fingerprint")
            done = yield from series_commands.resume_series(id, fingerprint, times)
        return Change.RESUMED if done is Resumption.RESUMED else Change.NOT_FOUND

    def run(self, id: str) -> Steps[Task | None]:
        """Make a tick that is due now, and read it."""
        tick = yield from series_commands.run_series(check_series_id(id))
        return None if tick is None else (yield from looking.get(tick, self._key_ring))

    def prune(self) -> Steps[Sequence[str]]:
        """Find all series that no listener declares any more, then remove them."""
        counts = yield from looking.count(self._lease)
        if not counts.listeners:
            return []
        orphans: list[str] = []
        cursor: str | None = "0"
        while cursor is not None:
            page = yield from self._list(BATCH, cursor)
            orphans += [one.id for one in page.series if one.declared and not one.carriers]
            cursor = page.cursor
        removed: list[str] = []
        for batch in batches(dict.fromkeys(orphans)):
            removals = yield from series_commands.remove_series(batch, self._lease)
            pairs = zip(batch, removals, strict=True)
            removed += [id for id, removal in pairs if removal is Removal.REMOVED]
        return removed

    def _schedule(self, spec: SeriesSpec) -> Steps[Series]:
        if self._unknown.refuses:
            yield from self._unknown.check([spec.func])
        series = yield from self._put(spec)
        if self._unknown.warns:
            yield from self._unknown.warn([spec.func])
        return series

    def _put(self, spec: SeriesSpec) -> Steps[Series]:
        while True:
            read = yield from series_commands.get_series(spec.id, self._lease)
            if read.series is not None and "declared" in read.series.record:
                raise SeriesDeclared(spec.id)
            outcome = _OUTCOMES.get((yield from put(spec, read, declared=False)))
            if outcome is None:  # the time of its first tick passed, or another was faster
                continue
            after = yield from series_commands.get_series(spec.id, self._lease)
            if after.series is not None:
                return Series.of(after.series, after.now, outcome=outcome, key_ring=self._key_ring)

    def _list(self, limit: int, cursor: str) -> Steps[SeriesListing]:
        def list_in(count: int) -> Steps[SeriesListing]:
            if count == 1:
                return self._list_one(limit, cursor)
            return self._list_several(count, limit, cursor)

        return over_partitions(list_in)

    def _list_several(self, count: int, limit: int, cursor: str) -> Steps[SeriesListing]:
        """The series of all partitions, those first whose next tick is first."""
        spots = [PageCursor()] * count if cursor == "0" else read_ranks(cursor)
        if spots is None or len(spots) != count:
            raise _foreign(cursor)
        streams = [
            PageStream(partial(self._read_part, number, count), _order, spot)
            for number, spot in enumerate(spots)
        ]
        found, _ = yield from take(streams, limit=limit)
        left_out = yield from LEFT_OUT
        if all(stream.is_over for stream in streams):
            return SeriesListing(series=found, left_out=left_out)
        cursor = encode_spots([each.spot for each in streams])
        return SeriesListing(series=found, cursor=cursor, left_out=left_out)

    def _read_part(self, number: int, count: int, cursor: str) -> Steps[PageChunk[Series] | None]:
        call = series_commands.series_page(cursor, self._lease, rows_of_each(count))
        page = yield from at_if_available(call, number, fail_fast=True)
        if page is None:
            return None
        series = [Series.of(one, page.now, key_ring=self._key_ring) for one in page.series]
        return PageChunk(series, page.cursor, len(series))

    def _list_one(self, limit: int, cursor: str) -> Steps[SeriesListing]:
        if not is_rank(cursor):
            raise _foreign(cursor)
        found: list[Series] = []
        while len(found) < limit:
            count = min(limit - len(found), BATCH)
            page = yield from series_commands.series_page(cursor, self._lease, count)
            found += [Series.of(one, page.now, key_ring=self._key_ring) for one in page.series]
            cursor = page.cursor
            if cursor == "0":
                return SeriesListing(series=found)
        return SeriesListing(series=found, cursor=cursor)


def _foreign(cursor: str) -> InvalidTask:
    return InvalidTask(f"cursor={cursor!r}: give that of the page before")


def _order(series: Series) -> float:
    return to_ms(series.due) if series.due is not None and series.paused is None else float("inf")
