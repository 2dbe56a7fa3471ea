"""The calls about limits: what handlers declare, how full the lanes are, what operators change."""

import contextlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import orjson

from expirebridge.limits.lanes import Lane
from expirebridge.limits.replies import SetLimit, limits_from, numbers_from
from expirebridge.limits.values import LimitListing
from expirebridge.store.record_values import text
from expirebridge.task.calls.call import (
    Argument,
    Command,
    Everywhere,
    OfId,
    rows_of,
    script,
)
from expirebridge.task.queue_place import DeclaredLimit, limit_name_of
from expirebridge.task.task import Change, from_ms


def declare_limits(fingerprint: str, fields: Iterable[tuple[str, bytes]]) -> Command[None]:
    """Declare the limits of a listener's handlers: names and values for the hash `limits`.

    `fingerprint` identifies them; it is empty if no handler has a limit, which matters only where
    there are limits. Raises LimitsNeedOnePartition in a database of several partitions.
    """
    items: list[Argument] = [item for pair in fields for item in pair]
    return script("declare_limits", fingerprint, *items, read=lambda _: None)


def read_limits(lanes: int) -> Command[LimitListing]:
    """Read the declared limits, and so many lanes, those with most tasks first."""
    # Of several partitions none has limits; one that does not answer is no failure then.
    return script("read_limits", lanes, read=_read, route=Everywhere(lambda each: each[0]))


def _read(reply: Sequence[Any]) -> LimitListing:
    declared, set_numbers, *columns = reply
    limits = limits_from(declared)
    numbers = numbers_from(rows_of(set_numbers, 3), limits)
    for_all = {
        one.limit: one.number for one in numbers if one.value is None and one.number is not None
    }
    return LimitListing(
        limits=[one.with_number(for_all.get(name)) for name, one in limits.items()],
        numbers=numbers,
        lanes=[_lane(limits, *row) for row in rows_of(columns, 5)],
    )


def _lane(
    limits: dict[str, DeclaredLimit], name: bytes, held: int, waiting: int, due: int, number: int
) -> Lane:
    lane = text(name)
    limit = limits.get(limit_name_of(lane))
    return Lane(
        name=lane,
        limit=limit.with_number(number if number >= 0 else None) if limit else None,
        held=held,
        waiting=waiting,
        oldest_due=from_ms(due) if due >= 0 else None,
    )


def read_lane_arguments() -> Command[dict[str, list[Any]]]:
    """Read the limits of each function, as `BoundLimit.entry` wrote them."""
    return script("read_limits", 1, read=_read_entries, route=Everywhere(lambda each: each[0]))


def _read_entries(reply: Sequence[Any]) -> dict[str, list[Any]]:
    fields = {text(name): value for name, value in rows_of(reply[0], 2)}
    entries: dict[str, list[Any]] = {}
    for name, value in fields.items():
        # Another client may have written anything.
        with contextlib.suppress(ValueError):
            if name.startswith("f ") and isinstance(read := orjson.loads(value), list):
                entries[name[2:]] = read
    return entries


def set_limit(limit: str, value: str | None, number: int | None) -> Command[SetLimit]:
    """Set the number of a limit, or of one value of it; None takes it back."""
    own = "" if value is None else f" {value}"
    return script("set_limit", limit, own, "" if number is None else str(number), read=SetLimit)


class SetWeight(IntEnum):
    """The result of setting a weight."""

    DONE = 1
    UNKNOWN = 2  # no handler has a limit of that name
    UNFAIR = 3  # it is not fair


def set_weight(limit: str, tenant: str, weight: float) -> Command[SetWeight]:
    """Set how many turns a tenant of a fair limit has for each one of the others."""
    return script("set_weight", limit, tenant, repr(float(weight)), read=SetWeight)


def let_pass(id: str) -> Command[Change]:
    """Free the slots that a finished task keeps; passed, unchanged or not found."""
    return script("let_pass", id, read=_PASSES.__getitem__, route=OfId(id))


_PASSES = {1: Change.PASSED, 2: Change.UNCHANGED, 5: Change.NOT_FOUND}
