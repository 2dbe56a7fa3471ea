"""The shutdown: whether this process is to stop listening, and whether a handler is why."""

import asyncio


class Shutdown:
    """Is asked for once, by whoever comes first; the listener waits for it."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.stuck: str | None = None
        """The function that never ended after its timeout, if that is why."""

    @property
    def asked(self) -> bool:
        """Whether the listener is to stop."""
        return self._asked.is_set()

    def ask(self) -> None:
        """Have the listener stop."""
        self._asked.set()

    def give_up(self, func: str) -> None:
        """Have it stop because a handler never ends: only a new process frees its room."""
        self.stuck = func
        self.ask()

    async def wait(self) -> None:
        """Wait until it is asked for."""
        await self._asked.wait()
