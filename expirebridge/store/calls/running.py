"""The calls of a listener that runs tasks: claim them, keep the claims alive, settle them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from expirebridge.settings import Settings
from expirebridge.store.calls.call import Argument, Call, ids_of, milliseconds, rows_of, script
from expirebridge.store.views import ClaimedTask, claimed_from

BEATS_PER_LEASE = 3
"""Heartbeats in each lease: one may be missed."""
MAX_CLAIM = 100
"""Tasks that one claim takes at most, so that no claim holds the server for long."""
MAX_CLAIM_BYTES = 1024 * 1024


def earliest(prefix: str) -> Call[int | None]:
    """When the next task is due, in ms, by one plain command; None if nothing is pending.

    It may have been put off since: only a claim follows its timer.
    """
    return Call(
        "ZRANGE", (f"{prefix}:pending", 0, 0, "WITHSCORES"), _read_earliest, is_script=False
    )


def _read_earliest(reply: list[bytes]) -> int | None:
    """Another client's score may be no time at all."""
    return int(min(max(float(reply[1]), 0), 2**53)) if reply else None


@dataclass(frozen=True, slots=True)
class Claim:
    """What one look for due tasks brought."""

    now_us: int
    """The server's time, in microseconds."""
    next_due: int | None
    """When the earliest task is due, in ms; it may have passed, if room or patience ran out."""
    alone: bool
    """Whether nothing may be claimed until the listener is idle: a task waits to run alone, or
    does."""
    broken: list[str]
    """Ids whose records were missing, or could not be read; the latter are kept as failed."""
    tasks: list[ClaimedTask]


def claim(token: str, settings: Settings, *, room: int, idle: bool) -> Call[Claim]:
    """Take up to `room` due tasks for a lease, fenced by `token`, a new nonce."""
    return script(
        "claim", token, milliseconds(settings.lease), min(room, MAX_CLAIM), MAX_CLAIM_BYTES,
        int(idle), milliseconds(settings.keep_failed), 0,
        read=lambda reply: _read_claim(reply, token),
    )  # fmt: skip


def resent(claim: Call[Claim]) -> Call[Claim]:
    """Return the claim as it is sent again after its reply was lost: it finds its own tasks."""
    return replace(claim, arguments=(*claim.arguments[:-1], 1))


def _read_claim(reply: list[Any], token: str) -> Claim:
    now_us, next_due, alone, broken, *columns = reply
    return Claim(
        now_us=now_us,
        next_due=next_due if next_due >= 0 else None,
        alone=bool(alone),
        broken=ids_of(broken),
        tasks=[claimed_from(row, token) for row in rows_of(columns, 3)],
    )


class Settled(IntEnum):
    """Whether an outcome was recorded."""

    DONE = 1
    REFUSED = 2  # the claim no longer held: its lease had lapsed


class Settlement(NamedTuple):
    """The outcome of one attempt."""

    id: str
    token: str
    outcome: str
    """`succeeded`, `retry`, `failed`, `released` or `unknown`: see settle.lua."""
    delay: float = 0.0
    """Seconds until the task is looked at again, for `retry`, `released` and `unknown`."""
    text: str | bytes = ""
    """The result as JSON, or the reason."""

    def encode(self) -> tuple[Argument, ...]:
        """As settle.lua takes it."""
        delay = milliseconds(self.delay)
        return (f"{self.id} {self.token} {self.outcome} {delay}", self.text)


def settle(settlements: Iterable[Settlement], settings: Settings) -> Call[list[Settled]]:
    """Record the outcomes of attempts."""
    items = [argument for settlement in settlements for argument in settlement.encode()]
    return script(
        "settle", milliseconds(settings.keep_succeeded), milliseconds(settings.keep_failed), *items,
        read=lambda reply: [Settled(code) for code in reply],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a heartbeat."""

    now_us: int
    rank: int
    """Place among the listeners that beat, by their names; those of the lowest ranks are ears."""
    listeners: int
    gap: bool
    """Whether nobody had beaten for half a lease: events may have been missed."""
    lost: list[str]
    """Ids that this listener no longer holds."""
    cancelled: list[tuple[str, str]]
    """Id and token of each claim that it holds whose task was cancelled."""
    born: bytes
    """When this database was first written to; another value says that it was emptied since. Empty
    if that is not known any longer."""
    mended: list[str]
    """Keys of ours in whose place another client had put something else; it was moved aside."""


def heartbeat(listener: str, lease: float, held: Iterable[tuple[str, str]]) -> Call[HeartbeatReply]:
    """Say that `listener` lives, and renew its claims: `held` are ids with their tokens."""
    pairs = [item for pair in held for item in pair]
    return script("heartbeat", listener, milliseconds(lease), *pairs, read=_read_heartbeat)


def _read_heartbeat(reply: list[Any]) -> HeartbeatReply:
    now_us, rank, listeners, gap, lost, cancelled, born, mended = reply
    pairs = ids_of(cancelled)
    claims = list(zip(pairs[::2], pairs[1::2], strict=True))
    return HeartbeatReply(
        now_us, rank, listeners, bool(gap), ids_of(lost), claims, born, ids_of(mended)
    )


def leave(listener: str) -> Call[None]:
    """Take `listener` off the list of those that beat."""
    return script("leave", listener, read=lambda _: None)
