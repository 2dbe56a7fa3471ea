"""Leases: keeps the claims of this listener alive, from a thread of its own.

A handler that blocks the event loop must not cost the other handlers their leases, so the
heartbeat has its own thread and its own connection.
"""

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from expirebridge.errors import ServerError
from expirebridge.listener.outage import Outage
from expirebridge.listener.server_clock import ServerClock
from expirebridge.store import calls
from expirebridge.store.store import Store

logger = logging.getLogger("expirebridge")

BEATS_PER_LEASE = 3


class Hold(NamedTuple):
    """A claim that this listener holds."""

    token: str
    asked: float
    """When its lease was last asked for, by a claim or a heartbeat that was answered; the server
    counts it from a moment later."""


class Leases:
    """Beats three times a lease, naming every claim that this listener still holds.

    `on_beat` is told each answer, in the thread of the heartbeat.
    """

    def __init__(
        self,
        store: Store,
        listener: str,
        *,
        lease: float,
        server_clock: ServerClock,
        outage: Outage,
        on_beat: Callable[[calls.Beat], None],
    ) -> None:
        self._store = store
        self._listener = listener
        self._lease = lease
        self._short_pause = min(0.5, lease / 10)
        self._server_clock = server_clock
        self._outage = outage
        self._on_beat = on_beat
        self._held: dict[str, Hold] = {}
        self._lock = threading.Lock()
        self._answered = False
        """Whether the latest beat was."""
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="expirebridge-leases", daemon=True)

    def hold(self, id: str, token: str, *, asked: float) -> None:
        """Keep this claim, which was asked for at that time (monotonic), alive from now on."""
        with self._lock:
            self._held[id] = Hold(token, asked)

    def drop(self, id: str, token: str) -> None:
        """Keep it no longer: it is settled, or lost."""
        with self._lock:
            hold = self._held.get(id)
            if hold is not None and hold.token == token:
                del self._held[id]

    def is_fresh(self, id: str, token: str) -> bool:
        """Whether this claim cannot have lapsed yet, whatever was missed meanwhile.

        It may have if this process stood still, or its event loop was blocked, for a lease.
        """
        hold = self._held.get(id)
        if hold is None or hold.token != token:
            return False
        return time.monotonic() - hold.asked < self._lease

    def beat(self) -> calls.Beat:
        """Beat once. Raises a ServerError.

        An answer that got lost may have told of a gap: then, and at first, the next one does.
        """
        with self._lock:
            held = {id: hold.token for id, hold in self._held.items()}
        sent = time.monotonic()
        answered, self._answered = self._answered, False
        beat = self._store.run(calls.heartbeat(self._listener, self._lease, held.items()))
        self._answered = True
        if not answered:
            beat = dataclasses.replace(beat, gap=True)
        self._server_clock.learn(beat.now_us, sent=sent, received=time.monotonic())
        for id in beat.lost:
            self.drop(id, held[id])
        self._renew(held, sent)
        return beat

    def start(self) -> None:
        """Beat from now on."""
        self._thread.start()

    def hurry(self) -> None:
        """Beat at once: the answer may have news."""
        self._wake.set()

    def fall_silent(self) -> None:
        """Beat no more, and say no goodbye: all leases lapse."""
        self._stopping = True

    def stop(self) -> None:
        """Beat no more, and say goodbye if the server answers."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        try:
            self._store.run(calls.leave(self._listener))
        except ServerError as error:
            logger.debug("no goodbye: %s", error)

    def _renew(self, held: dict[str, str], sent: float) -> None:
        """Take note that a beat that was sent then was answered: what it named has a new lease."""
        with self._lock:
            for id, token in held.items():
                hold = self._held.get(id)
                if hold is not None and hold.token == token:
                    self._held[id] = Hold(token, sent)

    def _run(self) -> None:
        pause = self._lease / BEATS_PER_LEASE
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._on_beat(self.beat())
            except ServerError as error:
                self._outage.failed("the heartbeat", error)
                pause = self._short_pause
            # A thread that ended would leave a listener that works without leases.
            except Exception:
                logger.exception("the heartbeat failed")
                pause = self._short_pause
            else:
                self._outage.answered("the heartbeat")
                pause = self._lease / BEATS_PER_LEASE
