"""The call that reads limits and their lanes."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from expirebridge.model.lanes import DeclaredLimit, Lane, limit_name_of
from expirebridge.model.task import LimitListing, from_ms
from expirebridge.store.commands.call import Command, Everywhere, rows_of, script
from expirebridge.store.lane_records import limits_from
from expirebridge.store.task_records import text


def read_limits(lanes: int) -> Command[LimitListing]:
    """Read the declared limits, and so many lanes, those with most tasks first."""
    return script("read_limits", lanes, read=_read, route=Everywhere(partial(_joined, lanes)))


def _read(reply: Sequence[Any]) -> LimitListing:
    declared, *columns = reply
    limits = limits_from(declared)
    return LimitListing(
        limits=list(limits.values()),
        lanes=[_lane(limits, *row) for row in rows_of(columns, 4)],
    )


def _lane(limits: dict[str, DeclaredLimit], name: bytes, held: int, waiting: int, due: int) -> Lane:
    lane = text(name)
    return Lane(
        name=lane,
        limit=limits.get(limit_name_of(lane)),
        held=held,
        waiting=waiting,
        oldest_due=from_ms(due) if due >= 0 else None,
    )


def _joined(most: int, each: Sequence[LimitListing]) -> LimitListing:
    """Those of all partitions. Only holds have a lane of one name in several."""
    found: dict[str, list[Lane]] = {}
    for lane in (lane for one in each for lane in one.lanes):
        found.setdefault(lane.name, []).append(lane)
    lanes = sorted(map(_sum, found.values()), key=lambda lane: -lane.held - lane.waiting)
    return LimitListing(limits=each[0].limits, lanes=lanes[:most])


def _sum(parts: Sequence[Lane]) -> Lane:
    return Lane(
        name=parts[0].name,
        limit=parts[0].limit,
        held=sum(lane.held for lane in parts),
        waiting=sum(lane.waiting for lane in parts),
        oldest_due=min((lane.oldest_due for lane in parts if lane.oldest_due), default=None),
    )
