"""Why a follow-up waits: for its group."""

from expirebridge.groups import calls
from expirebridge.groups.values import Group
from expirebridge.settings import Settings
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.circumstances import Circumstances
from expirebridge.task.explaining import Explanations, Precedence, reason
from expirebridge.task.keys import group_of
from expirebridge.task.reason import Reason
from expirebridge.task.task import State


def explain(found: Circumstances, _settings: Settings) -> Steps[Explanations]:
    """Explain follow-ups that are paused until their group ends."""
    name = group_of(found.task.id)
    if name is None or found.task.state is not State.PAUSED:
        return {}
    group = yield from calls.get_group(name)
    if group is None or group.ended is not None or group.then != found.task.id:
        return {}
    return {Precedence.BLOCKED: lambda now: _waits_for(now, group)}


def _waits_for(found: Circumstances, group: Group) -> Reason:
    text = f"waits for group {group.name}: {group.progress}"
    remedy = f"expirebridge groups show {group.name}"
    if not group.closed:
        text = f"{text}; it is open"
        if not group.left:
            remedy = f"expirebridge groups close {group.name}"
    elif group.only_failed_left:
        text = f"{text}; only failed ones are left"
        remedy = f"expirebridge failed retry --group {group.name}"
    return reason(found, "group", text, group.created, remedy)
