"""The subscriber: hears the server, and does no more than ring.

Redis forgets what it sent to nobody, and a client library that reconnects in silence hides that.
So a subscription is trusted only while its own pings are answered; each time it is made anew, there
was a gap.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from math import inf
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from expirebridge.errors import ServerError, ServerUnreachable
from expirebridge.listener.outage import Outage
from expirebridge.store.store import AsyncStore, translated

PING_EVERY = 1.0
FRESH = 5.0
"""Seconds after which a subscription whose ping was not answered is given up."""
RETRY_PAUSE = 0.2


class Subscriber:
    """Holds one subscription to the doorbell channel and, for an ear, to key events.

    `on_doorbell` is told the due time that a producer announced, `on_beat` that a heartbeat would
    bring news, `on_event` the event's name and the key's. A subscription that begins may have
    missed things: `on_gap` is told so, and whether key events were among them.
    """

    def __init__(
        self,
        store: AsyncStore,
        *,
        events: tuple[str, ...],
        outage: Outage,
        on_doorbell: Callable[[int], None],
        on_beat: Callable[[], None],
        on_event: Callable[[str, bytes], None],
        on_gap: Callable[[bool], None],
    ) -> None:
        self._store = store
        self._doorbell = store.database.doorbell.encode()
        self._events = {store.database.events(event).encode(): event for event in events}
        self._outage = outage
        self._on_doorbell = on_doorbell
        self._on_beat = on_beat
        self._on_event = on_event
        self._on_gap = on_gap
        self.hears_events = False
        """Whether it is to hear key events, too."""
        self._pubsub: PubSub | None = None
        self._answered = 0.0

    @property
    def fresh(self) -> bool:
        """Whether what was heard can be trusted to be all there was."""
        return time.monotonic() - self._answered < FRESH

    async def hear_events(self, hears: bool) -> None:
        """Hear key events from now on, or no longer."""
        if hears == self.hears_events or not self._events:
            return
        self.hears_events = hears
        if self._pubsub is not None:
            change = self._pubsub.subscribe if hears else self._pubsub.unsubscribe
            # A subscription that breaks just now is made anew with what is wanted then.
            with contextlib.suppress(RedisError, OSError):
                await change(*self._events)

    async def run(self) -> None:
        """Stay subscribed, for ever."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError, MemoryError) as error:
                self._outage.failed("the subscription", _ours(error))
                await asyncio.sleep(RETRY_PAUSE)

    async def _listen(self) -> None:
        async with self._store.client.pubsub() as pubsub:
            await pubsub.subscribe(self._doorbell, *(self._events if self.hears_events else ()))
            self._pubsub = pubsub
            self._answered = time.monotonic()
            pings = asyncio.create_task(self._ping(pubsub))
            try:
                # One scope for all messages, and without the client's retries: for each message
                # these would cost more than the message.
                async with asyncio.timeout(FRESH) as patience:
                    while True:
                        self._hear(await pubsub.connection.read_response(timeout=inf), patience)
            except TimeoutError:
                raise TimeoutError(f"no answer to a ping for {FRESH:g} s") from None
            finally:
                self._pubsub = None
                pings.cancel()

    async def _ping(self, pubsub: PubSub) -> None:
        while self._pubsub is pubsub:
            # Whatever goes wrong while the connection breaks: an unanswered ping says it best.
            with contextlib.suppress(Exception):
                await pubsub.ping(repr(time.monotonic()))
            await asyncio.sleep(PING_EVERY)

    def _hear(self, push: list[Any], patience: asyncio.Timeout) -> None:
        match push:
            case [b"message", channel, data]:
                self._hear_message(channel, data)
            case [b"subscribe", channel, _]:
                self._outage.answered("the subscription")
                self._on_gap(channel in self._events)
            case [b"pong", sent]:
                self._answered = max(self._answered, float(sent))
                patience.reschedule(self._answered + FRESH)

    def _hear_message(self, channel: bytes, data: bytes) -> None:
        if channel == self._doorbell and data == b"beat":
            self._on_beat()
        elif channel == self._doorbell:
            # Anyone may publish; what is no number says no more than "look now".
            self._on_doorbell(int(data) if data.isdigit() and len(data) < 16 else 0)
        elif event := self._events.get(channel):
            self._on_event(event, data)


def _ours(error: Exception) -> ServerError:
    """The error as the other roles would have it."""
    return translated(error) if isinstance(error, RedisError) else ServerUnreachable(str(error))
