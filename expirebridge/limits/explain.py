"""Why a task waits that is limited: for a slot, or for a start of a rate."""

import math
from dataclasses import replace
from datetime import datetime

from expirebridge.limits.lanes import without_value
from expirebridge.settings import Settings
from expirebridge.store.queue_places import place_from
from expirebridge.store.record_values import text as read_text
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.explaining import (
    Explanations,
    Precedence,
    ahead,
    clock,
    failure,
    obstacle,
    reason,
)
from expirebridge.task.queue_place import HOLD, DeclaredLimit, QueuePlace
from expirebridge.task.reason import Reason
from expirebridge.task.task import State, from_ms, to_ms

SHOWN_HOLDERS = 3
"""At most so many of the tasks that have a slot are named."""


def explain(_found: Circumstances, _settings: Settings) -> Steps[Explanations]:
    """Explain tasks that wait for a lane, were granted a start in one, or failed and keep it."""
    yield from ()
    return {Precedence.BLOCKED: _is_blocked, Precedence.SOON: _was_granted}


def _is_blocked(found: Circumstances) -> Reason | None:
    if found.task.state is State.FAILED and found.fact("slots") is not None:
        return failure(found, "; it lets nobody of its lane pass")
    place = found.task.queued
    if found.task.state is not State.WAITING or place is None or place.lane.startswith(HOLD):
        return None
    return _waits(found, _shown(place, found))


def _waits(found: Circumstances, place: QueuePlace) -> Reason:
    since, remedy, limit = found.parked, "expirebridge limits", place.limit
    if limit is None:
        return reason(found, "undeclared", str(place), since, remedy)
    if limit.interval is not None:
        start = _next_start(found, place, limit)
        return _starts(found, place, start)
    holders = _holders(found)
    failed = next((id for id, state in holders if state == State.FAILED), None)
    if limit.ordered and failed is not None:
        text = f"{place}; {failed} failed, and lets nobody pass"
        return reason(found, "blocked", text, since, f"expirebridge let-pass {failed}")
    moving = found.fact("moving")
    if limit.ordered and moving is not None and not holders:
        text = f"{place}; its order is kept: tasks are being moved {read_text(moving)}"
        return reason(found, "moving", text, since, "expirebridge doctor")
    return reason(found, "slot", f"{place}{_held_by(holders)}", since, remedy)


def _was_granted(found: Circumstances) -> Reason | None:
    granted = found.fact("granted")
    if found.task.state is not State.PENDING or granted is None:
        return None
    place = _shown(place_from(granted), found)
    if found.needs_listener:
        text = "it has its slot, and a listener is about to claim it"
        return obstacle(found, "granted", text, "")
    if place.limit is None:
        return None
    return _starts(found, place, found.task.due)


def _shown(place: QueuePlace, found: Circumstances) -> QueuePlace:
    """The place, without the argument in the name of its lane if that is not to be shown."""
    return replace(place, lane=without_value(place.lane)) if found.hides_arguments else place


def _starts(found: Circumstances, place: QueuePlace, start: datetime) -> Reason:
    """It waits for a start of a rate, or was granted one that is not due yet."""
    code, text, rests_until = "rate", "", _from_us(found.fact("rest") or 0)
    if rests_until > found.now:
        code, text = "rests", f"; the lane rests until {clock(rests_until)}"
    text = f"{place}{text}; its start is due {ahead(start, found.now)}"
    return reason(found, code, text, found.parked, "expirebridge limits")


def _times_of(limit: DeclaredLimit) -> tuple[float, float]:
    """The microseconds of one start of a rate, and of all that may start at once."""
    interval, burst = (limit.interval or 0) * 1_000_000, limit.burst or 1
    if not limit.of:
        return interval, burst * interval
    return interval, math.ceil(burst * (limit.every or 0) * 1_000_000 / (limit.starts or 1))


def _next_start(found: Circumstances, place: QueuePlace, limit: DeclaredLimit) -> datetime:
    """When a rate lets it start, if no other task comes or goes: as `next_start` in limits.lua.

    The facts are in microseconds: when all starts of the rate are made good, when they are after
    `Busy`, and of a budget what is taken by this task and by those before it.
    """
    now = to_ms(found.now) * 1000
    one, span = _times_of(limit)
    before = place.held + (place.position or 1) - 1
    takes = found.fact("takes")
    ahead = (before + 1) * one if takes is None else takes
    arrival, rest = found.fact("arrival") or 0, found.fact("rest") or 0
    arrival = max(min(max(arrival, now), now + span), rest and rest + span - one)
    return _from_us(max(now, arrival + ahead - span))


def _holders(found: Circumstances) -> list[tuple[str, str]]:
    """Some tasks that have a slot of its lane, and their states; that of a lost one is empty."""
    ids, states = found.all_facts("holder"), found.all_facts("is")
    return sorted((read_text(id), read_text(state)) for id, state in zip(ids, states, strict=True))


def _held_by(holders: list[tuple[str, str]]) -> str:
    """Which tasks have the slots."""
    shown = [f"{id} ({state or 'gone'})" for id, state in holders[:SHOWN_HOLDERS]]
    more = " and others" if len(holders) > SHOWN_HOLDERS else ""
    return f"; taken by {', '.join(shown)}{more}" if shown else ""


def _from_us(us: float) -> datetime:
    return from_ms(int(us // 1000))
