"""The checks of a probe: whether listeners are at work, and due tasks begin."""

from collections.abc import Sequence

from expirebridge.checks.capability_checks import checks_on
from expirebridge.checks.finding import Finding, Occasion, error, ok, warning
from expirebridge.checks.listeners import check_listeners, check_subscriptions, overdue
from expirebridge.settings import Settings
from expirebridge.store.client import Database
from expirebridge.task.calls import fleet, inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.inspection import Health
from expirebridge.task.durations import human
from expirebridge.task.listings import LeftOut, texts_of

MAX_OVERDUE = 30.0
"""Seconds that a due task may wait before it is reported."""


def check_health(
    database: Database,
    settings: Settings,
    *,
    max_overdue: float | None = MAX_OVERDUE,
    here: bool = False,
) -> Steps[list[Finding]]:
    """The checks of a probe: whether listeners are alive and subscribed, and start due tasks.

    `max_overdue` is how many seconds work may wait, such as a due task; with None, that is not
    checked. `here` requires a listener on this machine. `settings` are those with which the
    listeners were started. Partitions that do not answer are left out.
    """
    health = yield from inspection.read_health(settings.lease)
    known = yield from fleet.read_fleet(settings.lease)
    findings = [check_listeners(health, known, here=here)]
    if max_overdue is not None:
        findings.append(check_overdue(health, max_overdue))
    if health.listeners:
        subscriptions = check_subscriptions(database, settings.doorbell, health, here=here)
        findings.append((yield from subscriptions))
    if max_overdue is not None:
        for one in checks_on(Occasion.PROBE, settings, max_overdue):
            findings += yield from one.look
    return findings


def check_left_out(left_out: Sequence[LeftOut], *, here: bool = False) -> list[Finding]:
    """Which partitions could not be asked. With `here` that is no fault: none of this machine's."""
    told = [f"not asked: {text}" for text in texts_of(left_out)]
    if here:
        return [ok("partitions", each) for each in told]
    return [error("partitions", each, "redis-cli --cluster check HOST:PORT") for each in told]


def check_overdue(health: Health, max_overdue: float) -> Finding:
    """Check whether due tasks start within `max_overdue` seconds."""
    if health.overdue and health.waited > max_overdue:
        first = f"the first for {human(health.waited)} (limit {human(max_overdue)})"
        return warning(
            "overdue",
            f"{overdue(health)}, {first}: the listeners are full, stuck or not running",
            "start more of them, or raise --concurrency: expirebridge listen --concurrency 200",
        )
    return ok("overdue", overdue(health) if health.overdue else "no task is overdue")
