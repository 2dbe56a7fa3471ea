"""The listener: runs due tasks until it is asked to stop, in its own process or in a program."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from expirebridge.connection.urls import safe_url
from expirebridge.errors import ListenerStuck
from expirebridge.handlers import Registry
from expirebridge.hooks import Hook, Hooks
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.lifespans import entered
from expirebridge.listener.parent import SupervisorLink
from expirebridge.listener.partition.capability_roles import capability_roles
from expirebridge.listener.process import (
    guard_log,
    keep_what_is_loaded,
    new_event_loop,
    taking_signals,
)
from expirebridge.listener.server.servers import Servers
from expirebridge.listener.stray_errors import kept_private
from expirebridge.listener.wakeups import StopRequest, cancel_roles
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from expirebridge.store import script_loader
from expirebridge.task.keywords import advising
from expirebridge.task.texts import event

# Suspending a listener: it claims nothing, and continues what it has.


class Suspension:
    """Suspends a listener and resumes it, as often as it is asked to, until it stops.

    A suspended listener still sends heartbeats, with its functions, so that tasks whose functions
    no other listener has wait for it. It logs when nothing runs in it any more.
    """

    def __init__(self, servers: Servers, executor: Executor, shutdown: StopRequest) -> None:
        self._servers = servers
        self._in_flight = executor.in_flight
        self._condition = executor.condition
        self._shutdown = shutdown
        self._draining: asyncio.Task[None] | None = None
        """Set while the listener is suspended."""

    def suspend(self) -> None:
        """Claim nothing more until `resume`; what runs goes on."""
        if self._draining is None and not self._shutdown.begun:
            self._condition.suspended = True
            self._draining = asyncio.create_task(self._drain(), name="suspension")

    def resume(self) -> None:
        """Claim again."""
        # systemd sends SIGCONT behind each SIGTERM: by then the listener stops.
        if self._draining is None or self._shutdown.begun:
            return
        self.close()
        self._condition.suspended = False
        self._servers.resume()
        logger.info("resumed: claiming again", extra=event("resumed"))

    def close(self) -> None:
        """Log no more; the listener resumes, or stops."""
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None

    async def _drain(self) -> None:
        await self._servers.suspend()
        logger.info(
            "suspended: claiming no more until SIGCONT or resume()", extra=event("suspended")
        )
        await self._in_flight.wait_until(lambda: not self._in_flight, None)
        logger.info("nothing runs in this listener any more", extra=event("drained"))


logger = logging.getLogger("expirebridge")


@advising
class Listener:
    """Runs due tasks until it is asked to stop: `async with Listener(Settings(...)):`.

    Without `settings`, those of the environment count, as for the command. `registry` is what it
    can run; without one, the settings say what is loaded. `hooks` receive what happens.
    `on_blocked` is called, in a thread, when a handler has blocked the event loop for so long that
    nothing can be raised in it any more; what the listener could not record by then lapses.

    The block begins when the listener hears doorbells, and raises what `run` raises at the start.
    At its end the listener stops in order, within `settings.grace`. If the listener ends by an
    error before, the block is not cancelled: `wait` raises the error, and so does the block's end
    unless it raises something itself. A block that is cancelled while it waits for the end takes
    the grace time away.

    It works in any asyncio event loop, and leaves signals and logging to the program. It runs once.

    What it does not promise: an order among tasks that are due together, or that a task which was
    running when the process died has not done a part of its work.

    Raises HandlersError if the handlers cannot be loaded, and InvalidSetting for a URL that cannot
    be used.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        registry: Registry | None = None,
        hooks: Sequence[Hook] = (),
        *,
        on_blocked: Callable[[ListenerStuck], None] | None = None,
    ) -> None:
        guard_log()
        self.settings = settings = settings if settings is not None else Settings.read()
        self._on_blocked = on_blocked
        self.registry = registry if registry is not None else Registry.of(settings)
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Task[None] | None = None
        self._parent: SupervisorLink | None = None
        self._shutdown = StopRequest()
        capabilities = capability_roles(settings)
        own_hooks = [each.hook for each in capabilities if each.hook is not None]
        all_hooks = Hooks([*own_hooks, *hooks, *self.registry.hooks])
        self._executor = Executor(self.registry, settings, hooks=all_hooks, shutdown=self._shutdown)
        self._watchdog = Watchdog(self._executor, settings, on_stuck=self._end_blocked)
        self._servers = Servers(
            settings,
            [settings.prefix],
            name=self.name,
            executor=self._executor,
            watchdog=self._watchdog,
            hooks=all_hooks,
            capabilities=capabilities,
        )
        self._suspension = Suspension(self._servers, self._executor, self._shutdown)

    @property
    def ready(self) -> asyncio.Event:
        """Is set once the listener hears doorbells."""
        return self._servers.ready

    async def __aenter__(self) -> Self:
        """Start it, and wait until it hears doorbells. Raises what `run` raises at the start."""
        self._running = running = asyncio.create_task(self.run(), name="expirebridge listener")
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.stop(at_once=True)
            running.cancel()
            await asyncio.wait([running])
            raise
        finally:
            await cancel_roles([ready])
        if running.done():
            running.result()
        running.add_done_callback(_log_end)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it in order. Raises what ended it before, unless the block raised."""
        if self._running is None:
            return
        self.stop()
        try:
            await asyncio.wait([self._running])
        except asyncio.CancelledError:
            self.stop(at_once=True)
            await asyncio.wait([self._running])
            raise
        if error is None:
            self._running.result()

    async def wait(self) -> None:
        """Wait until the listener of this `async with` block has ended. Raises what `run` raises.

        It ends by itself only with an error: ListenerStuck, or one that nobody foresaw.
        """
        if self._running is None:
            raise RuntimeError("the listener was not started: async with Listener(...)")
        await asyncio.wait([self._running])
        self._running.result()

    async def run(
        self, *, take_signals: bool = False, parent: SupervisorLink | None = None
    ) -> None:
        """Listen until `stop` is called; then drain, and return.

        With `take_signals`, SIGTERM and SIGINT stop it, SIGTSTP suspends it, and SIGCONT resumes
        it: for a process that does nothing else.
        `parent`, the process that started this one as a worker, is notified when this is ready.
        If it is cancelled, it gives back what it runs, without the grace time.

        Raises a ServerError if the server cannot be used at the start (later it is waited for),
        HandlersError if a lifespan raises, ListenerStuck if a handler did not end in time, and
        RuntimeError if it ran before.
        """
        if self._loop is not None:
            raise RuntimeError("a listener runs once: make another one")
        self._loop, self._parent = asyncio.get_running_loop(), parent
        signals = taking_signals(self._take_signal) if take_signals else None
        private = kept_private() if self.settings.keys else None
        script_loader.read_all()
        try:
            await self._servers.examine()
            async with entered(self.registry.lifespans):
                with signals or contextlib.nullcontext(), private or contextlib.nullcontext():
                    # The first heartbeats come before claims: they find out if any listener lives.
                    await self._servers.begin()
                    self._greet()
                    await self._run_roles()
        finally:
            self._executor.close()
            await self._servers.close()
        if self._shutdown.stuck is not None:
            raise ListenerStuck(self._shutdown.stuck, self.settings.grace)

    def stop(self, *, at_once: bool = False) -> None:
        """Claim nothing more, finish what runs within the grace time, and return from `run`.

        With `at_once` there is no grace time, or no more of it: what can be stopped is given back,
        and plain functions are left to their leases. Call it on the listener's event loop.
        """
        self._shutdown.ask()
        self._executor.in_flight.look_again()
        if at_once:
            self._executor.hurry()

    def suspend(self) -> None:
        """Claim nothing more until `resume`. What runs goes on, and is recorded.

        It still sends heartbeats, so that tasks whose functions no other listener has wait for it.
        It logs when nothing runs in it any more. Call it on the listener's event loop.
        """
        self._suspension.suspend()

    def resume(self) -> None:
        """Claim again, after `suspend`. Call it on the listener's event loop."""
        self._suspension.resume()

    def _greet(self) -> None:
        url = safe_url(self.settings.url)
        handlers, loaded = len(self.registry), self.registry.loaded
        fields = event("listening", url=url, handlers=handlers, loaded=loaded, listener=self.name)
        logger.info(
            "listening on %s with %d handler%s%s", url, handlers, "" if handlers == 1 else "s",
            f" (of {loaded})" if loaded > handlers else "", extra=fields,
        )  # fmt: skip
        if not handlers:
            place = self.settings.tasks
            logger.warning(
                "there is no handler in %s", place.resolve() if isinstance(place, Path) else place
            )

    async def _run_roles(self) -> None:
        self._executor.open()
        roles = [asyncio.create_task(run, name=role) for role, run in self._servers.roles().items()]
        stopping = asyncio.create_task(self._until_end(), name="end")
        report = asyncio.create_task(self._report_ready(), name="ready")
        grace = 0.0
        try:
            done, _ = await asyncio.wait([stopping, *roles], return_when=asyncio.FIRST_COMPLETED)
            for role in done:
                role.result()  # a role never ends but by an error, which ends the listener
            grace = self.settings.grace
        finally:
            self._suspension.close()
            try:
                await self._servers.stop()
                logger.info("stopping: claiming no more", extra=event("stopping"))
                await self._executor.drain(grace)
            finally:
                await cancel_roles([stopping, report, *roles])
                logger.info("stopped", extra=event("stopped"))

    async def _until_end(self) -> None:
        """Wait until it is asked to stop, or until nothing else runs beside a stuck handler."""
        await self._shutdown.wait()
        if not self._shutdown.asked:
            await self._servers.stop()
            await self._executor.finish_others(self._shutdown)

    async def _report_ready(self) -> None:
        if self._parent is not None:
            await self.ready.wait()
            self._parent.report_ready()

    def _take_signal(self, number: signal.Signals) -> None:
        match number:
            case signal.SIGTSTP:
                self.suspend()
            case signal.SIGCONT:
                self.resume()
            case _:
                self._take_stop(number)

    def _take_stop(self, number: signal.Signals) -> None:
        """The first asks it to stop in order, the second without grace."""
        # A worker gets SIGTERM from its parent, and may get it from a supervisor, too, which sends
        # it to every process of a service. Its parent ends the grace time with SIGINT.
        is_repeated = self._parent is None or number is not signal.SIGTERM
        self.stop(at_once=self._shutdown.asked and is_repeated)

    def _end_blocked(self, func: str) -> None:
        """In the heartbeat's thread: the loop is blocked, and may never do anything again."""
        self._servers.fall_silent()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._shutdown.give_up, func)
            self._loop.call_soon_threadsafe(lambda: self.stop(at_once=True))
        if self._on_blocked is not None:
            self._on_blocked(ListenerStuck(func, self.settings.grace))


def _log_end(running: asyncio.Task[None]) -> None:
    """Log the error that ended a listener in a program, which may see it only much later."""
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.critical("the listener has ended: %s", error, extra=event("ended"), exc_info=error)


def run(
    settings: Settings,
    hooks: Sequence[Hook] = (),
    *,
    registry: Registry | None = None,
    on_blocked: Callable[[ListenerStuck], None] | None = None,
    parent: SupervisorLink | None = None,
) -> None:
    """Load the handlers, unless they are given, and listen until a signal comes.

    Raises as `Listener.run`.
    """
    if registry is None:
        registry = Registry.of(settings)

    async def main() -> None:
        listener = Listener(settings, registry, hooks, on_blocked=on_blocked)
        listener._executor.share_processor()
        keep_what_is_loaded()
        await listener.run(take_signals=True, parent=parent)

    # Not asyncio.run: it would wait without end for what handlers left behind, such as a thread
    # that sleeps, or a coroutine that ignores its cancellation.
    loop = new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        if not asyncio.all_tasks(loop):
            loop.close()
