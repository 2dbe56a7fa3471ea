"""The listener: wires its roles together, starts them, and stops them in order."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from expirebridge.checks import (
    EVENT_FLAGS,
    Finding,
    Level,
    check_server,
    events_are_on,
    refuse_unsuitable,
)
from expirebridge.errors import ExpirebridgeError, HandlersError, ServerUnsuitable
from expirebridge.handlers import Registry
from expirebridge.hooks import Hook, Hooks, Lifespan, Rung, Source
from expirebridge.listener import home
from expirebridge.listener.adopter import Adopter
from expirebridge.listener.claimer import Claimer
from expirebridge.listener.clock import Clock
from expirebridge.listener.doorbell import Doorbell
from expirebridge.listener.echoes import Echoes
from expirebridge.listener.event_loop import new_event_loop
from expirebridge.listener.inspector import Inspector
from expirebridge.listener.late_report import LateReport
from expirebridge.listener.leases import Leases
from expirebridge.listener.outage import Outage
from expirebridge.listener.runner import Runner
from expirebridge.listener.server_clock import ServerClock
from expirebridge.listener.subscriber import Subscriber
from expirebridge.listener.sweeper import Sweeper
from expirebridge.listener.watchdog import Watchdog
from expirebridge.log_fields import event
from expirebridge.settings import Doorbells, Settings
from expirebridge.store import calls, clients
from expirebridge.store.calls import Heard
from expirebridge.store.store import AsyncStore, Store
from expirebridge.store.urls import safe_url

logger = logging.getLogger("expirebridge")

EARS = 2
"""Listeners that hear key events: one, and another in case it dies (see docs/adr/0004)."""
GIVE_WAY = 0.0002
"""Seconds for which a thread that computes holds up the event loop (see docs/adr/0016)."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
EXPIRED = "expired"
HEARD = {
    EXPIRED: Heard.EXPIRED,
    "del": Heard.DELETED,
    "expire": Heard.LIVE,
    "persist": Heard.LIVE,
}
"""The key events that are heard, and what each says of its key."""
BY_EVENT, BY_PRODUCER = Rung(source=Source.EVENT), Rung(source=Source.PRODUCER)


class ListenerStuck(ExpirebridgeError):
    """A handler never ended after its timeout; only a new process frees its room."""

    def __init__(self, func: str, grace: float) -> None:
        super().__init__(
            f"{func} did not return {grace:g} s after its timeout; the process must be replaced"
        )


class Listener:
    """Runs due tasks until it is told to stop.

    `registry` is what it can run; without one, the modules under `settings.tasks` are loaded.
    `hooks` are told what happens. `ready` is set once the listener hears doorbells. `on_blocked` is
    called, in a thread, when a handler has blocked the event loop for so long that `run` can no
    longer raise ListenerStuck; the listener's leases lapse then.

    What it does not promise: an order among tasks that are due together, or that a task which was
    running when the process died has not done a part of its work.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry | None = None,
        hooks: Sequence[Hook] = (),
        *,
        on_blocked: Callable[[ListenerStuck], None] | None = None,
    ) -> None:
        self.settings = settings
        self._on_blocked = on_blocked
        self.registry = registry if registry is not None else Registry.load(settings.tasks)
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._stuck: str | None = None
        self._born: bytes | None = None
        self._loop: asyncio.AbstractEventLoop
        self._hearing: asyncio.Task[None]
        self._doorbell = Doorbell()
        report = LateReport(self._doorbell)
        self._wire(Hooks([report.hear, *hooks, *self.registry.hooks]))

    def _wire(self, hooks: Hooks) -> None:
        settings = self.settings
        # An answer that takes longer than this is no answer: the lease would be in danger.
        patience = max(settings.lease / 2, 1.0)
        self._store = AsyncStore(
            clients.listener_client(settings.url, socket_timeout=patience), prefix=settings.prefix
        )
        self._heart_store = Store(
            clients.heartbeat_client(settings.url, socket_timeout=patience), prefix=settings.prefix
        )
        server_clock = self._server_clock = ServerClock()
        doorbell = self._doorbell
        outage = Outage()
        self._hooks = hooks
        self._clock = Clock(doorbell, server_clock, hooks, look=self._look)
        self._leases = Leases(
            self._heart_store,
            self.name,
            lease=settings.lease,
            server_clock=server_clock,
            outage=outage,
            on_beat=self._beat_from_thread,
        )
        self._runner = Runner(
            self._store,
            self.registry,
            settings,
            leases=self._leases,
            server_clock=server_clock,
            hooks=hooks,
            outage=outage,
            on_room=self._notice_room,
            on_stuck=self._notice_stuck,
        )
        self._watchdog = Watchdog(
            self._heart_store, self._runner, settings, on_stuck=self._notice_hopeless
        )
        self._claimer = Claimer(
            self._store,
            settings,
            doorbell=doorbell,
            clock=self._clock,
            server_clock=server_clock,
            runner=self._runner,
            hooks=hooks,
            outage=outage,
            on_claimed=self._notice_claimed,
        )
        self._echoes = Echoes()
        self._adopter = Adopter(
            self._store,
            settings,
            outage=outage,
            on_stale=self._notice_stale,
            on_expired=doorbell.ring,
            is_behind=lambda: self._claimer.behind,
        )
        self._sweeper = Sweeper(
            self._store,
            settings,
            adopter=self._adopter,
            doorbell=doorbell,
            hooks=hooks,
            outage=outage,
        )
        self._inspector = Inspector(
            self._store, settings, outage=outage, on_silence=self._notice_silence
        )
        self._subscriber = Subscriber(
            self._store,
            events=() if settings.doorbell is Doorbells.CLOCK else tuple(HEARD),
            outage=outage,
            on_doorbell=self._hear_doorbell,
            on_beat=self._leases.hurry,
            on_event=self._hear_event,
            on_gap=self._notice_gap,
        )

    async def run(self) -> None:
        """Listen until `stop` is called, or a signal asks for it; then drain, and return.

        Raises a ServerError if the server cannot be used at the start (later it is waited for),
        HandlersError if a lifespan raises, and ListenerStuck if a plain function never returned.
        """
        self._loop = asyncio.get_running_loop()
        try:
            findings = await self._store.run(check_server(self._store.database))
            self._report(findings)
            self._inspector.learn(findings)
            async with self._lifespans():
                # It beats before it claims: the first heartbeat finds out whether anybody beat.
                self._take_beat(await asyncio.to_thread(self._leases.beat))
                self._greet()
                await self._run_roles()
        finally:
            await self._close()
        if self._stuck is not None:
            raise ListenerStuck(self._stuck, self.settings.grace)

    def stop(self) -> None:
        """Claim nothing more, finish what runs within the grace time, and return from `run`."""
        self._stop.set()

    # Starting and stopping

    def _report(self, findings: list[Finding]) -> None:
        for finding in findings:
            if finding.level is Level.WARNING:
                logger.warning(
                    "%s", finding,
                    extra=event("finding", check=finding.check, told=str(finding)),
                )  # fmt: skip
        refuse_unsuitable(findings)
        if self.settings.doorbell is Doorbells.EVENTS and not events_are_on(findings):
            raise ServerUnsuitable(
                "--doorbell events needs the server's key events, and it sends none: CONFIG SET "
                f"notify-keyspace-events {EVENT_FLAGS}, or take --doorbell both"
            )

    def _greet(self) -> None:
        where = safe_url(self.settings.url)
        logger.info(
            "listening on %s with %d handlers", where, len(self.registry),
            extra=event("listening", url=where, handlers=len(self.registry), listener=self.name),
        )  # fmt: skip
        if not len(self.registry):
            logger.warning("there is no handler in %s", self.settings.tasks.resolve())

    @contextlib.asynccontextmanager
    async def _lifespans(self) -> AsyncIterator[None]:
        """Begin each lifespan of the handlers' modules, and end them in the opposite order."""
        async with contextlib.AsyncExitStack() as stack:
            for lifespan in self.registry.lifespans:
                await stack.enter_async_context(_told(lifespan))
            yield

    async def _run_roles(self) -> None:
        self._leases.start()
        work = [
            self._claimer.run(),
            self._runner.run(),
            self._subscriber.run(),
            self._adopter.run(),
            self._sweeper.run(),
            self._sweeper.run_scans(),
            self._inspector.run(),
        ]
        if self.settings.doorbell is not Doorbells.EVENTS:
            work.append(self._clock.run())
        roles = [asyncio.create_task(coroutine) for coroutine in work]
        stopping = asyncio.create_task(self._stop.wait(), name="stop")
        try:
            with self._signals():
                done, _ = await asyncio.wait(
                    [stopping, *roles], return_when=asyncio.FIRST_COMPLETED
                )
                for role in done:
                    role.result()  # a role never ends but by an error, which ends the listener
                await self._claimer.stop()
                logger.info("stopping: claiming no more", extra=event("stopping"))
                await self._runner.drain(self.settings.grace if self._stuck is None else 0)
        finally:
            await _cancel([stopping, *roles])
            logger.info("stopped", extra=event("stopped"))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop in order at SIGTERM and SIGINT; at the second one without grace."""
        try:
            for number in STOP_SIGNALS:
                self._loop.add_signal_handler(number, self._take_signal)
        except (RuntimeError, ValueError):  # not in the main thread: the caller has the signals
            yield
            return
        try:
            with home.signals_stay(*STOP_SIGNALS):
                yield
        finally:
            for number in STOP_SIGNALS:
                self._loop.remove_signal_handler(number)

    def _take_signal(self) -> None:
        if self._stop.is_set():
            self._runner.cancel_running()
        self.stop()

    async def _close(self) -> None:
        self._runner.close()
        await asyncio.to_thread(self._leases.stop)
        self._heart_store.close()
        await self._store.aclose()

    # What the roles tell

    def _beat_from_thread(self, beat: calls.Beat) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; so does the listener
            self._loop.call_soon_threadsafe(self._take_beat, beat)
            self._watchdog.look(self._loop)

    def _take_beat(self, beat: calls.Beat) -> None:
        self._clock.rank = beat.rank
        if beat.born and self._born not in {None, beat.born}:
            logger.critical(
                "the database was emptied, by FLUSHDB or by a restart without its data: the tasks "
                "that waited in it are gone; listening goes on",
                extra=event("emptied"),
            )
        self._born = beat.born or self._born or b""
        for name in beat.mended:
            logger.error(
                "another client overwrote the key %s; what it put there is under broken:%s now",
                name, name, extra=event("overwritten", key=name),
            )  # fmt: skip
            self._sweeper.notice_gap(f"the key {name} was overwritten")
        if beat.gap and self.settings.doorbell is Doorbells.CLOCK:
            # With events, the subscription is new then, too, and tells of the gap.
            self._sweeper.notice_gap("no listener had beaten for half a lease")
        for id in beat.lost:
            logger.warning(
                "the lease of task %s lapsed while it ran here", id,
                extra=event("lease lost", task=id),
            )  # fmt: skip
        self._runner.cancel(beat.cancelled)
        wants_events = beat.rank < EARS or self.settings.doorbell is Doorbells.EVENTS
        # Kept, so that it is not collected before it is done.
        self._hearing = self._loop.create_task(self._subscriber.hear_events(wants_events))

    async def _look(self) -> int | None:
        return await self._store.run(calls.earliest(self.settings.prefix))

    def _hear_doorbell(self, due: int) -> None:
        self._hooks.emit(BY_PRODUCER)
        if self.settings.doorbell is not Doorbells.EVENTS:
            self._clock.hear_of(due)
        else:
            # A task that is due at once has no key, and so no event. Whether it is, only the server
            # can say: its time is known here to within a round trip, and that may say "not yet".
            self._doorbell.ring()

    def _hear_event(self, event: str, name: bytes) -> None:
        if HEARD[event] is Heard.LIVE:
            self._echoes.forget(name)
        elif self._echoes.take(name):
            return
        elif event == EXPIRED:
            self._hooks.emit(BY_EVENT)
            if self.settings.doorbell is Doorbells.EVENTS:
                self._doorbell.ring()
        # A stale subscription says nothing to be relied on: it is made anew, and a scan follows.
        if self._subscriber.fresh and not self._adopter.hear(name, HEARD[event]):
            self._sweeper.notice_gap("more keys were heard of than could be looked at")

    def _notice_gap(self, of_events: bool) -> None:
        self._doorbell.ring()
        self.ready.set()
        if of_events:
            self._echoes.forget_all()
            self._sweeper.notice_gap("the subscription to key events is new")

    def _notice_claimed(self, key: bytes) -> None:
        # The event may have come before the claim's reply, or be on its way.
        if self._subscriber.hears_events and not self._adopter.explain(key):
            self._echoes.expect(key)

    def _notice_silence(self) -> None:
        # As many look as would hear; with the clock alone, nobody expects to be told of edits.
        if self._clock.rank < EARS and self.settings.doorbell is not Doorbells.CLOCK:
            self._sweeper.scan_soon()

    def _notice_stale(self, count: int) -> None:
        self._sweeper.notice_gap("events waited for too long to be believed")
        logger.warning(
            "%d events came to nothing: they could not be looked at in time", count,
            extra=event("events dropped", count=count),
        )  # fmt: skip

    def _notice_room(self) -> None:
        self._claimer.notice_room()

    def _notice_stuck(self, func: str) -> None:
        self._stuck = func
        self.stop()

    def _notice_hopeless(self, func: str) -> None:
        """Told in the heartbeat's thread: the loop is blocked, and may never do anything again."""
        self._leases.fall_silent()
        self._loop.call_soon_threadsafe(self._notice_stuck, func)
        if self._on_blocked is not None:
            self._on_blocked(ListenerStuck(func, self.settings.grace))


@contextlib.asynccontextmanager
async def _told(lifespan: Lifespan) -> AsyncIterator[None]:
    """One lifespan; what it raises is told with its name."""
    name = f"{lifespan.__module__}.{getattr(lifespan, '__name__', lifespan)}"
    generator = lifespan()
    try:
        await anext(generator)
    except Exception as error:
        raise HandlersError(f"the lifespan {name} failed at the start: {error!r}") from error
    try:
        yield
    finally:
        try:
            await anext(generator, None)
        except Exception as error:
            raise HandlersError(f"the lifespan {name} failed at the end: {error!r}") from error
        finally:
            await generator.aclose()


async def _cancel(tasks: Sequence[asyncio.Task[object]]) -> None:
    """Cancel tasks until they have ended."""
    waiting = set(tasks)
    while waiting:
        # Once is not always enough: before Python 3.12 asyncio.wait_for, which redis-py uses, loses
        # a cancellation that arrives together with its result.
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=0.1)


def run(
    settings: Settings,
    hooks: Sequence[Hook] = (),
    *,
    registry: Registry | None = None,
    on_blocked: Callable[[ListenerStuck], None] | None = None,
) -> None:
    """Load the handlers, unless they are given, and listen until a signal comes.

    Raises as `Listener.run`.
    """
    if registry is None:
        registry = Registry.load(settings.tasks)

    async def main() -> None:
        await Listener(settings, registry, hooks, on_blocked=on_blocked).run()

    sys.setswitchinterval(GIVE_WAY)
    # Not asyncio.run: it would wait without end for what handlers left behind, such as a thread
    # that sleeps, or a coroutine that ignores its cancellation.
    loop = new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        if not asyncio.all_tasks(loop):
            loop.close()
