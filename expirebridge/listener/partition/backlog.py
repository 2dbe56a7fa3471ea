"""The scan position over due tasks, some of which are left to other listeners."""

import time
from enum import Enum, auto
from typing import Protocol

from expirebridge.listener.execution.leases import CodeVersion
from expirebridge.listener.session import Membership
from expirebridge.settings import Settings
from expirebridge.task.calls import claiming
from expirebridge.task.calls.call import Command
from expirebridge.task.calls.claiming import Claim, FairShareInput, Refusal, Walk, Walked
from expirebridge.task.policies import UNKNOWN_DELAY

FRONT, END = b"-inf", b"+inf"
SHORTEST_REST = 1.0
"""Seconds between passes, at least: as long as the due timer sleeps, for the same reason."""
REST = 20
"""How many times as long as a pass the rest after it is: so passes take 5 % of the server."""
LONGEST_PAUSE = 1.0
RECENT = 60_000
"""Milliseconds before now from which on what is due counts as fresh when a consumer begins."""
MOMENT = 1000
"""Milliseconds by which what is announced may have been due before, and still counts as just due:
the producer's clock and the way to the server are that late."""
MANY = 100
"""Tasks whose functions no listener has, claimed in the time for which one is put off, from which
on they are passed over. Fewer cost next to nothing."""
FEW = 50


class ScanKind(Enum):
    """Part of the backlog that a scan covers."""

    NEW = auto()  # tasks that became due since the last claim
    RECENT = auto()  # an announced task became due up to 1 s before the position already scanned
    OLDER = auto()  # an announced task became due longer before it
    FULL = auto()  # all due tasks, from the first


class ClaimGate(Protocol):
    """Lets tasks of a ledger be claimed while it is open."""

    openings: int
    """How often it was opened: each time what was passed over is looked at again."""

    @property
    def number(self) -> int | None:
        """The batch number that a claim of these tasks requires; None while it is closed."""
        ...


class BacklogScan:
    """Scan position over due tasks, for a fleet that runs more than one code.

    What is due may then be left to others, and stays in front. So each claim looks at a part, and
    the next one goes on behind it. The kinds share each claim, and take turns to be its first: what
    became due just now does not wait for the end of a pass, and fills no claim alone.

    While claims find nothing they pause for as long as they take, and so do all listeners together.
    """

    def __init__(
        self, code: CodeVersion, membership: Membership, gate: ClaimGate | None = None
    ) -> None:
        self._code = code
        self._gate = gate
        self._openings = 0
        self._membership = membership
        self._walks: dict[ScanKind, Walk] = {}
        self._sent: list[ScanKind] = []
        """The kinds of the latest claim, in its order."""
        self._turn = 0
        self._fleet = b""
        self._heard: dict[ScanKind, int] = {}
        """The earliest due time of each kind that was announced since the latest claim was sent."""
        self._again = False
        """Set if another full scan must follow the present one without a rest."""
        self._left = 0
        """Tasks that the present pass left where they are."""
        self._spent = 0.0
        """Seconds that the claims of the present pass took."""
        self._next_pass = 0.0
        self._ready = 0.0
        self._strangers = 0
        self._counted_since = 0.0
        self.unfinished = False
        """True if the latest claim did not finish every part of the backlog."""
        self.leaves = False
        """True if due tasks were left to the next pass, or to others."""

    @property
    def active(self) -> bool:
        """True while due tasks may be left to others; else claims take the first due ones."""
        return bool(self._walks)

    @property
    def withholds(self) -> bool:
        """True while claims pass over tasks of a ledger that it does not have, or that lags."""
        return self._code.withholds

    @property
    def pause(self) -> float | None:
        """Seconds after which to claim without a wake-up; None: never."""
        return max(self._ready - time.monotonic(), 0.0) if self._walks else None

    @property
    def seen(self) -> bytes:
        """The score up to which what is due was looked at; nothing before it is news."""
        return self._walks[ScanKind.NEW].score if self._walks else FRONT

    def hear_of(self, due: int) -> None:
        """Handle the announcement of a task due at that ms."""
        if self._walks:
            kind = (
                ScanKind.RECENT
                if due > self._walks[ScanKind.NEW].place - MOMENT
                else ScanKind.OLDER
            )
            self._heard[kind] = min(due, self._heard.get(kind, due))

    def start_over(self) -> None:
        """Request a full scan: something may have been missed."""
        self._again = True

    def call(
        self,
        nonce: str,
        settings: Settings,
        *,
        places: int,
        alone: bool,
        share: FairShareInput | None,
    ) -> Command[Claim]:
        """The claim that suits the fleet, as far as it is known."""
        gate = self._gate_number()
        if not self._walks:
            return claiming.claim(
                nonce, settings, places=places, idle=alone,
                fingerprint=self._code.fingerprint.digest,
                limits=self._code.limits.fingerprint, share=share, gate=gate,
            )  # fmt: skip
        self._go_back()
        self._begin_pass()
        self._sent = self._in_turn()
        walks = [self._walks[kind] for kind in self._sent]
        return claiming.claim_known(
            nonce, settings, places=places, idle=alone, code=self._code.text, walks=walks,
            limits=self._code.limits.fingerprint, share=share, gate=gate,
        )  # fmt: skip

    def _gate_number(self) -> int | None:
        """The batch number that a claim of ledger tasks requires; None: it claims none."""
        if self._gate is None:
            return None
        if self._openings != self._gate.openings:
            self._openings = self._gate.openings
            self.start_over()
        return self._gate.number

    def _go_back(self) -> None:
        heard, self._heard = self._heard, {}
        fresh = self._walks[ScanKind.NEW]
        for kind, due in heard.items():
            if due > fresh.place:
                continue
            walk = self._walks.get(kind)
            if walk is None or due < walk.place:
                walk = Walk(b"%d" % due, b"", fresh.score)
            self._walks[kind] = walk._replace(last=fresh.score)

    def _begin_pass(self) -> None:
        is_time = self._again or time.monotonic() >= self._next_pass
        if is_time and ScanKind.FULL not in self._walks:
            self._again = False
            self._left, self._spent = 0, 0.0
            self._walks[ScanKind.FULL] = Walk(FRONT, b"", self.seen, from_front=1)

    def _in_turn(self) -> list[ScanKind]:
        kinds = [kind for kind in ScanKind if kind in self._walks]
        first = self._turn % len(kinds)
        return kinds[first:] + kinds[:first]

    def take(self, claim: Claim, took: float) -> None:
        """Update the position from the reply to a claim, which took so many seconds."""
        now = claim.now_us // 1000
        if claim.refusal is Refusal.UNDECLARED:
            return
        if claim.refusal is Refusal.BLOCKED:
            self._code.withholds = True
        if claim.refusal is not None:
            self._switch(now)
        elif not self._walks:
            self._count_strangers(claim, now)
        elif now < self._walks[ScanKind.NEW].place:  # the server's clock went back
            self._begin(now)
        else:
            self._advance(claim, took)

    def _switch(self, now: int) -> None:
        if self._walks:
            self._walks.clear()
            self.unfinished = self.leaves = False
        else:
            self._begin(now)

    def _begin(self, now: int) -> None:
        self._walks = {ScanKind.NEW: Walk(b"%d" % (now - RECENT), b"", END)}
        self._fleet, self._heard = b"", {}
        self._again = True

    def _count_strangers(self, claim: Claim, now: int) -> None:
        """Pass over tasks of unknown functions if there are many: claiming all starves the rest."""
        strangers = sum(not self._code.knows(task.func) for task in claim.tasks)
        if not strangers:
            return
        if time.monotonic() - self._counted_since > UNKNOWN_DELAY:
            self._counted_since, self._strangers = time.monotonic(), 0
        self._strangers += strangers
        if self._strangers > MANY:
            self._code.stranded = True
            self._begin(now)

    def _advance(self, claim: Claim, took: float) -> None:
        if ScanKind.FULL in self._sent:
            self._spent += took
        for kind, walked in zip(self._sent, claim.walked, strict=False):
            self._go_on(kind, walked)
        # Without an answer for the kinds, they are as before.
        self.unfinished = not claim.walked or not all(each.finished for each in claim.walked)
        # The first part may fill a claim alone.
        self._turn = self._turn + 1 if self.unfinished and claim.tasks else 0
        if self._fleet and self._fleet != claim.fleet:
            self.start_over()
        self._fleet = claim.fleet
        now = time.monotonic()
        if self.unfinished:
            others = max(self._membership.listeners, 1)
            pause = 0.0 if claim.tasks else min(took * others, LONGEST_PAUSE)
            self._ready = now + pause
        else:
            self._ready = now if self._again else self._next_pass

    def _go_on(self, kind: ScanKind, walked: Walked) -> None:
        if walked.left:
            self.leaves = True
        if kind is ScanKind.FULL:
            self._left += walked.left
        if kind is ScanKind.NEW or not walked.finished:
            walk = self._walks[kind]
            self._walks[kind] = walk._replace(score=walked.score, id=walked.id)
            return
        del self._walks[kind]
        if kind is ScanKind.FULL:
            self._end_pass()

    def _end_pass(self) -> None:
        others = max(self._membership.listeners, 1)
        rest = max(self._spent * REST * others, SHORTEST_REST)
        self._next_pass = time.monotonic() + rest
        self.leaves = self._left > 0
        if self._left < FEW:
            self._code.stranded = False
            self._strangers = 0
        if not self._left:
            self._code.withholds = False
