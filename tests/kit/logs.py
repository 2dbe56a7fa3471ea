"""The log of listeners in this process, and waiting for its events."""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from expirebridge.hooks import Event
from expirebridge.observe.logs import JsonLines, log_event
from expirebridge.settings import Settings
from tests.kit.witness import Witness, listening, until_logged

SECRET = "4111-1111"
"""An argument, which no log shows."""


class Log:
    """What was logged, by event."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        # A command that ran in this process may have set a level of its own.
        for logger in (None, "expirebridge"):
            caplog.set_level(logging.DEBUG, logger)
        self._caplog = caplog

    def events(self) -> Counter[str]:
        return Counter(getattr(record, "event", "other") for record in self._caplog.records)

    def fields(self, name: str) -> list[dict[str, object]]:
        records = [r for r in self._caplog.records if getattr(r, "event", None) == name]
        return [getattr(record, "fields", {}) for record in records]

    async def until(self, name: str, count: int = 1) -> None:
        """Wait until so many events of this name were logged."""
        await until_logged(lambda: self.events()[name] >= count)

    def text(self) -> str:
        """All of it, as people and as machines see it."""
        lines = [JsonLines().format(record) for record in self._caplog.records]
        return "\n".join([self._caplog.text, *lines])


@contextmanager
def logging_restored() -> Iterator[None]:
    """Undo at the end what a command configures for its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in ("expirebridge", "asyncio", "redis")}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name, before in levels.items():
            logging.getLogger(name).setLevel(before)
        logging.captureWarnings(capture=False)


@asynccontextmanager
async def telling(url: str, witness: Witness, **handlers: object) -> AsyncIterator[None]:
    """A listener that logs what happens, as the command's does."""

    def tell(event: Event) -> None:
        witness(event)
        log_event(event)

    async with listening(Settings(url=url, lease=1), tell, **handlers):  # type: ignore[arg-type]
        yield
