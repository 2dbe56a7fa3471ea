"""Checks the write-back from Redis to the rows of a ledger, and the horizons of listeners."""

import re
from collections.abc import Sequence

from expirebridge.checks.finding import (
    Check,
    Finding,
    Occasion,
    error,
    first_of,
    if_any,
    ok,
    warning,
)
from expirebridge.ledger.calls import HORIZON, MOST_DIRTY, WriteBackBacklog, read_ledgers
from expirebridge.settings import Settings
from expirebridge.task.calls import fleet
from expirebridge.task.calls.call import Steps
from expirebridge.task.durations import human
from expirebridge.task.texts import plural

MANY_DIRTY = MOST_DIRTY // 2
"""So many lagging rows in a partition are reported."""
_LISTEN = "start a listener with the ledger, or read the log of those that have it"


def checks(settings: Settings, max_overdue: float) -> Sequence[Check]:
    """Give what a probe checks, and the doctor; it needs no database but Redis."""
    probe = frozenset({Occasion.PROBE})
    course = frozenset({Occasion.DOCTOR, Occasion.COURSE})
    horizons = if_any(check_horizons(settings.lease))
    return [
        Check(order=10, name="write-back", look=check_dirty(max_overdue), on=probe),
        Check(order=71, name="horizon", look=horizons, on=course),
    ]


def check_dirty(max_overdue: float) -> Steps[list[Finding]]:
    """Check that rows follow their tasks in time; no finding where there is no ledger.

    Beyond a bound no task of the ledger begins. `max_overdue` is how many seconds a row may lag.
    """
    checkpoints = list((yield from read_ledgers()).values())
    if not any(one.nonce for one in checkpoints):
        return []
    dirty, most, waited, stuck = WriteBackBacklog.of(checkpoints)
    behind = plural(
        dirty,
        "row of the ledger does not know yet what happened to its task",
        "rows of the ledger do not know yet what happened to their tasks",
    )
    # The bound is that of each partition.
    bound = f"{MOST_DIRTY:,} in one partition" if len(checkpoints) > 1 else f"{MOST_DIRTY:,}"
    if most > MOST_DIRTY:
        return [error("write-back", f"{behind}: beyond {bound} none begins", _LISTEN)]
    if most > MANY_DIRTY:
        return [warning("write-back", f"{behind}; beyond {bound} none begins", _LISTEN)]
    if waited is not None and waited > max_overdue:
        return [warning("write-back", f"{behind}, the first for {human(round(waited))}", _LISTEN)]
    if stuck:
        rows = plural(stuck, "row", "rows")
        message = f"{rows} of the ledger could not be written: refused, or locked for long"
        return [warning("write-back", message, "the log of the listeners says which, and why")]
    return [ok("write-back", "rows of the ledger know what happened to their tasks")]


def check_horizons(lease: float) -> Steps[Finding | None]:
    """Check whether all listeners relay rows equally far ahead; None if all relay all of them.

    It is what the listeners say that beat within `lease` seconds.
    """
    named: dict[int | None, list[str]] = {}
    for listener in (yield from fleet.read_fleet(lease)).listeners:
        for word in listener.words:
            if found := re.fullmatch(rf"{HORIZON}([0-9]{{0,16}})", word):
                named.setdefault(int(found[1]) if found[1] else None, []).append(listener.name)
    if len(named) > 1:
        each = (f"{horizon_shown(ms)} ({first_of(names)})" for ms, names in named.items())
        return warning(
            "horizon", f"the listeners of the ledger have different horizons: {'; '.join(each)}",
            "give all of them the same EXPIREBRIDGE_LEDGER_HORIZON, and restart them",
        )  # fmt: skip
    [horizon] = named or {None: []}
    if horizon is None:
        return None
    return ok("horizon", f"rows due in more than {horizon_shown(horizon)} stay in SQL until then")


def horizon_shown(horizon: int | None) -> str:
    """How many ms ahead rows are relayed, for people."""
    return "none" if horizon is None else human(horizon / 1000)
