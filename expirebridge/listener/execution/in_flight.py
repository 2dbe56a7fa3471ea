"""Unsettled: the attempts whose outcome is not recorded yet."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from expirebridge.listener.execution.leased_attempt import LeasedAttempt


class Unsettled:
    """Every attempt of this process from its claim until its outcome is recorded, or refused."""

    def __init__(self) -> None:
        self._attempts: set[LeasedAttempt] = set()
        self._settled = asyncio.Event()

    def __iter__(self) -> "Iterator[LeasedAttempt]":
        return iter(self._attempts)

    def __contains__(self, attempt: "LeasedAttempt") -> bool:
        return attempt in self._attempts

    def __bool__(self) -> bool:
        return bool(self._attempts)

    @property
    def at_rest(self) -> bool:
        """Whether none is left but those whose node is away."""
        return all(attempt.origin.footing.now.is_away for attempt in self._attempts)

    def add(self, attempt: "LeasedAttempt") -> None:
        """Take note of an attempt whose task was claimed."""
        self._attempts.add(attempt)

    def discard(self, attempt: "LeasedAttempt") -> None:
        """Take note that its outcome is recorded, or was refused."""
        self._attempts.discard(attempt)
        self.look_again()

    def look_again(self) -> None:
        """Let those who wait look whether they still must."""
        self._settled.set()

    async def wait_until(self, reached: Callable[[], bool], seconds: float | None) -> None:
        """Wait until `reached` holds, at most so many seconds; None: however long it takes.

        It is asked after each attempt that was settled, and after `look_again`.
        """
        # Not asyncio.timeout: this is for the end of a listener, which may have been cancelled, and
        # Python 3.11.2 then takes the time that is over for another cancellation.
        waiting = asyncio.create_task(self._until(reached))
        try:
            await asyncio.wait([waiting], timeout=seconds)
        finally:
            waiting.cancel()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._settled.clear()
            await self._settled.wait()
