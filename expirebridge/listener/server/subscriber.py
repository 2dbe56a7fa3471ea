"""The subscription to announcements and key events of a server.

Redis forgets what it sent to nobody, and a client library that reconnects in silence hides that.
So a subscription is trusted only while its own pings are answered; each time it is renewed, there
was a gap.
"""

import asyncio
import contextlib
import time
from math import inf
from typing import Any

from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from expirebridge.errors import ServerError, ServerUnreachable
from expirebridge.listener.partition.key_events import HEARD
from expirebridge.listener.server.heartbeat import Heartbeat
from expirebridge.listener.server.key_router import KeyRouter
from expirebridge.listener.session import SessionOwner
from expirebridge.listener.wakeups import EventDemand, ResyncRequests
from expirebridge.store.errors import translated
from expirebridge.task.calls.reconciling import EventKind
from expirebridge.task.commit_message import ids_committed
from expirebridge.task.lateness import LateCause

ROLE = "the subscription"
PING_EVERY = 1.0
FRESH = 5.0
"""Seconds after which a subscription whose ping was not answered is given up."""
RETRY_PAUSE = 0.2


class Subscriber:
    """Holds one subscription: to doorbell channels and, while they are needed, key events.

    Each event is news for the consumer whose key it names. A subscription that begins may have
    missed things: that is a gap if key events were among them. `ready` is set at the first, and
    `tried` as well if that failed.
    """

    def __init__(
        self,
        server: SessionOwner,
        key_router: KeyRouter,
        *,
        heartbeat: Heartbeat,
        event_demand: EventDemand,
        resyncs: ResyncRequests,
    ) -> None:
        self._server = server
        self._key_router = key_router
        database = server.session.store.database
        self._events = {database.events(event).encode(): event for event in HEARD}
        self._heartbeat = heartbeat
        self._event_demand = event_demand
        self._resyncs = resyncs
        self.ready, self.tried = asyncio.Event(), asyncio.Event()
        self._channels: list[bytes] = []
        """The channels that it has subscribed to."""
        self._pubsub: PubSub | None = None
        self._answered = 0.0

    @property
    def fresh(self) -> bool:
        """True while pings are answered, so no message can have been missed."""
        return time.monotonic() - self._answered < FRESH

    async def settled(self, patience: float) -> None:
        """Wait until it hears, or has not for so many seconds after its first attempt broke."""
        await self.tried.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self.ready.wait()

    async def run_changes(self) -> None:
        """Hear what is wanted from now on, whenever that changes, for ever."""
        while True:
            await self._event_demand.change()
            if self._pubsub is not None:
                # A subscription that breaks just now is renewed with what is wanted then.
                with contextlib.suppress(RedisError, OSError):
                    await self._change(self._pubsub)

    async def _change(self, pubsub: PubSub) -> None:
        wanted, before = self._wanted(), self._channels
        self._channels = wanted
        try:
            if new := [channel for channel in wanted if channel not in before]:
                await pubsub.subscribe(*new)
            if old := [channel for channel in before if channel not in wanted]:
                await pubsub.unsubscribe(*old)
        except (AttributeError, RuntimeError) as error:
            # What redis-py or the event loop says of a connection that its reader closes meanwhile.
            raise ConnectionError("it was closed while it was changed") from error

    def _wanted(self) -> list[bytes]:
        """The channels of the consumers, and of key events; without any, one that says nothing."""
        nothing = self._server.session.store.database.doorbell_channel.encode()
        consumers = list(self._key_router.by_channel) or [nothing]
        return [*consumers, *(self._events if self._event_demand.open else ())]

    async def run(self) -> None:
        """Stay subscribed, for ever."""
        while True:
            try:
                await self._listen()
            except (RedisError, OSError, TimeoutError, MemoryError) as error:
                answered = self._server.session.store.database.answered
                self._server.health.failed(ROLE, _ours(error, answered=answered))
                for consumer in self._key_router.consumers:
                    consumer.hindrances.begin(LateCause.EVENT_GAP, self._answered or None)
                self.tried.set()
                await asyncio.sleep(RETRY_PAUSE)

    async def _listen(self) -> None:
        session = self._server.session
        async with session.store.client.pubsub() as pubsub:
            self._channels = self._wanted()
            await pubsub.subscribe(*self._channels)
            self._pubsub = pubsub
            await self._change(pubsub)  # more may be wanted by now
            self._answered = time.monotonic()
            pings = asyncio.create_task(self._ping(pubsub))
            try:
                # One scope for all messages, and without the client's retries: for each message
                # these would cost more than the message.
                async with asyncio.timeout(FRESH) as patience:
                    while True:
                        push = await pubsub.connection.read_response(timeout=inf)
                        if self._server.session is not session:
                            return  # a demoted primary is not believed
                        self._hear(push, patience)
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
                self._server.health.answered(ROLE)
                self._notice_gap(events=channel in self._events)
            case [b"pong", sent]:
                self._answered = max(self._answered, float(sent))
                patience.reschedule(self._answered + FRESH)

    def _notice_gap(self, *, events: bool) -> None:
        self.ready.set()
        self.tried.set()
        for consumer in self._key_router.consumers:
            consumer.key_events.hear_after_gap(events=events)
        if events:
            self._resyncs.request("the subscription to key events is new")
        elif not self._event_demand.open:  # with events, it lasts until they are scanned for
            for consumer in self._key_router.consumers:
                consumer.hindrances.end(LateCause.EVENT_GAP)

    def _hear_commit(self, data: bytes) -> None:
        ids = ids_committed(data)
        for consumer in self._key_router.consumers:  # the producer may not know the partitions
            consumer.hear_commit(ids)

    def _hear_message(self, channel: bytes, data: bytes) -> None:
        if event := self._events.get(channel):
            consumer = self._key_router.find(data)
            if consumer is not None:
                consumer.key_events.hear_event(event, data, fresh=self.fresh)
            elif HEARD[event] is not EventKind.DELETED:
                self._key_router.notice_misplaced(data)
        elif data == b"beat":
            self._heartbeat.hurry()
        elif data.startswith(b"ledger"):
            self._hear_commit(data)
        elif (consumer := self._key_router.by_channel.get(channel)) is None:
            return  # it has moved to another node
        else:
            # Anyone may publish; what is no number says no more than "look now".
            due = int(data) if data.isdigit() and len(data) < 16 else 0
            consumer.key_events.hear_doorbell(due)


def _ours(error: Exception, *, answered: bool) -> ServerError:
    """The error as the other roles would have it."""
    if isinstance(error, RedisError):
        return translated(error, answered=answered)
    return ServerUnreachable(str(error))
