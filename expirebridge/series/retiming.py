"""Moves waiting ticks to where later data of their time zones put them."""

import logging
from collections.abc import Iterator

from expirebridge.model.log_fields import event
from expirebridge.series.records import read_schedule
from expirebridge.series.times import retimed
from expirebridge.store import commands
from expirebridge.store.commands import Following, Outdated, Retimed, Steps

logger = logging.getLogger("expirebridge")


def retime(version: str, skip: int = 0) -> Steps[int | None]:
    """Look at some series whose waiting ticks were computed by older data than this version.

    The first `skip` of them are left out. Returns how many to leave out next: those for whose zone
    this host has no later data. None if there are no more.
    """
    found = yield from commands.find_outdated(version, skip)
    if not found:
        return None
    items = list(_items(found))
    codes = (yield from commands.retime_ticks(items)) if items else []
    for item, code in zip(items, codes, strict=True):
        if code is Retimed.MOVED and item.times is not None:
            logger.info(
                "series %s: its next tick is %d s later, by time zone data %s",
                item.id, (item.times.tick - item.latest) // 1000, item.times.tzdata,
                extra=event("series retimed", series=item.id, tzdata=item.times.tzdata),
            )  # fmt: skip
    return skip + len(found) - len(items) + codes.count(Retimed.NOT_LATER)


def _items(found: list[Outdated]) -> Iterator[Following]:
    """Where the ticks are to be; a damaged schedule is left out."""
    for one in found:
        try:
            schedule = read_schedule(one.spec)
        except ValueError:
            continue
        times = retimed(schedule, one.id, one.tick, one.tzdata, made=one.made)
        if times is not None:
            yield Following(one.id, one.tick, times)
