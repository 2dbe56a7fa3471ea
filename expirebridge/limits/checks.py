"""Checks whether lanes of limits stand still, and limits have an effect."""

import shlex
from collections.abc import Sequence

from expirebridge.checks.finding import Check, Finding, first_of, if_any, ok, warning
from expirebridge.limits.calls import read_limits
from expirebridge.limits.hold_checks import check_holds
from expirebridge.limits.lanes import Lane, SetNumber
from expirebridge.settings import Settings
from expirebridge.task.calls import fleet, inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.durations import human
from expirebridge.task.queue_place import DeclaredLimit
from expirebridge.task.task import from_ms
from expirebridge.task.texts import plural

_LANES = 100
"""Lanes that are looked at, those with most tasks."""
BLOCKED = 600.0
"""Seconds that a task may wait for a slot before its lane is reported."""


def checks(settings: Settings, _max_overdue: float) -> Sequence[Check]:
    """Give what the doctor checks."""
    holds = check_holds(settings.prefix, settings.lease)
    return [
        Check(order=40, name="limits", look=if_any(check_limits(settings.lease))),
        Check(order=45, name="numbers", look=if_any(check_numbers(settings.prefix))),
        Check(order=50, name="holds", look=if_any(holds)),
    ]


def check_limits(lease: float) -> Steps[Finding | None]:
    """Check that no lane of a limit stands still, and that no fair limit is without effect.

    None if nothing is limited. Only the fullest lanes are looked at. The slots of fair limits are
    held against what all listeners that beat within `lease` seconds run at once.
    """
    found = yield from read_limits(_LANES)
    if not (found.limits or found.lanes):
        return None
    now = from_ms((yield from inspection.read_time()))
    waiting = plural(sum(lane.waiting for lane in found.lanes), "task waits", "tasks wait")
    stuck = [
        _standing(lane)
        for lane in found.lanes
        if lane.oldest_due is not None
        and (now - lane.oldest_due).total_seconds() > BLOCKED
    ]  # fmt: skip
    if stuck:
        return warning(
            "limits",
            f"tasks that were due {human(BLOCKED)} ago wait for a slot of {first_of(stuck)}",
            "expirebridge limits: raise these limits, or find out why their tasks do not end",
        )
    at_once = (yield from fleet.read_fleet(lease)).concurrency
    idle = [f"{one.name} ({one})" for one in found.limits if _is_idle(one, at_once)]
    if idle:
        return warning(
            "limits",
            f"fair limits without effect: {first_of(idle)}; the listeners run {at_once:,} at once "
            "in all, so none waits for a slot",
            "give them fewer slots than that, or raise --concurrency, or leave out fair=",
        )
    among = f", in the {_LANES} fullest lanes" if len(found.lanes) == _LANES else ""
    return ok("limits", f"{waiting} for a slot{among}")


def check_numbers(prefix: str) -> Steps[Finding | None]:
    """Check that each number that was set instead of a declared one counts, and stops no lane.

    None if there is none. `prefix` is that of the database's keys.
    """
    numbers = (yield from read_limits(1)).numbers
    if not numbers:
        return None
    ignored = [one for one in numbers if one.number is None]
    stopped = [one for one in numbers if one.number == 0]
    if ignored:
        named = [f"{one.lane} to {one.stored:.40}: {one.ignored}" for one in ignored]
        return warning(
            "numbers", f"set, and ignored: {first_of(named)}",
            f"HDEL {prefix}:numbers {shlex.quote(ignored[0].field)}",
        )  # fmt: skip
    if stopped:
        return warning(
            "numbers",
            f"set to 0, so that nothing starts: {first_of([one.lane for one in stopped])}",
            f"if it is meant: expirebridge hold says by whom, until when and why; if not: "
            f"{_taken_back(stopped[0])}",
        )
    named = [f"{one.lane} to {one.number:,} (declared: {one.declared:,})" for one in numbers]
    return ok("numbers", f"set instead of declared ones: {first_of(named)}")


def _taken_back(one: SetNumber) -> str:
    """The command that takes a number back."""
    value = "" if one.value is None else f" --value {shlex.quote(one.value)}"
    return f"expirebridge limit {shlex.quote(one.limit)}{value} --declared"


def _is_idle(limit: DeclaredLimit, at_once: int | None) -> bool:
    """True if a fair limit has a slot for every task that can run."""
    if not limit.fair or limit.most is None or at_once is None:
        return False
    return bool(limit.functions) and limit.most >= at_once


def _standing(lane: Lane) -> str:
    """A lane, and how full it is."""
    most = lane.limit.most if lane.limit else None
    taken = f"{lane.held} of {most} taken" if most is not None else str(lane.limit or "no limit")
    return f"{lane.name} ({taken}, {plural(lane.waiting, 'waits', 'wait')})"
