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
    """The attempts that have not begun. Each leaves once: to be called, or because it is withdrawn.

    The event loop, the handlers' threads and the heartbeat's thread all take from it. Which of them
    has an attempt is decided by the set's own operations, which are atomic.
    """

    def __init__(self) -> None:
        self._attempts: set[Attempt] = set()

    def add(self, attempt: Attempt) -> None:
        """Take note of an attempt whose task was claimed."""
        self._attempts.add(attempt)

    def check(self, attempt: Attempt) -> None:
        """Look before anything is reported of it. Raises what `begin` would raise now."""
        if attempt not in self._attempts:
            raise Withdrawn(WITHDRAWN)
        if not attempt.has_lease():
            self._take(attempt)
            raise StartRefused(HELD_UP)

    def begin(self, attempt: Attempt) -> None:
        """Take it out, in the thread that calls its handler, right before the call.

        Raises StartRefused if its lease may have lapsed: another listener may run it by now; and
        Withdrawn if it was withdrawn.
        """
        self._take(attempt)
        if not attempt.has_lease():
            raise StartRefused(HELD_UP)

    def withdraw(self) -> list[Attempt]:
        """Take out all, for the heartbeat's thread, and let their leases go."""
        withdrawn = []
        with contextlib.suppress(KeyError):
            while True:
                attempt = self._attempts.pop()
                attempt.consumer.leases.drop(attempt.claimed.id, attempt.claimed.token)
                withdrawn.append(attempt)
        return withdrawn

    def forget(self, attempt: Attempt) -> None:
        """See that it does not begin any more: it is over."""
        self._attempts.discard(attempt)

    def _take(self, attempt: Attempt) -> None:
        try:
            self._attempts.remove(attempt)
        except KeyError:
            raise Withdrawn(WITHDRAWN) from None
