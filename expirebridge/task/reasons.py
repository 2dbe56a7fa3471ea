"""Why a task has not run: who explains it, and the spine's own reasons, as sentences."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import cast

from expirebridge.capabilities import given
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import NO_TTL, Circumstances, read_circumstances
from expirebridge.task.durations import human
from expirebridge.task.explaining import (
    Explain,
    Explains,
    Explanations,
    GivesRemarks,
    Precedence,
    ahead,
    at_end,
    because,
    began,
    failure,
    last_line,
    lasted,
    obstacle,
    reason,
    remaining,
    runs,
)
from expirebridge.task.queue_place import HOLD
from expirebridge.task.reason import Reason
from expirebridge.task.task import State, Task
from expirebridge.task.texts import plural

LAPSES_UNTIL_ALONE = 2
"""After so many lapses a task is claimed alone."""
_PAUSES = {"pause", "edit"}
"""What pauses a task, in its history: an edit is a `SET` without a TTL."""
_INEXACT = timedelta(seconds=1)
"""By how much Redis 6.2 may be wrong about the end of a timer, and more."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A task, what decides when it runs, and who explains that."""

    circumstances: Circumstances
    explain: Sequence[Explain]
    """The first that knows a reason has it."""

    @property
    def task(self) -> Task:
        """The task."""
        return self.circumstances.task

    def reason(self) -> Reason:
        """Return the reason for the state of the task."""
        reasons = (explain(self.circumstances) for explain in self.explain)
        found = next(one for one in reasons if one is not None)
        for one in cast("tuple[GivesRemarks, ...]", given("remarks")):
            found = one.remark(self.circumstances, found)
        return found


def find_situation(id: str, settings: Settings) -> Steps[Situation | None]:
    """Read all about the reason for a task's state; None if there is no such task."""
    found = yield from read_circumstances(id, settings.key_ring)
    if found is None:
        return None
    explanations = list[tuple[Precedence, Explain]]()
    for one in cast("tuple[Explains, ...]", given("explain")):
        explanations += (yield from one.explain(found, settings)).items()
    explanations += _OWN.items()
    explanations.sort(key=itemgetter(0))
    return Situation(found, [explain for _, explain in explanations])


def _is_blocked(found: Circumstances) -> Reason | None:
    """It runs no more where it was claimed, or only where nothing else does."""
    task, state = found.task, found.task.state
    if state is State.PENDING and found.needs_listener and task.lapses >= LAPSES_UNTIL_ALONE:
        died = plural(task.lapses, "listener", "listeners")
        text = f"{died} died with it: it runs when one has nothing else to do"
        return obstacle(found, "alone", text, f"expirebridge show {task.id}")
    if state is not State.RUNNING:
        return None
    if found.cancel:
        text = f"{runs(found)}; it was cancelled: no further attempt follows"
        return reason(found, "cancelling", text, task.started, "")
    if found.looked_at is not None and found.looked_at < found.now:
        text = f"{runs(found)}; its listener is silent: another one takes it over"
        return reason(found, "silent", text, task.started, "expirebridge doctor")
    return None


# Pending.


def _pending(found: Circumstances) -> Reason:
    if found.needs_listener:
        if found.ahead:
            text = f"{plural(found.ahead, 'task is', 'tasks are')} due before it"
            return obstacle(found, "behind", text, "expirebridge doctor")
        return obstacle(found, "due", "no listener has claimed it yet", "expirebridge doctor")
    task, when = found.task, ahead(found.task.due, found.now)
    ended, last = found.last_end, found.last_move
    code, text = "scheduled", f"due {when}"
    if found.timer == NO_TTL:
        code, text = "no-ttl", "a client took the TTL off its key: a listener pauses it when due"
    elif found.watched:
        code, text = "watched", f"it runs {when}, unless a beat comes before"
    elif _was_edited(found):
        code, text = "put-off", f"a client set the TTL of its key: due {when}"
    elif ended is not None and ended.what == "retry":
        number = f"attempt {ended.attempt}" if ended.attempt is not None else "an attempt"
        code, text = "retry", f"{number} failed{because(ended.error)}; the next one is due {when}"
    elif ended is not None and ended.what == "snoozed":
        code, text = "snoozed", f"its handler put it off{because(ended.error)}; due {when}"
    since = last.at if last is not None else task.created
    return reason(found, code, text, since, f"expirebridge run {task.id}")


def _was_edited(found: Circumstances) -> bool:
    """True if the due time is that of a plain command, whether a listener has seen it or not."""
    last = found.last_move
    if last is not None and last.what == "edit":
        return True
    return found.looked_at is not None and abs(found.task.due - found.looked_at) > _INEXACT


# Waiting.


def _waits(found: Circumstances) -> Reason:
    place = found.task.queued
    if place is None or not place.lane.startswith(HOLD):
        return reason(found, "slot", "waits for a slot", found.parked, "expirebridge limits")
    held = place.lane.removeprefix(HOLD)
    if not found.is_held:
        text = f"the hold of {held} has ended: it is let go soon"
        return reason(found, "released", text, found.parked, "")
    kind, _, name = held.partition(" ")
    remedy = f"expirebridge release --{kind}" + (f" {shlex.quote(name)}" if name else "")
    return reason(found, "hold", str(place), found.parked, remedy)


# Paused, running, finished.


def _is_paused(found: Circumstances) -> Reason:
    task = found.task
    pauses = (one.at for one in reversed(task.history) if one.what in _PAUSES)
    text = f"paused, {remaining(task.due - found.now)} before it is due"
    return reason(found, "paused", text, next(pauses, None), f"expirebridge resume {task.id}")


def _runs(found: Circumstances) -> Reason:
    task = found.task
    if found.timeout is not None and lasted(found) > found.timeout:
        text = f"{runs(found)}; its timeout of {human(found.timeout)} has passed"
        return reason(found, "late", text, task.started, f"expirebridge cancel {task.id}")
    return reason(found, "running", runs(found), task.started, "")


def _succeeded(found: Circumstances) -> Reason:
    text = f"succeeded{at_end(found)}, in attempt {found.task.attempt}{began(found)}"
    return reason(found, "succeeded", text, found.task.ended, "")


def _cancelled(found: Circumstances) -> Reason:
    task = found.task
    why = last_line(task.error)
    text = f"cancelled{at_end(found)}" + (because(why) if why else ", by request")
    text += began(found)
    return reason(found, "cancelled", text, task.ended, f"expirebridge run {task.id}")


_OF_STATE: dict[State, Callable[[Circumstances], Reason]] = {
    State.PENDING: _pending,
    State.WAITING: _waits,
    State.PAUSED: _is_paused,
    State.RUNNING: _runs,
    State.SUCCEEDED: _succeeded,
    State.FAILED: failure,
    State.CANCELLED: _cancelled,
}


def _otherwise(found: Circumstances) -> Reason:
    return _OF_STATE[found.task.state](found)


_OWN: Explanations = {Precedence.BLOCKED: _is_blocked, Precedence.OTHERWISE: _otherwise}
