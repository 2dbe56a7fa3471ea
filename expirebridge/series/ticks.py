"""Makes the next tick of each series whose latest tick was due."""

import logging
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from expirebridge.series import calls as series_commands
from expirebridge.series.calls import (
    MAX_TICKS,
    DueSeries,
    NextTick,
    Outdated,
    Retimed,
    Times,
)
from expirebridge.series.cron import Cron
from expirebridge.series.records import read_schedule
from expirebridge.series.schedule import Schedule
from expirebridge.series.time_zones import offset_in, tzdata_at
from expirebridge.task.calls.call import Steps
from expirebridge.task.texts import event

# The times of the next tick of a series, on the server's clock, in ms.


def first_after(schedule: Schedule, id: str, now: int, *, made: int) -> Times | None:
    """The first tick after a moment; None: there is none any more.

    `made` is when the series was made.
    """
    return _times(schedule, id, schedule.next_after(now, created=made), made)


def following(schedule: Schedule, id: str, latest: int, now: int, *, made: int) -> Times | None:
    """The tick that is to be made after the latest one, which was due.

    If more than one has come due since, because no listener was there, all but one are left out:
    with `missed="latest"` it is the last that was due, and else the first that is still to come.
    """
    # All ticks of a series are put off by the same time, so jitter is a clock that is slow.
    now -= schedule.delay(id)
    tick = schedule.next_after(latest, created=made)
    if tick is not None and tick <= now:
        coming = schedule.next_after(now, created=made)
        if schedule.missed == "latest":
            tick = _last_before(schedule, tick, now + 1 if coming is None else coming, made)
        else:
            tick = coming
    return _times(schedule, id, tick, made)


def retimed(schedule: Schedule, id: str, tick: int, tzdata: str, *, made: int) -> Times | None:
    """Recompute a waiting tick with this host's data of its time zone, if other data made it.

    It is the tick of the same time of day.
    """
    offset = offset_in(tzdata)
    if isinstance(schedule.rule, Cron) and offset is not None:
        tick = schedule.rule.moved(tick, offset)
    return _times(schedule, id, tick, made)


def _times(schedule: Schedule, id: str, tick: int | None, made: int) -> Times | None:
    if tick is None:
        return None
    delay, after = schedule.delay(id), schedule.next_after(tick, created=made)
    return Times(
        tick, tick + delay, None if after is None else after + delay, tzdata_at(schedule.tz, tick)
    )


@lru_cache(maxsize=4096)
def _last_before(schedule: Schedule, tick: int, end: int, made: int) -> int:
    """The last tick before a moment, of which there is one: `tick`, or a later one."""
    last, latest = tick, end - 1
    while last < latest:
        middle = (last + latest + 1) // 2
        found = schedule.next_after(middle - 1, created=made)
        if found is not None and found < end:
            last = found
        else:
            latest = middle - 1
    return last


logger = logging.getLogger("expirebridge")


class Ticked(NamedTuple):
    """The result of one pass."""

    now: int
    """The server's time, in ms."""
    next: int | None
    """The ms at which the next tick is to be made; it may have passed. None: there is none."""
    made: int
    """How many ticks were made, by this listener."""


def make_due_ticks(most: int = MAX_TICKS) -> Steps[Ticked]:
    """Make the next tick of up to so many series; of each once, however many listeners ask."""
    found = yield from series_commands.find_due_series(most)
    items = [_following(one, found.now) for one in found.series]
    made = (yield from series_commands.make_ticks(items)) if items else []
    coming = [item.times.due for item in items if item.times is not None]
    if found.following is not None:
        coming.append(found.following)
    return Ticked(found.now, min(coming, default=None), sum(made))


def _following(series: DueSeries, now: int) -> NextTick:
    """A damaged schedule makes no more ticks: the series stays, to be looked at."""
    try:
        schedule = read_schedule(series.spec)
    except ValueError as error:
        logger.error(  # noqa: TRY400 - the reason is in the record, not in this code
            "series %s makes no more ticks: its schedule cannot be read: %s", series.id, error,
            extra=event("series broken", series=series.id, error=str(error)),
        )  # fmt: skip
        return NextTick(series.id, series.tick, None)
    times = following(schedule, series.id, series.tick, now, made=series.made)
    return NextTick(series.id, series.tick, times)


# Moves waiting ticks to where later data of their time zones put them.


def retime(version: str, skip: int = 0) -> Steps[int | None]:
    """Look at some series whose waiting ticks were computed by older data than this version.

    The first `skip` of them are left out. Returns how many to leave out next: those for whose zone
    this host has no later data. None if there are no more.
    """
    found = yield from series_commands.find_outdated(version, skip)
    if not found:
        return None
    items = list(_items(found))
    codes = (yield from series_commands.retime_ticks(items)) if items else []
    for item, code in zip(items, codes, strict=True):
        if code is Retimed.MOVED and item.times is not None:
            logger.info(
                "series %s: its next tick is %d s later, by time zone data %s",
                item.id, (item.times.tick - item.latest) // 1000, item.times.tzdata,
                extra=event("series retimed", series=item.id, tzdata=item.times.tzdata),
            )  # fmt: skip
    return skip + len(found) - len(items) + codes.count(Retimed.NOT_LATER)


def _items(found: list[Outdated]) -> Iterator[NextTick]:
    """The new times of the ticks, without damaged schedules."""
    for one in found:
        try:
            schedule = read_schedule(one.spec)
        except ValueError:
            continue
        times = retimed(schedule, one.id, one.tick, one.tzdata, made=one.made)
        if times is not None:
            yield NextTick(one.id, one.tick, times)
