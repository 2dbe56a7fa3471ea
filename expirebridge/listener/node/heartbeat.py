"""The heartbeat: keeps the claims of a node's stations alive, from a thread of its own.

A handler that blocks the event loop must not cost the other handlers their leases, so the
heartbeat has its own thread and its own connection.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from expirebridge.errors import ServerError
from expirebridge.listener.outage import Outage
from expirebridge.listener.station.station import Station
from expirebridge.listener.watchdog import Watchdog
from expirebridge.store import calls

logger = logging.getLogger("expirebridge")

ROLE = "the heartbeat"


class Heartbeat:
    """Beats three times a lease for each station, which takes the answer on the event loop.

    At each round the watchdog looks whether the event loop still goes on.
    """

    def __init__(
        self, stations: Sequence[Station], *, lease: float, outage: Outage, watchdog: Watchdog
    ) -> None:
        self._stations = stations
        self._pause = lease / calls.BEATS_PER_LEASE
        self._short_pause = min(0.5, lease / 10)
        self._outage = outage
        self._watchdog = watchdog
        self._loop: asyncio.AbstractEventLoop
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="expirebridge-leases", daemon=True)

    async def begin(self) -> None:
        """Beat once, before anything is claimed. Raises a ServerError."""
        self._loop = asyncio.get_running_loop()
        for station in self._stations:
            station.take_beat(await asyncio.to_thread(station.leases.beat))

    def start(self) -> None:
        """Go on in the thread."""
        self._thread.start()

    def hurry(self) -> None:
        """Beat at once: the answer may have news."""
        self._wake.set()

    def fall_silent(self) -> None:
        """Stop beating, without leaving: all leases lapse."""
        self._stopping = True

    def stop(self) -> None:
        """Stop beating, and leave if the server answers."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        for station in self._stations:
            station.leases.leave()

    def _run(self) -> None:
        pause = self._pause
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopping:
                return
            pause = self._pause if self._beat() else self._short_pause

    def _beat(self) -> bool:
        """Beat for each station; whether all were answered."""
        try:
            for station in self._stations:
                beat = station.leases.beat()
                with contextlib.suppress(RuntimeError):  # the loop has ended; so does the listener
                    self._loop.call_soon_threadsafe(station.take_beat, beat)
            with contextlib.suppress(RuntimeError):
                self._watchdog.look(self._loop)
        except ServerError as error:
            self._outage.failed(ROLE, error)
            return False
        # A thread that ended would leave a listener that works without leases.
        except Exception:
            logger.exception("the heartbeat failed")
            return False
        self._outage.answered(ROLE)
        return True
