"""The checks of a probe: whether listeners are at work, and due tasks begin."""

from collections.abc import Sequence

from expirebridge.checks.finding import Finding, error, ok
from expirebridge.checks.ledger import check_dirty
from expirebridge.checks.work import check_listeners, check_overdue, check_subscriptions
from expirebridge.model.task import LeftOut, texts_of
from expirebridge.settings import Settings
from expirebridge.store import commands
from expirebridge.store.client import Database
from expirebridge.store.commands import Steps

OVERDUE_LIMIT = 30.0
"""Seconds that a due task may wait before it is reported."""


def check_health(
    database: Database, settings: Settings, *, limit: float = OVERDUE_LIMIT, here: bool = False
) -> Steps[list[Finding]]:
    """The checks of a probe: whether listeners are alive and subscribed, and start due tasks.

    `limit` is how many seconds a due task may wait. `here` requires a listener on this machine.
    `settings` are those with which the listeners were started. Partitions that do not answer are
    left out.
    """
    health = yield from commands.read_health(settings.lease)
    findings = [check_listeners(health, here=here), check_overdue(health, limit)]
    if health.listeners:
        subscriptions = check_subscriptions(database, settings.doorbell, health, here=here)
        findings.append((yield from subscriptions))
    findings += yield from check_dirty(limit)
    return findings


def check_left_out(left_out: Sequence[LeftOut], *, here: bool = False) -> list[Finding]:
    """Which partitions could not be asked. With `here` that is no fault: none of this machine's."""
    told = [f"not asked: {text}" for text in texts_of(left_out)]
    if here:
        return [ok("partitions", each) for each in told]
    return [error("partitions", each, "redis-cli --cluster check HOST:PORT") for each in told]
