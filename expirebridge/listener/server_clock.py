"""Estimates the server's clock from the times that its replies carry."""

import time

# An estimate is as good as the round trip was short. An older one is trusted less, by so many
# seconds of error for each second of age: more than clocks drift apart.
_DRIFT = 0.0005


class ServerClock:
    """What the server's clock shows, seen from here.

    The server wrote its time somewhere between our sending and our receiving, so the middle is off
    by half the round trip at most. The sample with the least possible error is kept.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        self._error = float("inf")
        self._taken = time.monotonic()

    def learn(self, now_us: int, *, sent: float, received: float) -> None:
        """Take a sample: the server's time, and ours (monotonic seconds) around the exchange."""
        error = (received - sent) / 2
        offset = now_us / 1e6 - (sent + received) / 2
        expected = self._error + _DRIFT * (received - self._taken)
        jumped = abs(offset - self._offset) > error + expected
        if error <= expected or jumped:
            self._offset, self._error, self._taken = offset, error, received

    def now(self) -> float:
        """The server's time, in seconds since 1970."""
        return time.monotonic() + self._offset

    def seconds_until(self, due_ms: int) -> float:
        """Seconds from now until that millisecond begins on the server; negative if it has."""
        return due_ms / 1000 - self.now()
