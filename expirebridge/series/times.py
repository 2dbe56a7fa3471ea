"""The times of the next tick of a series, on the server's clock, in ms."""

from functools import lru_cache

from expirebridge.model.cron import Cron
from expirebridge.model.schedule import Schedule
from expirebridge.model.time_zones import offset_in, tzdata_at
from expirebridge.store.commands import Times


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
    """Where this host's data of its time zone put a waiting tick that was computed by other data.

    It is the tick that stands for the same time of day.
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
