"""The base of the roles that do the same thing again and again."""

import asyncio
from abc import ABC, abstractmethod

from expirebridge.errors import ServerError
from expirebridge.listener.session import SessionOwner


class PeriodicRole(ABC):
    """A role that runs once, pauses and repeats, until its listener cancels it.

    A ServerError is reported to the owner's health, and the role runs again after `retry_pause`.
    Any other error ends the listener.
    """

    role: str
    """Its name in the log of outages."""
    retry_pause: float
    """Seconds between a run that failed and the next one."""

    def __init__(self, owner: SessionOwner) -> None:
        self._owner = owner

    async def run(self) -> None:
        """Run again and again."""
        pause = 0.0
        while True:
            await self.wait(pause)
            pause = await self.try_once()

    async def wait(self, pause: float) -> None:
        """Wait until the next run, which is at least `pause` seconds away unless overridden."""
        if pause > 0:
            await asyncio.sleep(pause)

    async def try_once(self) -> float:
        """Run once, and report whether the server answered; returns the seconds to pause."""
        health = self._owner.health  # the one that was asked: another may be there afterwards
        try:
            pause = await self.run_once()
        except ServerError as error:
            health.failed(self.role, error)
            self.after_failure()
            return self.retry_pause
        health.answered(self.role)
        return pause

    @abstractmethod
    async def run_once(self) -> float:
        """Do the work once; returns the seconds to pause. Raises a ServerError."""

    def after_failure(self) -> None:  # noqa: B027
        """Called after a run that raised a ServerError; does nothing unless overridden."""
