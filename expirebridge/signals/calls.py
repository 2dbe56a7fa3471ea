"""The call that signals a task."""

from typing import Any

from expirebridge.task.calls.call import Command, OfId, new_nonce, script
from expirebridge.task.calls.producing import change_of
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.signal_payload import encode
from expirebridge.task.task import Change

_ANSWERS = {
    10: Change.SIGNALLED_BEFORE,
    11: Change.BEGUN,
    12: Change.NOT_AWAITED,
    13: Change.OF_LEDGER,
}
"""By the codes of signal.lua that other scripts do not have."""


def signal(id: str, payload: Any, by: str, key_ring: KeyRing | None) -> Command[Change]:
    """Signal a task. Raises InvalidTask for an illegal payload or sender."""
    said = encode(id, payload, by, key_ring)
    return script(
        "signal", new_nonce(), id, said.digests, said.by, said.stored,
        read=lambda code: _ANSWERS.get(code) or change_of(code, Change.SIGNALLED),
        route=OfId(id),
    )  # fmt: skip
