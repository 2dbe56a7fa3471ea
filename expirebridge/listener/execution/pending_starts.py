"""Pending starts: attempts whose handlers have not been called yet."""

import contextlib

from expirebridge.listener.execution.attempt import Attempt
from expirebridge.listener.execution.exceptions import (
    HELD_UP,
    WITHDRAWN,
    StartRefused,
    Withdrawn,
)


class PendingStarts:
    """The attempts that have not begun; each is removed once, to begin or to be withdrawn.

    The event loop, the handlers' threads and the heartbeat's thread all remove attempts. The atomic
    operations of the set decide which of them gets an attempt.
    """

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()

    def add(self, attempt: Attempt) -> None:
        """Add an attempt whose task was claimed."""
        self._attempts.add(attempt)

    def check(self, attempt: Attempt) -> None:
        """Check it before anything is reported. Raises the error that `begin` would raise now."""
        if attempt not in self._attempts:
            raise Withdrawn(WITHDRAWN)
        if not attempt.has_lease():
            self._take(attempt)
            raise StartRefused(HELD_UP)

    def begin(self, attempt: Attempt) -> None:
        """Remove it, in the thread that calls its handler, right before the call.

        Raises StartRefused if its lease may have lapsed, since another listener may run it by now,
        and Withdrawn if it was withdrawn.
        """
        self._take(attempt)
        if not attempt.has_lease():
            raise StartRefused(HELD_UP)

    def withdraw(self) -> list[Attempt]:
        """Remove all, for the heartbeat's thread, and drop their leases."""
        withdrawn = []
        with contextlib.suppress(KeyError):
            while True:
                attempt = self._attempts.pop()
                attempt.consumer.leases.drop(attempt.claimed.id, attempt.claimed.token)
                withdrawn.append(attempt)
        return withdrawn

    def forget(self, attempt: Attempt) -> None:
        """Remove an attempt that is over, so that it does not begin any more."""
        self._attempts.discard(attempt)

    def _take(self, attempt: Attempt) -> None:
        try:
            self._attempts.remove(attempt)
        except KeyError:
            raise Withdrawn(WITHDRAWN) from None
