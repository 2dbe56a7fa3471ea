"""Gaps: times in which something may have been missed on a server."""

import asyncio


class Gaps:
    """Whoever notices a gap says why; the scanner waits here, and takes what was noticed."""

    def __init__(self) -> None:
        self._reasons: list[str] = []
        self._noticed = asyncio.Event()

    def notice(self, reason: str) -> None:
        """Have the server scanned soon, and say why: something may have been missed."""
        self._reasons.append(reason)
        self._noticed.set()

    def look_again(self) -> None:
        """Have it scanned soon, for a reason that is known and lasts."""
        self._noticed.set()

    async def take(self) -> list[str]:
        """Wait until a scan is wanted; the reasons are new ones, each once."""
        await self._noticed.wait()
        self._noticed.clear()
        reasons, self._reasons = self._reasons, []
        return list(dict.fromkeys(reasons))
