"""The call that signals a task."""

from expirebridge.signals.payload import Payload
from expirebridge.task.calls.call import Command, OfId, new_nonce, script
from expirebridge.task.calls.producing import change_of
from expirebridge.task.task import Change

_ANSWERS = {
    10: Change.SIGNALLED_BEFORE,
    11: Change.BEGUN,
    12: Change.NOT_AWAITED,
    13: Change.OF_LEDGER,
}
"""By the codes of signal.lua that other scripts do not have."""


def signal(id: str, payload: Payload) -> Command[Change]:
    """Signal a task."""
    return script(
        "signal", new_nonce(), id, payload.digests, payload.by, payload.stored,
        read=lambda code: _ANSWERS.get(code) or change_of(code, Change.SIGNALLED),
        route=OfId(id),
    )  # fmt: skip
