"""The doorbell: whoever thinks that a task may be due rings it; the claimer answers."""

import asyncio


class Doorbell:
    """Says "look now", and nothing else. Rings that come before the answer are one ring."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Ask the claimer to look."""
        self._rung.set()

    async def answer(self) -> None:
        """Wait for a ring, and take it."""
        await self._rung.wait()
        self._rung.clear()
