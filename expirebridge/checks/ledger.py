"""Checks of what a server knows of its ledger: whether rows learn what happened to their tasks."""

from expirebridge.checks.finding import Finding, error, ok, warning
from expirebridge.durations import human
from expirebridge.store.calls import Steps, at_if_there
from expirebridge.store.calls.ledger import MOST_DIRTY, read_ledger

MANY_DIRTY = MOST_DIRTY // 2
"""Tasks from which on it is reported that rows do not learn what happened to them."""
_LISTEN = "start a listener with the ledger, or read the log of those that have it"


def check_dirty(limit: float) -> Steps[list[Finding]]:
    """Whether rows learn in time what happened to their tasks; nothing where there is no ledger.

    Beyond a bound no task of the ledger begins. `limit` is how many seconds a row may be behind.
    """
    known = yield from at_if_there(read_ledger(), 0, hasty=True)
    if known is None or not known.nonce:
        return []
    waited = (known.now * 1000 - known.dirty_since) / 1e6 if known.dirty_since else 0.0
    behind = f"{known.dirty:,} rows of the ledger do not know yet what happened to their tasks"
    if known.dirty > MOST_DIRTY:
        return [error("write-back", f"{behind}: beyond {MOST_DIRTY:,} none begins", _LISTEN)]
    if known.dirty > MANY_DIRTY:
        return [warning("write-back", f"{behind}; beyond {MOST_DIRTY:,} none begins", _LISTEN)]
    if waited > limit:
        return [warning("write-back", f"{behind}, the first for {human(round(waited))}", _LISTEN)]
    return [ok("write-back", "rows of the ledger know what happened to their tasks")]
