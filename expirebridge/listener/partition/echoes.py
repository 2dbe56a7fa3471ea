"""Echoes: the events that a listener's own claims cause.

The timer of a claimed task has expired, or is deleted by the claim, and the server notifies every
subscriber. To the listener that claimed the task this is no news; each look that it did not
make is a script less for the server, for every task.
"""

import time

MOST = 10_000
"""Echoes that are waited for at a time, at most; one that was given up is looked at in vain."""
LONGEST = 5.0
"""Seconds after which none comes any more: a task that was due at once had no timer to end."""


class Echoes:
    """Distinguishes the end of a claimed task's timer from that of a timer that was set since.

    A timer that is set is heard of before it ends, for the same subscription hears both, in order.
    So an end is an echo if nothing was heard of its key since the claim.
    """

    def __init__(self) -> None:
        self._awaited: dict[bytes, float] = {}
        """Names of the keys and when they were claimed, the oldest claim's first."""

    def expect(self, key: bytes) -> None:
        """Take note that the task of this key was claimed here."""
        self._awaited[key] = time.monotonic()
        if len(self._awaited) > MOST:
            del self._awaited[next(iter(self._awaited))]

    def take(self, key: bytes) -> bool:
        """Whether this key's end is an echo; each comes once."""
        claimed = self._awaited.pop(key, None)
        return claimed is not None and time.monotonic() - claimed < LONGEST

    def forget(self, key: bytes) -> None:
        """Take note that something else was heard of the key: its next end is news."""
        self._awaited.pop(key, None)

    def forget_all(self) -> None:
        """Take note that something may have been missed."""
        self._awaited.clear()
