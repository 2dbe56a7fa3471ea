"""Fairness: keeps a listener to its share of the tasks, as long as others take the rest."""

import time
from typing import NamedTuple

from expirebridge.listener.runner.room import Room
from expirebridge.listener.station.standing import Standing
from expirebridge.store.calls import Claim, Share

PATIENCE = 0.010
"""Seconds for which what is more than the share is left to others. Their clocks ring within 4 ms of
each other; a peer that is late costs these tasks no more than this."""
DISTRUST = 5.0
"""Seconds without a limit after nobody took what was left: peers that are full, suspended or dead
hold up one task in this time, not each."""


class Left(NamedTuple):
    """What this listener left to others."""

    until: float
    """When it asks for the rest (monotonic)."""
    at: int
    """When it was left, by the server's clock, in ms."""


class Fairness:
    """Says how much the next claim may take, and when the rest is asked for, without a limit.

    The share is what is due and running, divided by the listeners, less what this one runs. The
    script computes it; here is when it counts. A listener that is alone has no share.
    """

    def __init__(self, standing: Standing, room: Room) -> None:
        self._standing = standing
        self._room = room
        self._left: Left | None = None
        self._is_limited = False
        """Whether the latest claim was."""
        self._unlimited_until = 0.0

    @property
    def pause(self) -> float | None:
        """Seconds after which the rest is to be asked for; None if nothing was left to others."""
        return None if self._left is None else max(self._left.until - time.monotonic(), 0.0)

    def share(self, reserved: int) -> Share | None:
        """The limit of a claim for which so many places are reserved; None: there is none."""
        self._is_limited = (
            self._standing.listeners > 1
            and time.monotonic() >= self._unlimited_until
            and self.pause != 0
        )
        if not self._is_limited:
            return None
        held = self._room.taken - reserved
        return Share(self._standing.listeners, held, self._standing.codes)

    def take(self, claim: Claim) -> None:
        """Take note of what a claim found."""
        if claim.wrong_way:
            return
        if claim.shared:
            self._left = self._left or Left(time.monotonic() + PATIENCE, claim.now_us // 1000)
            return
        left, self._left = self._left, None
        if left and not self._is_limited and any(task.due <= left.at for task in claim.tasks):
            self._unlimited_until = time.monotonic() + DISTRUST
