"""A listener's parts, put together for tests as the listener itself does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from expirebridge.handlers import Registry
from expirebridge.hooks import Hooks
from expirebridge.listener.execution.executor import Executor
from expirebridge.listener.partition.capability_roles import capability_roles
from expirebridge.listener.server.servers import Servers
from expirebridge.listener.wakeups import StopRequest, cancel_roles
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings
from tests.kit.patience import PATIENCE

GRACE = 5.0


class Process:
    """What the servers of one process share: the executor and its capacity."""

    def __init__(self, settings: Settings, registry: Registry, hooks: Hooks | None = None) -> None:
        self._settings = settings
        self._hooks = hooks or Hooks()
        self.shutdown = StopRequest()
        self.executor = Executor(registry, settings, hooks=self._hooks, shutdown=self.shutdown)
        self.capacity = self.executor.capacity
        self._watchdog = Watchdog(self.executor, settings, on_stuck=self.shutdown.give_up)

    def node(self, *prefixes: str, url: str | None = None) -> Servers:
        """A node of this server, or the one of the settings, with a consumer for each prefix."""
        settings = replace(self._settings, url=url or self._settings.url)
        return Servers(
            settings,
            prefixes,
            name="one",
            executor=self.executor,
            watchdog=self._watchdog,
            hooks=self._hooks,
            capabilities=capability_roles(settings),
        )

    @asynccontextmanager
    async def listening(self, *nodes: Servers) -> AsyncIterator[None]:
        """Run the nodes' roles while the block runs; it begins when they hear doorbells."""
        for node in nodes:
            await node.examine()
            await node.begin()
        roles = [asyncio.create_task(run) for node in nodes for run in node.roles().values()]
        try:
            async with asyncio.timeout(PATIENCE):
                for node in nodes:
                    await node.ready.wait()
            yield
        finally:
            for node in nodes:
                await node.stop()
            await self.executor.drain(GRACE)
            await cancel_roles(roles)
            self.executor.close()
            for node in nodes:
                await node.close()
