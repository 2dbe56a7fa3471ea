"""The calls about signals."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from expirebridge.store.record_values import whole
from expirebridge.task.calls.call import Command, Everywhere, OfId, new_nonce, script
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


class Decisions(NamedTuple):
    """How many tasks that waited for a signal were decided."""

    signalled: int
    """By a signal."""
    passed: int
    """By the first claim, after the deadline."""


def read_decisions() -> Command[Decisions | None]:
    """Read how many there were, since the database is there; None if no task ever waited."""
    return script("read_decisions", read=_decisions, route=Everywhere(_joined))


def _decisions(reply: Sequence[bytes | None]) -> Decisions | None:
    return Decisions(*((whole(count or b"") or 0) for count in reply)) if reply else None


def _joined(each: Sequence[Decisions | None]) -> Decisions | None:
    found = [one for one in each if one is not None]
    if not found:
        return None
    return Decisions(sum(one.signalled for one in found), sum(one.passed for one in found))
