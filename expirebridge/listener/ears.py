"""Ears: whether a listener hears the key events of a server."""

import asyncio


class Ears:
    """Is open while some station of the node wants to hear; the subscriber waits for changes."""

    def __init__(self) -> None:
        self._wanted_by: set[object] = set()
        self._changed = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether key events are to be heard."""
        return bool(self._wanted_by)

    def want(self, who: object, wants: bool) -> None:
        """Take note whether this station wants to hear, from now on."""
        before = self.open
        (self._wanted_by.add if wants else self._wanted_by.discard)(who)
        if self.open != before:
            self._changed.set()

    def look_again(self) -> None:
        """Take note that other stations stand on the node."""
        self._changed.set()

    async def change(self) -> None:
        """Wait until they are opened or closed, or others stand on the node."""
        await self._changed.wait()
        self._changed.clear()
