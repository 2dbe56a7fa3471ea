"""A listener's parts, put together for tests as the listener itself does."""

from expirebridge.handlers import Registry
from expirebridge.hooks import Hooks
from expirebridge.listener.node.node import Node
from expirebridge.listener.runner.room import Room
from expirebridge.listener.runner.runner import Runner
from expirebridge.listener.runner.unsettled import Unsettled
from expirebridge.listener.shutdown import Shutdown
from expirebridge.listener.watchdog import Watchdog
from expirebridge.settings import Settings


class Process:
    """What the nodes of one process share: room for its tasks, and the runner."""

    def __init__(self, settings: Settings, registry: Registry, hooks: Hooks | None = None) -> None:
        self._settings = settings
        self._hooks = hooks or Hooks()
        self._unsettled = Unsettled()
        self.room = Room(settings.concurrency, self._unsettled)
        self.shutdown = Shutdown()
        self.runner = Runner(
            registry,
            settings,
            room=self.room,
            unsettled=self._unsettled,
            hooks=self._hooks,
            shutdown=self.shutdown,
        )
        self._watchdog = Watchdog(self.runner, settings, on_stuck=self.shutdown.give_up)

    def node(self, *prefixes: str) -> Node:
        """A node of the server that the settings name, with a station for each prefix."""
        return Node(
            self._settings,
            prefixes,
            name="one",
            runner=self.runner,
            room=self.room,
            unsettled=self._unsettled,
            watchdog=self._watchdog,
            hooks=self._hooks,
        )
