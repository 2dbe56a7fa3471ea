"""The check of a move: whether the command still runs."""

from collections.abc import Sequence

from expirebridge.checks.finding import Check, Finding, Occasion, if_any, ok, warning
from expirebridge.settings import Settings
from expirebridge.task.calls import looking
from expirebridge.task.calls.call import Steps
from expirebridge.task.durations import human
from expirebridge.task.listings import Counts
from expirebridge.task.texts import plural

LEFT_AFTER = 15.0
"""Seconds without a batch after which a move counts as stopped: a running one waits less."""


def checks(settings: Settings, _max_overdue: float) -> Sequence[Check]:
    """Give what the doctor checks, and the dashboard shows."""
    on = frozenset({Occasion.DOCTOR, Occasion.PRESENT})
    return [Check(order=90, name="move", look=if_any(check_move(settings.lease)), on=on)]


def check_move(lease: float) -> Steps[Finding | None]:
    """The progress of a move of this database; None if there is none."""
    return of_move((yield from looking.count(lease)))


def of_move(counts: Counts) -> Finding | None:
    """The same, of counts that are known."""
    moving = counts.moving
    if moving is None:
        return None
    idle = "" if moving.idle is None else human(round(moving.idle))
    if not moving.leaves:
        return ok("move", f"tasks arrive {moving.way}" + (f", the last {idle} ago" if idle else ""))
    tasks = counts.unfinished + counts.failed + counts.succeeded
    left = tasks + moving.series
    if not left and not moving.on_their_way:
        return ok("move", f"all was moved {moving.way}")
    told = f"{plural(left, 'task or series is', 'tasks and series are')} left here"
    if moving.on_their_way:
        travelling = plural(moving.on_their_way, "is", "are")
        told += f", and {travelling} in transit, where nobody can run them"
    if moving.idle is None or moving.idle < LEFT_AFTER:
        return ok("move", f"goes on, {moving.way}: {told}")
    return warning(
        "move",
        f"stopped half-way, {moving.way}: no command has continued it for {idle}; {told}",
        "expirebridge move --to URL: the command that began it continues it",
    )
