"""The fair share of each listener in the due tasks."""

import time
from typing import NamedTuple

from expirebridge.listener.execution.capacity import Capacity
from expirebridge.listener.session import Membership
from expirebridge.task.calls.claiming import Claim, FairShareInput

PATIENCE = 0.010
"""Seconds for which tasks beyond the share are left to peers. Peers wake within 4 ms of each
other; a late peer delays these tasks by no more than this."""
DISTRUST = 5.0
"""Seconds without a limit after nobody took what was left: peers that are full, suspended or dead
hold up one task in this time, not each."""


class LeftToPeers(NamedTuple):
    """Due tasks that this listener left to its peers."""

    until: float
    """Time at which it claims them itself (monotonic)."""
    at: int
    """Time at which they were left, by the server's clock, in ms."""


class FairShare:
    """Limits claims to this listener's fair share, as long as its peers take the rest.

    The share is what is due and running, divided by the listeners, less what this one runs. The
    script computes it; here is when it counts. A listener that is alone has no share.
    """

    def __init__(self, membership: Membership, capacity: Capacity) -> None:
        self._membership = membership
        self._capacity = capacity
        self._left: LeftToPeers | None = None
        self._is_limited = False
        """True if the latest claim was limited."""
        self._unlimited_until = 0.0
        self._running = 0
        """How many tasks ran in all listeners when the latest claim was answered."""

    @property
    def pause(self) -> float | None:
        """Seconds after which the rest is to be asked for; None if nothing was left to others."""
        return None if self._left is None else max(self._left.until - time.monotonic(), 0.0)

    @property
    def turn(self) -> int:
        """How many listeners are to ask for the next task before this one, about.

        Those that run fewer come first, and then those of a lower rank. As tasks are divided, some
        listeners ran just as many as the `fewest` when a claim was last answered, and the others
        one more.
        """
        return self._turn_with(self._capacity.in_use)

    @property
    def first_turn(self) -> int:
        """The turn that it has if all that it runs ends before."""
        return self._turn_with(0)

    def _turn_with(self, held: int) -> int:
        rank, listeners = self._membership.rank, self._membership.listeners
        if listeners <= 1 or time.monotonic() < self._unlimited_until:
            return rank
        fewest, more = divmod(self._running, listeners)
        if held < fewest:
            return 0
        if held == fewest:
            return rank * (listeners - more) // listeners
        return listeners - more + rank * more // listeners

    def share(self, reserved: int) -> FairShareInput | None:
        """The input of a claim with so many reserved places; None: it is not limited."""
        membership = self._membership
        if membership.listeners <= 1:
            return None
        self._is_limited = time.monotonic() >= self._unlimited_until and self.pause != 0
        held = self._capacity.in_use - reserved if self._is_limited else None
        return FairShareInput(membership.listeners, held, membership.codes)

    def take(self, claim: Claim) -> None:
        """Update from the reply to a claim."""
        if claim.refusal is not None:  # it has looked at no task
            return
        if claim.running >= 0:
            self._running = claim.running
        now = claim.now_us // 1000
        if claim.shared:
            left, first = self._left, claim.next_due
            # What was left before may have been taken meanwhile, and this be other tasks.
            if left is None or (first is not None and left.at < first <= now):
                self._left = LeftToPeers(time.monotonic() + PATIENCE, now)
            return
        left, self._left = self._left, None
        if left and not self._is_limited and any(task.due <= left.at for task in claim.tasks):
            self._unlimited_until = time.monotonic() + DISTRUST
