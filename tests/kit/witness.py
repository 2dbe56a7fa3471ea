"""A hook that remembers what happened, and lets a test wait for it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

import pytest

from expirebridge.handlers import Handler, Registry
from expirebridge.hooks import End, Ended, Event, Gap, Hook
from expirebridge.listener.listener import Listener
from expirebridge.settings import Settings
from tests.kit.patience import PATIENCE

E = TypeVar("E", bound=Event)
GATE_CLOSED = "the ledger is compared with it first"
"""In the reason for which the gate of a ledger gives a task back that has not begun."""


def _by_gate(event: Ended) -> bool:
    return event.end is End.RELEASED and GATE_CLOSED in event.reason


class _Lines(logging.Handler):
    """Sets an event at each line of the log, whichever thread it comes from."""

    def __init__(self) -> None:
        super().__init__()
        self.more = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - that there is one
        self._loop.call_soon_threadsafe(self.more.set)


async def until_logged(holds: Callable[[], object]) -> None:
    """Wait until `holds` is true after some line of the log."""
    lines = _Lines()
    # On the root logger it comes after pytest's own handler: what woke us is in `caplog` already.
    root = logging.getLogger()
    root.addHandler(lines)
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                lines.more.clear()
                await lines.more.wait()
    finally:
        root.removeHandler(lines)


async def logged(words: str, caplog: pytest.LogCaptureFixture) -> None:
    """Wait until a line of the log holds these words."""
    await until_logged(lambda: words in caplog.text)


class Witness:
    """Give it to a listener as a hook; then wait for what it saw."""

    all: ClassVar[list["Witness"]] = []
    """Those of this test, which prints what they saw if it fails."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = asyncio.Event()
        Witness.all.append(self)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._more.set()

    def seen(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def ended(self, end: End | None = None) -> list[Ended]:
        """Attempts that ended so, or somehow. One that the gate of a ledger gave back counts only
        if that is asked for: any new connection closes the gate, whenever a pool makes one."""
        if end is None:
            return [event for event in self.seen(Ended) if not _by_gate(event)]
        return [event for event in self.seen(Ended) if event.end is end]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds` is true after some event."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._more.clear()
                await self._more.wait()

    async def until_hearing(self) -> None:
        """Wait until its listener hears key events."""
        await self.until(lambda: any("subscription" in gap.reason for gap in self.seen(Gap)))

    async def until_ended(self, count: int = 1, end: End | None = None) -> list[Ended]:
        await self.until(lambda: len(self.ended(end)) >= count)
        return self.ended(end)


def registry_of(**functions: Callable[..., Any]) -> Registry:
    """A registry of `test.<name>` for each function."""
    names = {f"test.{name}": function for name, function in functions.items()}
    return Registry({name: Handler.of(name, function) for name, function in names.items()})


@asynccontextmanager
async def listening(
    settings: Settings, witness: Hook | None = None, /, **functions: Callable[..., Any]
) -> AsyncIterator[Listener]:
    """A listener in this process that runs `functions`, up when the block begins."""
    async with listening_with(registry_of(**functions), settings, witness) as listener:
        yield listener


@asynccontextmanager
async def listening_with(
    registry: Registry, settings: Settings, witness: Hook | None = None
) -> AsyncIterator[Listener]:
    """The same with the handlers of a registry, such as those of a folder."""
    listener = Listener(settings, registry, hooks=[witness] if witness else [])
    running = asyncio.create_task(listener.run())
    ready = asyncio.create_task(listener.ready.wait())
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield listener
    finally:
        ready.cancel()
        listener.stop()
        async with asyncio.timeout(PATIENCE):
            await running
