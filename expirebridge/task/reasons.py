"""Why a task has not run: the reasons for each state, as sentences."""

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from expirebridge.fleet import calls as fleet
from expirebridge.fleet.calls import Fleet
from expirebridge.fleet.functions import KnownFunctions
from expirebridge.fleet.lacking import NOT_OPENED, Lacking
from expirebridge.groups import calls as groups
from expirebridge.groups.names import group_of
from expirebridge.groups.values import Group
from expirebridge.ledger.calls import MOST_DIRTY
from expirebridge.limits.lanes import HOLD, DeclaredLimit, QueuePlace
from expirebridge.settings import Settings
from expirebridge.task.calls import looking
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import (
    NO_TTL,
    Circumstances,
    read_circumstances,
)
from expirebridge.task.counting import plural
from expirebridge.task.durations import human
from expirebridge.task.history import HistoryEntry
from expirebridge.task.reason import Reason
from expirebridge.task.task import State, Task, from_ms, to_ms

LAPSES_UNTIL_ALONE = 2
"""After so many lapses a task is claimed alone."""
SHOWN_HOLDERS = 3
"""At most so many of the tasks that have a slot are named."""
_ENDED = {"retry", "snoozed", "released", "unknown", "lapsed", "rearmed"}
"""How an attempt ends after which another one follows, in a task's history."""
_PAUSES = {"pause", "edit"}
"""What pauses a task, in its history: an edit is a `SET` without a TTL."""
_INEXACT = timedelta(seconds=1)
"""By how much Redis 6.2 may be wrong about the end of a timer, and more."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """The listeners, as far as a due task depends on them."""

    fleet: Fleet
    running: int
    """How many tasks run, in all."""


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known about the reason for a task's state."""

    circumstances: Circumstances
    listeners: Listeners | None = None
    """None unless the task waits for a listener, or runs in one."""
    group: Group | None = None
    """The group of which the task is a member, or the follow-up."""

    @property
    def task(self) -> Task:
        """The task."""
        return self.circumstances.task

    @property
    def _awaited(self) -> Group | None:
        """The group that resumes the task when it ends, if the task is its follow-up."""
        group = self.group
        if group is None or group.ended is not None or group.then != self.task.id:
            return None
        return group

    def reason(self) -> Reason:
        """Return the reason for the state of the task."""
        found = self.circumstances
        if found.task.state is State.PENDING and self.listeners is not None:
            return _waits_for_listener(found, self.listeners)
        if found.task.state is State.RUNNING and self.listeners is not None:
            return _runs(found, self.listeners.fleet)
        if found.task.state is State.PAUSED and (group := self._awaited) is not None:
            return _waits_for_group(found, group)
        return _OF_STATE[found.task.state](found)


def find_situation(id: str, settings: Settings) -> Steps[Situation | None]:
    """Read all about the reason for a task's state; None if there is no such task."""
    lease = settings.lease
    found = yield from read_circumstances(id, settings.key_ring)
    if found is None:
        return None
    name = group_of(id)
    group = (yield from groups.get_group(name)) if name is not None else None
    if found.task.state is not State.RUNNING and not _needs_listener(found):
        return Situation(found, group=group)
    known = yield from fleet.read_fleet(lease)
    counts = yield from looking.count(lease)
    return Situation(found, Listeners(known, counts.running), group)


def _needs_listener(found: Circumstances) -> bool:
    """True if the task is due, or its function is looked for again and again."""
    if found.task.state is not State.PENDING or found.timer == NO_TTL:
        return False
    return found.task.due <= found.now or _is_unknown(found)


def _is_unknown(found: Circumstances) -> bool:
    ended = _last_end(found)
    return ended is not None and ended.what == "unknown"


def _last_end(found: Circumstances) -> HistoryEntry | None:
    """The end of the last attempt, if another one is to follow."""
    return next((one for one in reversed(found.task.history) if one.what in _ENDED), None)


def _last_move(found: Circumstances) -> HistoryEntry | None:
    """The last entry of its history but for edits of its arguments, which move nothing."""
    return next((one for one in reversed(found.task.history) if one.what != "edit_args"), None)


# Pending.


def _not_due(found: Circumstances) -> Reason:
    if found.granted is not None and found.granted.limit is not None:
        return _starts(found, found.granted, found.granted.limit, found.task.due)
    task, when = found.task, _ahead(found.task.due, found.now)
    ended, last = _last_end(found), _last_move(found)
    code, text = "scheduled", f"due {when}"
    if found.timer == NO_TTL:
        code, text = "no-ttl", "a client took the TTL off its key: a listener pauses it when due"
    elif found.watched:
        code, text = "watched", f"it runs {when}, unless a beat comes before"
    elif _was_edited(found):
        code, text = "put-off", f"a client set the TTL of its key: due {when}"
    elif ended is not None and ended.what == "retry":
        number = f"attempt {ended.attempt}" if ended.attempt is not None else "an attempt"
        code, text = "retry", f"{number} failed{_because(ended.error)}; the next one is due {when}"
    elif ended is not None and ended.what == "snoozed":
        code, text = "snoozed", f"its handler put it off{_because(ended.error)}; due {when}"
    since = last.at if last is not None else task.created
    return _reason(found, code, text, since, f"expirebridge run {task.id}")


def _was_edited(found: Circumstances) -> bool:
    """True if the due time is that of a plain command, whether a listener has seen it or not."""
    last = _last_move(found)
    if last is not None and last.what == "edit":
        return True
    return found.looked_at is not None and abs(found.task.due - found.looked_at) > _INEXACT


def _waits_for_listener(found: Circumstances, listeners: Listeners) -> Reason:
    task = found.task
    code, text, remedy = _obstacle(found, listeners)
    if task.due > found.now:
        text = f"{text}; it is tried again {_ahead(task.due, found.now)}"
        return _reason(found, code, text, None, remedy)
    text = f"due for {_ago(task.due, found.now)}, but {text}"
    return _reason(found, code, text, task.due, remedy)


def _obstacle(found: Circumstances, listeners: Listeners) -> tuple[str, str, str]:
    """What a due task waits for: a word, a clause, and the command."""
    task, at_work = found.task, listeners.fleet.claiming
    if not listeners.fleet.listeners:
        return "no-listener", "no listener sends heartbeats", "expirebridge listen"
    if lack := KnownFunctions.of(listeners.fleet).lack(task.func):
        text = f"its function {task.func} is missing: {lack}"
        return "unknown-function", text, "expirebridge handlers --fleet"
    if task.due > found.now:
        return _lacking(task)
    if not at_work.listeners or KnownFunctions.of(at_work).lack(task.func):
        return "idle", _idle(listeners.fleet, task.func), "expirebridge handlers --fleet"
    if found.dirty is not None and found.dirty > MOST_DIRTY:
        text = f"its ledger must first write {plural(found.dirty, 'row', 'rows')}"
        return "ledger", text, "expirebridge ledger status"
    if task.lapses >= LAPSES_UNTIL_ALONE:
        died = plural(task.lapses, "listener", "listeners")
        text = f"{died} died with it: it runs when one has nothing else to do"
        return "alone", text, f"expirebridge show {task.id}"
    most = at_work.concurrency
    if most is not None and listeners.running >= most:
        running = plural(listeners.running, "task runs", "tasks run")
        text = f"the listeners are full: {running}, of at most {most:,}"
        return "full", text, "expirebridge listen"
    if found.granted is not None:
        return "granted", "it has its slot, and a listener is about to claim it", ""
    if found.dirty is not None:
        text = "it is of a ledger: a listener that has it must first relay what was committed"
        return "ledger", text, "expirebridge ledger status"
    if found.ahead:
        text = f"{plural(found.ahead, 'task is', 'tasks are')} due before it"
        return "behind", text, "expirebridge doctor"
    return "due", "no listener has claimed it yet", "expirebridge doctor"


def _idle(fleet: Fleet, func: str) -> str:
    """That no listener claims anything, or none that has the function."""
    whose = f" that has {func}" if fleet.claiming.listeners else ""
    idle = Counter(one.idle for one in fleet.listeners if one.idle is not None)
    counted = ", ".join(f"{count} {word}" for word, count in sorted(idle.items()))
    overrun = next((id for one in fleet.listeners if one.idle for id in one.overruns), None)
    because = f"; {overrun} overran its timeout there" if overrun is not None else ""
    return f"no listener{whose} claims tasks: {counted}{because}"


def _lacking(task: Task) -> tuple[str, str, str]:
    """What no listener had that claimed it: the same three."""
    error = task.error or ""
    lacking = Lacking.of(error)
    if lacking is Lacking.FUNCTION:
        return lacking.value, f"no listener had {task.func}", "expirebridge handlers --fleet"
    reason = error.removeprefix(NOT_OPENED).partition("; tried again")[0]
    return lacking.value, f"no listener opened it: {reason}", "expirebridge doctor"


# Waiting.


def _waits(found: Circumstances) -> Reason:
    place, since, remedy = found.task.queued, found.parked, "expirebridge limits"
    if place is None:
        return _reason(found, "slot", "waits for a slot", since, remedy)
    if place.lane.startswith(HOLD):
        return _waits_for_hold(found, place)
    limit = place.limit
    if limit is None:
        return _reason(found, "undeclared", str(place), since, remedy)
    if limit.interval is not None:
        start = _next_start(found, place, limit.interval * 1_000_000, limit.burst or 1)
        return _starts(found, place, limit, start)
    failed = next((id for id, state in found.holders if state == State.FAILED), None)
    if limit.ordered and failed is not None:
        text = f"{place}; {failed} failed, and lets nobody pass"
        return _reason(found, "blocked", text, since, f"expirebridge let-pass {failed}")
    if limit.ordered and found.moving is not None and not found.holders:
        text = f"{place}; its order is kept: tasks are being moved {found.moving}"
        return _reason(found, "moving", text, since, "expirebridge doctor")
    return _reason(found, "slot", f"{place}{_held_by(found)}", since, remedy)


def _waits_for_hold(found: Circumstances, place: QueuePlace) -> Reason:
    kind, _, name = place.lane.removeprefix(HOLD).partition(" ")
    if not found.is_held:
        text = f"the hold of {kind} {name} has ended: it is let go soon"
        return _reason(found, "released", text, found.parked, "")
    remedy = f"expirebridge release --{kind} {shlex.quote(name)}"
    return _reason(found, "hold", str(place), found.parked, remedy)


def _starts(
    found: Circumstances, place: QueuePlace, limit: DeclaredLimit, start: datetime
) -> Reason:
    """It waits for a start of a rate, or was granted one that is not due yet."""
    ahead = ((limit.burst or 1) - 1) * (limit.interval or 0) * 1_000_000
    code, text, rests_until = "rate", "", _from_us(found.rest - ahead)
    if rests_until > found.now:
        code, text = "rests", f"; the lane rests after Busy until {_clock(rests_until)}"
    text = f"{place}{text}; its start is due {_ahead(start, found.now)}"
    return _reason(found, code, text, found.parked, "expirebridge limits")


def _next_start(found: Circumstances, place: QueuePlace, interval: float, burst: int) -> datetime:
    """When a rate lets it start, if no other task comes or goes: as `next_start` in limits.lua.

    `interval` is in microseconds.
    """
    now = to_ms(found.now) * 1000
    before = place.held + (place.position or 1) - 1
    arrival = max(min(max(found.arrival, now), now + burst * interval), found.rest)
    return _from_us(max(now, arrival + (before - burst + 1) * interval))


def _held_by(found: Circumstances) -> str:
    """Which tasks have the slots."""
    shown = [f"{id} ({state or 'gone'})" for id, state in found.holders[:SHOWN_HOLDERS]]
    more = " and others" if len(found.holders) > SHOWN_HOLDERS else ""
    return f"; taken by {', '.join(shown)}{more}" if shown else ""


# Paused, running, finished.


def _is_paused(found: Circumstances) -> Reason:
    task = found.task
    pauses = (one.at for one in reversed(task.history) if one.what in _PAUSES)
    text = f"paused, {_left(task.due - found.now)} before it is due"
    return _reason(found, "paused", text, next(pauses, None), f"expirebridge resume {task.id}")


def _waits_for_group(found: Circumstances, group: Group) -> Reason:
    """It is a follow-up, which its group resumes when it ends."""
    text = f"waits for group {group.name}: {group.progress}"
    remedy = f"expirebridge groups show {group.name}"
    if not group.closed:
        text = f"{text}; it is open"
        if not group.left:
            remedy = f"expirebridge groups close {group.name}"
    elif group.only_failed_left:
        text = f"{text}; only failed ones are left"
        remedy = f"expirebridge failed retry --group {group.name}"
    return _reason(found, "group", text, group.created, remedy)


def _runs(found: Circumstances, fleet: Fleet) -> Reason:
    task, since, remedy = found.task, found.task.started, f"expirebridge cancel {found.task.id}"
    lasted = (found.now - since).total_seconds() if since is not None else 0.0
    text = f"runs for {human(max(lasted, 0))}, in attempt {task.attempt}"
    if found.cancel:
        text = f"{text}; it was cancelled: no further attempt follows"
        return _reason(found, "cancelling", text, since, "")
    if found.looked_at is not None and found.looked_at < found.now:
        text = f"{text}; its listener is silent: another one takes it over"
        return _reason(found, "silent", text, since, "expirebridge doctor")
    if any(task.id in one.overruns for one in fleet.listeners):
        text = (
            f"{text}; it overran its timeout and cannot be stopped: its listener claims no more "
            "once the grace time is over, and ends when its other tasks have ended"
        )
        return _reason(found, "overrun", text, since, remedy)
    if found.timeout is not None and lasted > found.timeout:
        text = f"{text}; its timeout of {human(found.timeout)} has passed"
        return _reason(found, "late", text, since, remedy)
    return _reason(found, "running", text, since, "")


def _succeeded(found: Circumstances) -> Reason:
    text = f"succeeded{_at_end(found)}, in attempt {found.task.attempt}{_began(found)}"
    return _reason(found, "succeeded", text, found.task.ended, "")


def _failed(found: Circumstances) -> Reason:
    task = found.task
    blocks = "; it lets nobody of its lane pass" if found.blocks else ""
    text = f"failed{_at_end(found)}{_because(_last_line(task.error))}{blocks}{_began(found)}"
    return _reason(found, "failed", text, task.ended, f"expirebridge run {task.id}")


def _cancelled(found: Circumstances) -> Reason:
    task = found.task
    why = _last_line(task.error)
    text = f"cancelled{_at_end(found)}" + (_because(why) if why else ", by request")
    text += _began(found)
    return _reason(found, "cancelled", text, task.ended, f"expirebridge run {task.id}")


_OF_STATE: dict[State, Callable[[Circumstances], Reason]] = {
    State.PENDING: _not_due,
    State.WAITING: _waits,
    State.PAUSED: _is_paused,
    State.SUCCEEDED: _succeeded,
    State.FAILED: _failed,
    State.CANCELLED: _cancelled,
}


# Words.


def _reason(
    found: Circumstances, code: str, text: str, since: datetime | None, remedy: str
) -> Reason:
    return Reason(state=found.task.state, code=code, text=text, since=since, remedy=remedy)


def _because(error: str) -> str:
    return f": {error}" if error else ""


def _last_line(error: str | None) -> str:
    return (error or "").rstrip().rpartition("\n")[2]


def _at_end(found: Circumstances) -> str:
    ended = found.task.ended
    return f" {_ago(ended, found.now)} ago" if ended is not None else ""


def _began(found: Circumstances) -> str:
    """How late its last attempt began, and why, if it did."""
    return f"; it began {found.task.late}" if found.task.late is not None else ""


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _ahead(moment: datetime, now: datetime) -> str:
    """The distance of a time that comes, and the time."""
    return f"in {_left(moment - now)} (at {_clock(moment)})"


def _ago(moment: datetime, now: datetime) -> str:
    """The distance of a time that has passed."""
    return _left(now - moment)


def _left(time: timedelta) -> str:
    return human(max(time.total_seconds(), 0))


def _from_us(us: float) -> datetime:
    return from_ms(int(us // 1000))
