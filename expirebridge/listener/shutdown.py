"""The shutdown: whether this listener is to end, and whether a handler is why."""

import asyncio


class Shutdown:
    """Begins when somebody asks the listener to stop, or when a handler is stuck."""

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self.asked = False
        """Whether somebody asked the listener to stop."""
        self.stuck: str | None = None
        """The first function that did not end a grace time after its timeout, if one did not."""

    @property
    def begun(self) -> bool:
        """Whether the listener is to end."""
        return self._begun.is_set()

    def ask(self) -> None:
        """Have the listener stop."""
        self.asked = True
        self._begun.set()

    def give_up(self, func: str) -> None:
        """Have it end because a handler does not: only a new process frees its place."""
        self.stuck = self.stuck or func
        self._begun.set()

    async def wait(self) -> None:
        """Wait until the listener is to end."""
        await self._begun.wait()
