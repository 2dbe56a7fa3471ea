"""The calls of a listener that runs tasks: claim them, keep the claims alive, settle them."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

from expirebridge.settings import Settings
from expirebridge.store.record_values import state_of, text
from expirebridge.store.task_records import LISTENER_DIGITS, ClaimedTask, claimed_from
from expirebridge.task.calls.call import (
    Argument,
    Command,
    ids_of,
    milliseconds,
    rows_of,
    script,
)
from expirebridge.task.calls.producing import NewTask, Obstacle
from expirebridge.task.lateness import Lateness
from expirebridge.task.objective import Objective
from expirebridge.task.task import State

BEATS_PER_LEASE = 3
"""Heartbeats in each lease: one may be missed."""
MAX_CLAIM = 100
"""Tasks that one claim takes at most, so that no claim holds the server for long."""
MAX_CLAIM_BYTES = 1024 * 1024


class ClaimTokens:
    """The tokens of a listener's claims: the end of its name, and a number that it never repeats.

    The number begins anywhere, so that two listeners with the same end of their names still differ.
    """

    def __init__(self, listener: str) -> None:
        self._listener = listener[-LISTENER_DIGITS:]
        self._last = secrets.randbits(32)

    def next(self) -> str:
        """A token that no other claim has."""
        self._last = (self._last + 1) % 2**32
        return f"{self._listener}{self._last:08x}"


def earliest(prefix: str, since: bytes = b"-inf") -> Command[int | None]:
    """Read the next due time, in ms, by one plain command; None if nothing is pending.

    Tasks with a score below `since` do not count. It may have been put off since: only a claim
    follows its timer.
    """
    arguments = (f"{prefix}:pending", since, "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
    return Command("ZRANGE", arguments, _read_earliest, is_script=False)


def _read_earliest(reply: list[bytes]) -> int | None:
    """Another client's score may be no time at all."""
    return int(min(max(float(reply[1]), 0), 2**53)) if reply else None


class Walk(NamedTuple):
    """A scan over the pending tasks, in order, and its position."""

    score: bytes
    id: bytes
    """The task after which it continues; empty: before all of that score."""
    last: bytes
    """The last score of the scan. It waits before tasks that are not due yet."""
    from_front: int = 0
    """1 if it began with the first task: only then are tasks of ordered lanes taken."""

    @property
    def place(self) -> float:
        """The score of its position."""
        return float(self.score)


class Walked(NamedTuple):
    """The progress of a claim on a scan."""

    score: bytes
    id: bytes
    finished: bool
    left: int
    """How many tasks it left where they are."""


class Refusal(IntEnum):
    """Why a claim took nothing, and what is to be sent instead."""

    OTHER_CLAIM = 1  # the other one of `claim` and `claim_known`, which suits the fleet now
    BLOCKED = 2  # `claim_known`: due tasks of a ledger are blocked
    UNDECLARED = 3  # `declare_limits`, and then the same: the database lacks its handlers' limits


@dataclass(frozen=True, slots=True)
class Claim:
    """The reply to a claim."""

    now_us: int
    """The server's time, in microseconds."""
    next_due: int | None
    """The earliest due time, in ms; it may have passed, if capacity or time ran out."""
    alone: bool
    """True if nothing may be claimed until the listener is idle: a task waits to run alone, or
    does."""
    shared: bool
    """True if it left due tasks to other listeners, because it had its share."""
    running: int
    """How many tasks run then in all listeners; -1 if no `FairShareInput` was given."""
    broken: list[str]
    """Ids whose records were missing, or could not be read; the latter are kept as failed."""
    tasks: list[ClaimedTask]
    refusal: Refusal | None = None
    parked: int = 0
    """How many due tasks it made wait for slots."""
    fleet: bytes = b""
    """For `claim_known`: the code versions of the fleet."""
    walked: Sequence[Walked] = ()
    """For `claim_known`: its progress on each scan; none if it found what it took before."""


class FairShareInput(NamedTuple):
    """The numbers from which the share of a listener is computed, beyond which it takes nothing.

    The share is what is due and running, divided by the listeners.
    """

    listeners: int
    """How many divide the tasks."""
    held: int | None
    """How many tasks of its share this listener has already; None: it is not bounded."""
    codes: Sequence[tuple[str, int]] = ()
    """If the fleet runs several: each fingerprint, and how many listeners run it. Those that do
    not know a function have no share of its tasks."""


def claim(
    token: str,
    settings: Settings,
    *,
    places: int,
    idle: bool,
    fingerprint: str = "",
    limits: str = "",
    share: FairShareInput | None = None,
    gate: int | None = None,
) -> Command[Claim]:
    """Take up to `places` due tasks for a lease, fenced by `token`, a new nonce.

    `fingerprint` is that of the listener's code: with another code in its fleet, nothing is taken.
    `limits` is that of the limits that it declares, if any: without these, neither.
    Without a `share` it fills the places; without a `gate`, no task of a ledger: it is the number
    of the batch that the server must have seen.
    """
    bounds = _encode_share(share) if share else ()
    if gate is not None:
        bounds = (*(bounds or ("", "")), gate)
    return script(
        "claim", *_common(token, settings, places, idle), limits, fingerprint, *bounds,
        read=lambda reply: _read_claim(reply, token),
    )  # fmt: skip


def claim_known(
    token: str,
    settings: Settings,
    *,
    places: int,
    idle: bool,
    code: str,
    walks: Iterable[Walk],
    limits: str = "",
    share: FairShareInput | None = None,
    gate: int | None = None,
) -> Command[Claim]:
    """The same in a fleet of several code versions: functions that only others have are left.

    `code` is the listener's, as it goes into heartbeats; `walks` are where it looks, in order.
    """
    number = "" if gate is None else gate
    bounds: tuple[Argument, ...] = ("", "", number, "")
    if share:
        codes = " ".join(f"{code} {count}" for code, count in share.codes)
        bounds = (*_encode_share(share), number, codes)
    positions = [part for walk in walks for part in walk]
    return script(
        "claim_known", *_common(token, settings, places, idle), limits, code, *bounds, *positions,
        read=lambda reply: _read_claim(reply, token),
    )  # fmt: skip


def _encode_share(share: FairShareInput) -> tuple[Argument, ...]:
    return (share.listeners, "" if share.held is None else share.held)


_RESEND = 6
"""The place of the argument that says whether a claim is a resend."""


def _common(token: str, settings: Settings, places: int, idle: bool) -> tuple[Argument, ...]:
    """The arguments that both claims have."""
    return (
        token, milliseconds(settings.lease), min(places, MAX_CLAIM), MAX_CLAIM_BYTES,
        int(idle), milliseconds(settings.keep_failed), 0,
    )  # fmt: skip


def resent(claim: Command[Claim]) -> Command[Claim]:
    """Return the claim as it is sent again after its reply was lost: it finds its own tasks."""
    before, after = claim.arguments[:_RESEND], claim.arguments[_RESEND + 1 :]
    return replace(claim, arguments=(*before, 1, *after))


_ALONE, _SHARE = 1, 2
"""Codes of claim.lua: why a claim left due tasks."""


def _read_claim(reply: list[Any], token: str) -> Claim:
    now_us, next_due, why, broken, found, running, parked, *columns = reply
    refusal = Refusal(found) if isinstance(found, int) else None
    fleet, *walked = found if isinstance(found, list) else (b"",)
    return Claim(
        now_us=now_us,
        next_due=next_due if next_due >= 0 else None,
        alone=why == _ALONE,
        shared=why == _SHARE,
        running=running,
        broken=ids_of(broken),
        tasks=[claimed_from(row, token) for row in rows_of(columns, 3)],
        refusal=refusal,
        parked=parked,
        fleet=fleet,
        walked=[Walked(score, id, bool(end), left) for score, id, end, left in rows_of(walked, 4)],
    )


class Settled(IntEnum):
    """The result of recording an outcome."""

    DONE = 1
    REFUSED = 2  # the claim no longer held: its lease had lapsed
    LEFT = 3  # it did not fail, but waits for a listener that runs other code
    OVER = 4  # it failed, and is not retried: the next tick of its series is due by then
    GRANTED = 5  # no outcome: slots were granted to tasks that this listener is to claim


_SETTLED = {each.value: each for each in Settled}


class Settlement(NamedTuple):
    """The outcome of one attempt."""

    id: str
    token: str
    outcome: str
    """A word of settle.lua: `succeeded`, `retry`, `failed`, `snoozed`, `busy`, `released`,
    `unbegun`, `unknown`, `unfit`."""
    delay: float = 0.0
    """Seconds until the task is looked at again, unless it ended for good."""
    text: str | bytes = ""
    """The result as JSON, or the reason."""
    told: str = ""
    """What it tells of its limits, with commas between: `<rate>` for one that rests, after
    `busy`, `<budget>+<n>` for what it has spent, and `!` if it did not begin its work."""
    late: Lateness | None = None
    """How late the attempt began, and why; None if it was in time."""
    objective: Objective | None = None
    """How it kept to the objective of its function; None if that has none."""
    then: NewTask | None = None
    """After `succeeded`: the follow-up, which is made with it."""

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for settle.lua."""
        delay = milliseconds(self.delay)
        words = f"{self.id} {self.token} {self.outcome} {delay}"
        if self.told or self.late is not None or self.objective is not None:
            words = f"{words} {self.told or '-'}"
        if self.late is not None:
            words = f"{words} {milliseconds(self.late.seconds)} {self.late.cause}"
        if self.objective is not None:
            nothing = "" if self.late is not None else " - -"
            kept = "+" if self.objective.is_kept else "-"
            words = f"{words}{nothing} {kept}{milliseconds(self.objective.seconds)}"
        return (words, self.text)


def settle(
    settlements: Iterable[Settlement],
    settings: Settings,
    *,
    fingerprint: str = "",
    claims: int = 0,
) -> Command[list[Settled]]:
    """Record the outcomes of attempts, made by the code with this fingerprint.

    None of them has a follow-up. If slots of limits are freed, and granted to at most `claims`
    tasks, nobody is notified of these tasks: the last of the answers is `GRANTED` then, and the
    listener is to claim.
    """
    items = [argument for settlement in settlements for argument in settlement.encode()]
    return script(
        "settle", *_keeping(settings), fingerprint, claims, *items,
        read=lambda reply: [_SETTLED[code] for code in reply],
    )  # fmt: skip


class SettledThen(NamedTuple):
    """The result of recording a success that has a follow-up."""

    code: Settled | Obstacle
    """Settled, or why its follow-up could not be made: then it is not settled either."""
    state: State | None = None
    """If it was not settled: the state of the task that has the follow-up's id."""


_OBSTACLES = {
    6: Obstacle.EXISTS, 7: Obstacle.DIFFERS, 8: Obstacle.NO_GROUP, 9: Obstacle.GROUP_CLOSED,
}  # fmt: skip
"""By the codes of settle_then.lua."""


def settle_then(
    settlements: Iterable[Settlement], settings: Settings, *, fingerprint: str = ""
) -> Command[list[SettledThen]]:
    """Record attempts that succeeded, and make the follow-up of each: both, or neither."""
    items: list[Argument] = []
    for settlement in settlements:
        if settlement.then is None:
            raise ValueError(f"the settlement of {settlement.id} has no follow-up")
        items += (*settlement.encode(), *settlement.then.encode())
    return script(
        "settle_then", *_keeping(settings), fingerprint, 0, *items, read=_read_settled_then
    )


def _keeping(settings: Settings) -> tuple[Argument, ...]:
    return milliseconds(settings.keep_succeeded), milliseconds(settings.keep_failed)


def _read_settled_then(reply: list[Any]) -> list[SettledThen]:
    return [
        SettledThen(_OBSTACLES[row[0]], state_of(row[1]))
        if isinstance(row, list)
        else SettledThen(_SETTLED[row])
        for row in reply
    ]


@dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The answer to a heartbeat."""

    now_us: int
    rank: int
    """Its rank among the live listeners, by name; those of the lowest ranks subscribe to events."""
    listeners: int
    silence: float
    """Seconds for which no listener had sent a heartbeat."""
    gap: bool
    """True if that is more than half a lease: events may have been missed."""
    lost: list[str]
    """Ids that this listener no longer holds."""
    cancelled: list[tuple[str, str]]
    """Id and token of each claim that it holds whose task was cancelled."""
    born: bytes
    """The time of the first write to this database; it changes if the database is emptied. Empty
    if that is not known any longer."""
    undeclared: bool
    """True if the functions of its code must be declared, again or for the first time."""
    limits_lost: bool
    """True if the limits that it declared are not there."""
    codes: list[tuple[str, int]]
    """If the fleet runs more than one code: each fingerprint, and how many listeners run it."""
    others_are_full: bool
    """At its first heartbeat: True if there are others, and they run as many tasks as they can."""
    next_making: int | None = None
    """The ms at which the next tick of a series is to be made; None: there is no series."""


def heartbeat(
    listener: str,
    lease: float,
    held: Iterable[tuple[str, str]],
    *,
    code: str,
    functions: int = 0,
    limits: str = "",
) -> Command[HeartbeatReply]:
    """Send a heartbeat of `listener`, and renew its claims: `held` are ids with their tokens.

    `code` is the fingerprint of its functions, and `functions` their number; for what may follow,
    see heartbeat.lua. `limits` is the fingerprint of the limits that it declares, if any.
    """
    declared = f"{functions} {limits}".rstrip()
    pairs = [item for pair in held for item in pair]
    return script(
        "heartbeat", listener, milliseconds(lease), code, declared, *pairs,
        read=lambda reply: _read_heartbeat(reply, lease),
    )  # fmt: skip


def _read_heartbeat(reply: list[Any], lease: float) -> HeartbeatReply:
    now_us, rank, listeners, silence, lost, cancelled, born, undeclared, codes, full, making = reply
    pairs = ids_of(cancelled)
    claims = list(zip(pairs[::2], pairs[1::2], strict=True))
    return HeartbeatReply(
        now_us, rank, listeners, silence / 1000, silence * 2 > milliseconds(lease),
        ids_of(lost), claims, born, bool(undeclared & 1), bool(undeclared & 2),
        [(text(code), count) for code, count in rows_of(codes, 2)], bool(full),
        making if making >= 0 else None,
    )  # fmt: skip


def leave(listener: str) -> Command[None]:
    """Remove `listener` from the live listeners."""
    return script("leave", listener, read=lambda _: None)
