"""The listener: a process that runs due tasks until it is asked to stop."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

from expirebridge.errors import ExpirebridgeError, HandlersError
from expirebridge.handlers import Registry
from expirebridge.hooks import Hook, Hooks, Lifespan
from expirebridge.listener.event_loop import new_event_loop
from expirebridge.listener.late_report import LateReport
from expirebridge.listener.node.node import Node
from expirebridge.listener.runner import fork_guard
from expirebridge.listener.runner.runner import Runner
from expirebridge.listener.shutdown import Shutdown
from expirebridge.listener.watchdog import Watchdog
from expirebridge.log_fields import event
from expirebridge.settings import Settings
from expirebridge.store.urls import safe_url

logger = logging.getLogger("expirebridge")

GIVE_WAY = 0.0002
"""Seconds for which a thread that computes holds up the event loop (see docs/adr/0016)."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ListenerStuck(ExpirebridgeError):
    """A handler never ended after its timeout; only a new process frees its room."""

    def __init__(self, func: str, grace: float) -> None:
        super().__init__(
            f"{func} did not return {grace:g} s after its timeout; the process must be replaced"
        )


class Listener:
    """Runs due tasks until it is asked to stop.

    `registry` is what it can run; without one, the modules under `settings.tasks` are loaded.
    `hooks` receive what happens. `ready` is set once the listener hears doorbells. `on_blocked` is
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
        self._loop: asyncio.AbstractEventLoop
        self._shutdown = Shutdown()
        report = LateReport()
        all_hooks = Hooks([report.hear, *hooks, *self.registry.hooks])
        self._runner = Runner(self.registry, settings, hooks=all_hooks, shutdown=self._shutdown)
        self._watchdog = Watchdog(self._runner, settings, on_stuck=self._notice_hopeless)
        self._node = Node(
            settings,
            [settings.prefix],
            name=self.name,
            runner=self._runner,
            watchdog=self._watchdog,
            hooks=all_hooks,
        )
        report.ring_at([station.doorbell for station in self._node.stations])

    @property
    def ready(self) -> asyncio.Event:
        """Is set once the listener hears doorbells."""
        return self._node.ready

    async def run(self) -> None:
        """Listen until `stop` is called, or a signal asks for it; then drain, and return.

        Raises a ServerError if the server cannot be used at the start (later it is waited for),
        HandlersError if a lifespan raises, and ListenerStuck if a plain function never returned.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._node.examine()
            async with self._lifespans():
                # It beats before it claims: the first heartbeat finds out whether anybody beat.
                await self._node.heartbeat.begin()
                self._greet()
                await self._run_roles()
        finally:
            self._runner.close()
            await self._node.close()
        if self._shutdown.stuck is not None:
            raise ListenerStuck(self._shutdown.stuck, self.settings.grace)

    def stop(self) -> None:
        """Claim nothing more, finish what runs within the grace time, and return from `run`."""
        self._shutdown.ask()

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
                await stack.enter_async_context(_named(lifespan))
            yield

    async def _run_roles(self) -> None:
        self._node.heartbeat.start()
        roles = [asyncio.create_task(run, name=role) for role, run in self._node.roles().items()]
        stopping = asyncio.create_task(self._shutdown.wait(), name="stop")
        try:
            with self._signals():
                done, _ = await asyncio.wait(
                    [stopping, *roles], return_when=asyncio.FIRST_COMPLETED
                )
                for role in done:
                    role.result()  # a role never ends but by an error, which ends the listener
                await self._node.stop()
                logger.info("stopping: claiming no more", extra=event("stopping"))
                await self._runner.drain(self.settings.grace if not self._shutdown.stuck else 0)
        finally:
            await cancel_roles([stopping, *roles])
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
            with fork_guard.signals_stay(*STOP_SIGNALS):
                yield
        finally:
            for number in STOP_SIGNALS:
                self._loop.remove_signal_handler(number)

    def _take_signal(self) -> None:
        if self._shutdown.asked:
            self._runner.cancel_running()
        self.stop()

    def _notice_hopeless(self, func: str) -> None:
        """In the heartbeat's thread: the loop is blocked, and may never do anything again."""
        self._node.heartbeat.fall_silent()
        self._loop.call_soon_threadsafe(self._shutdown.give_up, func)
        if self._on_blocked is not None:
            self._on_blocked(ListenerStuck(func, self.settings.grace))


@contextlib.asynccontextmanager
async def _named(lifespan: Lifespan) -> AsyncIterator[None]:
    """One lifespan; what it raises is raised with its name."""
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


async def cancel_roles(tasks: Sequence[asyncio.Task[object]]) -> None:
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
