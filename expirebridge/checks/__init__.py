"""Checks a server and the work on it: what is wrong, what it means, how to fix it.

Each check is written once. A listener runs those of `check_server` before it starts, a probe runs
those of `check_health`, and the doctor runs all of them.
"""

from collections.abc import Iterable
from dataclasses import replace

from expirebridge.checks.doctor import check_rights_everywhere, examine
from expirebridge.checks.finding import Finding, Level
from expirebridge.checks.foreign_data import check_data, overwritten
from expirebridge.checks.health import MAX_OVERDUE, check_health
from expirebridge.checks.server import (
    EVENT_FLAGS,
    check_events,
    check_eviction,
    check_rights,
    check_role,
    check_version,
)
from expirebridge.errors import ServerReadOnly, ServerUnsuitable
from expirebridge.store.acl import LoginRole
from expirebridge.store.client import Database
from expirebridge.task.calls import inspection
from expirebridge.task.calls.call import Steps, command

__all__ = [
    "EVENT_FLAGS", "MAX_OVERDUE", "Finding", "Level", "check_health",
    "check_rights_everywhere", "check_server", "events_are_on", "examine", "refuse_unsuitable",
]  # fmt: skip


def check_server(database: Database, *, data: bool = True) -> Steps[list[Finding]]:
    """The checks that a listener makes before it starts, and while it runs.

    Without `data` the database's keys are not examined: this check is the most expensive for the
    server, at about a thousand commands. Raises ServerUnreachable if the server does not answer.
    """
    info = yield from command("INFO")
    events = yield from check_events()
    findings = [check_version(info), check_role(info), events, check_eviction(info)]
    if _well(findings):
        findings.append((yield from check_rights(database, LoginRole.LISTENER)))
    if data and _well(findings):
        names = yield from inspection.find_overwritten()
        # No reason to refuse the server: what does not need those keys works.
        bad = replace(overwritten(names), level=Level.WARNING) if names else None
        findings.append(bad or (yield from check_data()))
    return findings


def refuse_unsuitable(findings: Iterable[Finding]) -> None:
    """Raise an error for the first finding that keeps a listener from working."""
    for finding in findings:
        if finding.level is Level.ERROR:
            kind = ServerReadOnly if finding.check == "role" else ServerUnsuitable
            raise kind(str(finding))


def events_are_on(findings: Iterable[Finding]) -> bool:
    """True if the server sends the events that a listener needs, as far as the findings show."""
    return not any(
        finding.check == "events" and finding.level is Level.WARNING for finding in findings
    )


def _well(findings: Iterable[Finding]) -> bool:
    return all(finding.level is not Level.ERROR for finding in findings)
