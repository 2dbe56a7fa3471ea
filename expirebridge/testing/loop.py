"""The event loop of a test that has none."""

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from expirebridge.testing.errors import TravelError

T = TypeVar("T")

INSIDE = "time cannot be moved while a handler runs"


@contextmanager
def unseen_loop() -> Iterator[None]:
    """For a block that awaits nothing, let no event loop seem to run: some code refuses to wait."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


class OwnLoop:
    """Runs coroutines one after the other in one event loop, which is closed at the end."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._runs = False

    def run(self, coroutine: Coroutine[Any, Any, T], *, instead: str) -> T:
        """Run a coroutine to its end.

        Raises TravelError inside of a running event loop, and names what is to be called `instead`;
        and while it runs one.
        """
        reason = ""
        if self._runs:
            reason = INSIDE
        elif asyncio._get_running_loop() is not None:
            reason = f"an event loop is running here: await {instead}(...)"
        if reason:
            coroutine.close()
            raise TravelError(reason)
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._runs = True
        try:
            return self._runner.run(coroutine, context=contextvars.copy_context())
        finally:
            self._runs = False

    def close(self) -> None:
        """Close the event loop."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
