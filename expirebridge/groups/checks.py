"""The check of groups: whether each can end."""

from collections.abc import Sequence

from expirebridge.checks.finding import Check, Finding, first_of, if_any, ok, warning
from expirebridge.groups.calls import find_unended
from expirebridge.settings import Settings
from expirebridge.task.calls import inspection
from expirebridge.task.calls.call import Steps
from expirebridge.task.task import from_ms
from expirebridge.task.texts import plural

_GROUPS = 1000
"""Groups that are looked at."""
UNATTENDED = 3600.0
"""Seconds after its last failure when a group is reported that waits for failed members alone."""


def checks(_settings: Settings, _max_overdue: float) -> Sequence[Check]:
    """Give what the doctor checks."""
    return [Check(order=60, name="groups", look=if_any(check_groups()))]


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
