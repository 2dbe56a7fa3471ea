"""The heartbeat: renews the leases of a server's partitions, in a thread of its own.

A handler that blocks the event loop must not cost the other handlers their leases, so the
heartbeat has its own thread and its own connection.
"""

import asyncio
import contextlib
import logging
import threading

from expirebridge.errors import ServerError, ServerUnreachable
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.listener.server.key_router import KeyRouter
from expirebridge.listener.session import ServerHealth
from expirebridge.listener.watchdog import Watchdog
from expirebridge.task.calls import claiming

logger = logging.getLogger("expirebridge")

ROLE = "the heartbeat"


class Heartbeat:
    """Sends the heartbeats of all partitions of a server, three times a lease.

    At each round the watchdog looks whether the event loop still goes on.
    """

    def __init__(self, key_router: KeyRouter, *, lease: float, watchdog: Watchdog) -> None:
        self._key_router = key_router
        self._pause = lease / claiming.BEATS_PER_LEASE
        self._short_pause = min(0.5, lease / 10)
        self._watchdog = watchdog
        self._loop: asyncio.AbstractEventLoop
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="expirebridge-leases", daemon=True)

    async def begin(self) -> None:
        """Send the first heartbeats, before anything is claimed. Raises a ServerError."""
        for consumer in self._key_router.consumers:
            consumer.take_heartbeat(await asyncio.to_thread(consumer.leases.send_heartbeat))

    def start(self) -> None:
        """Go on in the thread; its answers come on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def fail(self, error: ServerError) -> None:
        """Report that the server did not answer the first heartbeat, and retry soon."""
        for consumer in self._key_router.consumers:
            consumer.session.health.failed(ROLE, error)
        self.hurry()

    def hurry(self) -> None:
        """Send heartbeats at once: the answers may have news."""
        self._wake.set()

    def fall_silent(self) -> None:
        """Send no more heartbeats, without leaving: all leases lapse."""
        self._stopping = True

    def stop(self) -> None:
        """Send no more heartbeats, and leave if the server answers."""
        self._stopping = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        for consumer in self._key_router.consumers:
            if not consumer.leases.leave():
                return

    def _run(self) -> None:
        pause = self._pause
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._stopping:
                return
            pause = self._pause if self._send_all() else self._short_pause

    def _send_all(self) -> bool:
        """Send a heartbeat for each consumer; returns True if all were answered."""
        answered, failed = set[ServerHealth](), set[ServerHealth]()
        try:
            for consumer in self._key_router.consumers:
                health = consumer.session.health
                try:
                    self._send(consumer)
                except ServerError as error:
                    health.failed(ROLE, error)
                    failed.add(health)
                    if isinstance(error, ServerUnreachable):
                        break  # each of the others would wait as long
                else:
                    answered.add(health)
            if not failed:
                with contextlib.suppress(RuntimeError):
                    self._watchdog.look(self._loop)
        # A thread that ended would leave a listener that works without leases.
        except Exception:
            logger.exception("the heartbeat failed")
            return False
        for health in answered - failed:
            health.answered(ROLE)
        return not failed

    def _send(self, consumer: PartitionConsumer) -> None:
        reply = consumer.leases.send_heartbeat()
        with contextlib.suppress(RuntimeError):  # the loop has ended; so does the listener
            self._loop.call_soon_threadsafe(consumer.take_heartbeat, reply)
