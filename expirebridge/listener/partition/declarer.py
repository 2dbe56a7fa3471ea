"""The declarer: sees that the series that a listener's handlers declare stand as declared."""

import asyncio
from collections.abc import Sequence

from expirebridge.errors import ServerError
from expirebridge.listener.session import Footing
from expirebridge.model.series import SeriesSpec
from expirebridge.series.definition import declare
from expirebridge.settings import Settings

ROLE = "the declared series"
RETRY_PAUSE = 1.0


class Declarer:
    """Declares the series of its partition: at the start, once a lease, and if that was emptied.

    So a listener takes over when those that carried another declaration are gone.
    """

    def __init__(
        self, footing: Footing, settings: Settings, *, name: str, specs: Sequence[SeriesSpec]
    ) -> None:
        self._footing = footing
        self._settings = settings
        self._name = name
        self._specs = [spec for spec in specs if footing.now.store.database.owns(spec.id)]
        self._asked = asyncio.Event()

    def hurry(self) -> None:
        """Declare at once."""
        self._asked.set()

    async def run(self) -> None:
        """Declare for ever."""
        while True:
            ground = self._footing.now
            self._asked.clear()
            pause = self._settings.lease
            try:
                await self.run_once()
            except ServerError as error:
                ground.outage.failed(ROLE, error)
                pause = RETRY_PAUSE
            else:
                ground.outage.answered(ROLE)
            try:
                async with asyncio.timeout(pause):
                    await self._asked.wait()
            except TimeoutError:
                pass

    async def run_once(self) -> None:
        """Declare once. Raises a ServerError."""
        await self._footing.now.store.run(declare(self._name, self._settings.lease, self._specs))
