"""The timer that wakes the claimer when the next known task is about to be due."""

import asyncio
import time

from expirebridge.errors import ServerError
from expirebridge.hooks import Hooks, Rung, Source
from expirebridge.listener.execution.capacity import Wakeup
from expirebridge.listener.hindrances import Hindrances
from expirebridge.listener.partition.backlog import BacklogScan
from expirebridge.listener.partition.fair_share import FairShare
from expirebridge.listener.session import SessionOwner
from expirebridge.task.calls import claiming

# The lead time: a claim is sent before a task is due, so that it arrives when the task is due.

LONGEST = 0.002
"""Seconds, at most."""
GROWTH, LOSS = 1 / 16, 1 / 4
"""How much of a delay the next claim makes up for, and how much of the lead one takes away that
came too early. So about one in ten comes too early."""


class LeadTime:
    """Estimate of the time from the end of a sleep until a claim reaches the server.

    In it, this process wakes up, writes the claim and sends it, and the server reads it.

    It decides nothing. A claim that comes too early finds nothing, and is repeated.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def learn(self, delay: float) -> None:
        """Take a sample: a claim came so many seconds after a task was due; before, if negative."""
        if delay < 0:
            self.seconds -= self.seconds * LOSS
        else:
            self.seconds = min(self.seconds + min(delay, LONGEST) * GROWTH, LONGEST)


LONGEST_SLEEP = 1.0
"""Seconds after which it looks in any case: doorbells may be lost, and edits unheard."""
FIRST_BACKOFF = 0.001
LONGEST_BACKOFF = 0.020
TURN = 0.001
MOST_TURNS = 4
RUNG = Rung(source=Source.CLOCK)


class DueTimer:
    """Wakes the claimer at the earliest known due time, less the lead time.

    Of several listeners each waits a millisecond for each one whose turn is before its own, up to
    four, so that they do not all ask for the same task; a claim that came back empty although a
    task was due waits longer each time, up to 20 ms.
    """

    def __init__(
        self,
        consumer: SessionOwner,
        prefix: str,
        *,
        wakeup: Wakeup,
        fair_share: FairShare,
        scan: BacklogScan,
        hooks: Hooks,
        hindrances: Hindrances,
    ) -> None:
        self._consumer = consumer
        self._prefix = prefix
        self._scan = scan
        self._wakeup = wakeup
        self._fair_share = fair_share
        self._hooks = hooks
        self._hindrances = hindrances
        self._next_due: int | None = None
        self._heard: int | None = None
        """The earliest that was heard of since the latest claim was sent."""
        self._changed = asyncio.Event()
        self._backoff = 0.0
        self._lead = LeadTime()
        self._ahead: float | None = None
        """Seconds before the due time at which it wakes the claimer. None: there is no time for
        that, such as after a claim that came too early; then it does when the task is due."""
        self._aim: float | None = None
        """Time by the server's clock at which the next claim should reach the server."""
        self._sent_aim: float | None = None
        """The same of the latest claim that was sent."""
        self.behind = False
        """True if the latest claim left due tasks."""

    def notice_claim(self) -> None:
        """Prepare for a claim that is sent now: its reply may miss later announcements."""
        self._heard = None
        self._sent_aim, self._aim = self._aim, None

    def plan(self, next_due: int | None, *, now_us: int, count: int, shared: bool = False) -> None:
        """Plan by the reply to a claim: the next due time in ms, the server's time in
        microseconds, and how many tasks it took. If it left what is due to others, `shared`, the
        claimer asks for that again.
        """
        if self._sent_aim is not None:
            self._lead.learn(now_us / 1e6 - self._sent_aim)
        self.behind = next_due is not None and next_due * 1000 <= now_us
        if shared:
            next_due = None
        if self.behind and not shared and not count:
            self._backoff = min(max(self._backoff * 2, FIRST_BACKOFF), LONGEST_BACKOFF)
        else:
            self._backoff = 0.0
        known = [due for due in (next_due, self._heard) if due is not None]
        self._next_due = min(known, default=None)
        self._changed.set()

    def hear_of(self, due: int) -> None:
        """Handle the announcement of a task due at that ms; only an earlier one matters."""
        self._heard = due if self._heard is None else min(self._heard, due)
        if self._next_due is None or due < self._next_due:
            self._next_due = due
            self._changed.set()

    async def run(self) -> None:
        """Wake the claimer whenever it is time."""
        while True:
            self._changed.clear()
            first_turn = _seconds(self._fair_share.first_turn)
            if await self._changes_within(self._sleep() + first_turn):
                continue
            if not self._is_due() and not await self._finds_due():
                continue
            # By now it is known how many tasks have ended here since the latest claim.
            turn = max(_seconds(self._fair_share.turn), first_turn)
            if turn > first_turn and await self._changes_within(turn - first_turn):
                continue
            if self._next_due is not None and self._ahead is not None:
                self._aim = self._next_due / 1000 + turn
            # What was known is answered now; the claim's reply says what comes next.
            self._next_due = None
            self._hooks.emit(RUNG)
            self._wakeup.set()

    async def _changes_within(self, seconds: float) -> bool:
        """Wait so long; returns True if something came up meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _is_due(self) -> bool:
        due = self._next_due
        if due is None:
            return False
        return self._consumer.session.server_clock.seconds_until(due) <= (self._ahead or 0.0)

    async def _finds_due(self) -> bool:
        """Look, which costs the server less than a claim; returns True if something is due."""
        sent = time.monotonic()
        try:
            due = await self._look()
        except ServerError:
            self._hindrances.note_trip(sent, failed=True)
            return True  # the claim will report the error
        self._hindrances.note_trip(sent, failed=False)
        if self._changed.is_set():  # what came meanwhile may be newer than this answer
            return self._is_due()
        known = [each for each in (due, self._heard) if each is not None]
        self._next_due = min(known, default=None)
        return self._is_due()

    async def _look(self) -> int | None:
        """The earliest due time in ms that claims have not passed; None if nothing is pending."""
        return await self._consumer.session.store.run(
            claiming.earliest(self._prefix, self._scan.seen)
        )

    def _sleep(self) -> float:
        if self._next_due is None:
            return LONGEST_SLEEP
        left = self._consumer.session.server_clock.seconds_until(self._next_due)
        self._ahead = self._lead.seconds if left > self._lead.seconds else None
        return min(max(left - (self._ahead or 0.0), self._backoff, 0.0), LONGEST_SLEEP)


def _seconds(turn: int) -> float:
    return min(turn, MOST_TURNS) * TURN
