"""Checks of what a server knows of its ledger: whether rows learn what happened to their tasks."""

from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.model.durations import human
from expirebridge.store.commands import Steps
from expirebridge.store.commands.ledger import MOST_DIRTY, read_ledgers

MANY_DIRTY = MOST_DIRTY // 2
"""Tasks from which on it is reported that rows do not learn what happened to them."""
_LISTEN = "start a listener with the ledger, or read the log of those that have it"


def check_dirty(limit: float) -> Steps[list[Finding]]:
    """Whether rows learn in time what happened to their tasks; nothing where there is no ledger.

    Beyond a bound no task of the ledger begins. `limit` is how many seconds a row may be behind.
    """
    known = list((yield from read_ledgers()).values())
    if not any(one.nonce for one in known):
        return []
    most, waited = max(one.dirty for one in known), max(one.behind for one in known)
    behind = (
        f"{sum(one.dirty for one in known):,} rows of the ledger do not know yet what happened to "
        "their tasks"
    )
    # The bound is that of each partition.
    bound = f"{MOST_DIRTY:,} in one partition" if len(known) > 1 else f"{MOST_DIRTY:,}"
    if most > MOST_DIRTY:
        return [error("write-back", f"{behind}: beyond {bound} none begins", _LISTEN)]
    if most > MANY_DIRTY:
        return [warning("write-back", f"{behind}; beyond {bound} none begins", _LISTEN)]
    if waited > limit:
        return [warning("write-back", f"{behind}, the first for {human(round(waited))}", _LISTEN)]
    return [ok("write-back", "rows of the ledger know what happened to their tasks")]
