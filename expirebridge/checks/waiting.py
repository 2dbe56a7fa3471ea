"""Checks of what keeps tasks waiting: limits, holds and groups."""

import shlex
from collections.abc import Iterable

from expirebridge.checks.finding import Finding, ok, warning
from expirebridge.checks.work import first_of
from expirebridge.errors import LimitsNeedOnePartition
from expirebridge.fleet.functions import KnownFunctions
from expirebridge.groups.calls import find_unended
from expirebridge.handlers.definition import Handler
from expirebridge.limits.calls import read_limits
from expirebridge.limits.lanes import DeclaredLimit, Lane
from expirebridge.task.calls import fleet, holds, inspection
from expirebridge.task.calls.call import PARTITIONS, Steps
from expirebridge.task.counting import plural
from expirebridge.task.durations import human
from expirebridge.task.hold import Hold
from expirebridge.task.task import from_ms

_LANES = 100
"""Lanes that are looked at, those with most tasks."""
BLOCKED = 600.0
"""Seconds that a task may wait for a slot before its lane is reported."""
_GROUPS = 1000
"""Groups that are looked at."""
UNATTENDED = 3600.0
"""Seconds after its last failure when a group is reported that waits for failed members alone."""


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


def refuse_limits(handlers: Iterable[Handler]) -> Steps[None]:
    """Raise LimitsNeedOnePartition if a listener with these handlers would not start here."""
    count = yield from PARTITIONS
    if count > 1 and any(handler.limits for handler in handlers):
        raise LimitsNeedOnePartition(count)


def check_holds(prefix: str, lease: float) -> Steps[Finding | None]:
    """Check whether each hold holds what was meant, and ends or says who set it.

    None if there is none. Functions are held against what the listeners know that beat within
    `lease` seconds. `prefix` is that of the database's keys.
    """
    found = yield from holds.list_holds()
    if not found:
        return None
    known = KnownFunctions.of((yield from fleet.read_fleet(lease)))
    idle = [one.name for one in found if one.func is None and one.tag is None]
    endless = [one for one in found if one.name not in idle and one.until is None and not one.by]
    lacking = known.lacking(one.func for one in found if one.func is not None)
    if idle:
        tag = "{TAG}" if (yield from PARTITIONS) > 1 else ""
        return warning(
            "holds", f"holds nothing: {first_of(idle)}; write `func module.function` or `tag NAME`",
            f"HDEL {tag}{prefix}:holds {shlex.quote(idle[0])}",
        )  # fmt: skip
    if endless:
        named = [one.name if one.readable else f"{one.name} (not readable)" for one in endless]
        return warning(
            "holds", f"set by hand, without an end: {first_of(named)}",
            f"if it is meant, say so: expirebridge hold {_option_of(endless[0])} --reason TEXT; if "
            f"not: expirebridge release {_option_of(endless[0])}",
        )  # fmt: skip
    if lacking:
        named = [f"{func}: {lack}" for func, lack in lacking.items()]
        return warning(
            "holds", f"a function on hold is not known: {first_of(named)}",
            f"expirebridge release --func {shlex.quote(next(iter(lacking)))}",
        )  # fmt: skip
    waiting = sum(one.waiting for one in found)
    return ok(
        "holds",
        f"on hold: {first_of([one.name for one in found])}; "
        f"{plural(waiting, 'task waits', 'tasks wait')} for that",
    )


def _option_of(hold: Hold) -> str:
    """The option that names what is on hold, for a shell."""
    if hold.func is not None:
        return f"--func {shlex.quote(hold.func)}"
    return f"--tag {shlex.quote(hold.tag or '')}"


def check_groups() -> Steps[Finding | None]:
    """Check whether each group can end: none waits for an hour for failed members alone.

    None if all groups have ended. Only the first thousand of the others are looked at.
    """
    found = yield from find_unended(_GROUPS)
    if not found:
        return None
    now = from_ms((yield from inspection.read_time()))
    stuck = [
        group
        for group in found
        if group.only_failed_left
        and group.failed_at is not None
        and (now - group.failed_at).total_seconds() > UNATTENDED
    ]  # fmt: skip
    if stuck:
        named = [f"{group.name} ({group.progress})" for group in stuck]
        name = stuck[0].name
        return warning(
            "groups", f"for more than an hour only failed members are left: {first_of(named)}",
            f"run them again: expirebridge failed retry --group {name}; or purge them, or cancel "
            f"the group: expirebridge groups cancel {name}",
        )  # fmt: skip
    left = sum(group.left for group in found)
    return ok(
        "groups",
        f"{plural(len(found), 'group has', 'groups have')} "
        f"{plural(left, 'member', 'members')} left",
    )
