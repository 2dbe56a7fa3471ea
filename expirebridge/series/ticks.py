"""Makes the next tick of each series whose latest tick was due."""

import logging
from typing import NamedTuple

from expirebridge.model.log_fields import event
from expirebridge.series.records import read_schedule
from expirebridge.series.times import following
from expirebridge.store import commands
from expirebridge.store.commands import MAX_TICKS, DueSeries, Following, Steps

logger = logging.getLogger("expirebridge")


class Ticked(NamedTuple):
    """What one pass brought."""

    now: int
    """The server's time, in ms."""
    next: int | None
    """The ms at which the next tick is to be made; it may have passed. None: there is none."""
    made: int
    """How many ticks were made, by this listener."""


def make_due_ticks(most: int = MAX_TICKS) -> Steps[Ticked]:
    """Make the next tick of up to so many series; of each once, however many listeners ask."""
    found = yield from commands.find_due_series(most)
    items = [_following(one, found.now) for one in found.series]
    made = (yield from commands.make_ticks(items)) if items else []
    coming = [item.times.due for item in items if item.times is not None]
    if found.following is not None:
        coming.append(found.following)
    return Ticked(found.now, min(coming, default=None), sum(made))


def _following(series: DueSeries, now: int) -> Following:
    """A damaged schedule makes no more ticks: the series stays, to be looked at."""
    try:
        schedule = read_schedule(series.spec)
    except ValueError as error:
        logger.error(  # noqa: TRY400 - the reason is in the record, not in this code
            "series %s makes no more ticks: its schedule cannot be read: %s", series.id, error,
            extra=event("series broken", series=series.id, error=str(error)),
        )  # fmt: skip
        return Following(series.id, series.tick, None)
    times = following(schedule, series.id, series.tick, now, made=series.made)
    return Following(series.id, series.tick, times)
