"""The suspension: a listener that claims nothing for a while, and goes on with what it has."""

import asyncio
import logging

from expirebridge.listener.execution.executor import Runner
from expirebridge.listener.server.servers import Site
from expirebridge.listener.shutdown import Shutdown
from expirebridge.model.log_fields import event

logger = logging.getLogger("expirebridge")


class Suspension:
    """Suspends a listener and resumes it, as often as it is asked to, until it stops.

    A suspended listener still beats, and says what it knows: so tasks that only it knows wait for
    it. The log says when nothing runs in it any longer.
    """

    def __init__(self, site: Site, runner: Runner, shutdown: Shutdown) -> None:
        self._site = site
        self._unsettled = runner.unsettled
        self._shutdown = shutdown
        self._draining: asyncio.Task[None] | None = None
        """Set while the listener is suspended."""

    def suspend(self) -> None:
        """Claim nothing more until `resume`; what runs goes on."""
        if self._draining is None and not self._shutdown.begun:
            self._draining = asyncio.create_task(self._drain(), name="suspension")

    def resume(self) -> None:
        """Claim again."""
        # systemd sends SIGCONT behind each SIGTERM: by then the listener stops.
        if self._draining is None or self._shutdown.begun:
            return
        self.close()
        self._site.resume()
        logger.info("resumed: claiming again", extra=event("resumed"))

    def close(self) -> None:
        """Log no more; the listener resumes, or stops."""
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None

    async def _drain(self) -> None:
        await self._site.suspend()
        logger.info(
            "suspended: claiming no more until SIGCONT or resume()", extra=event("suspended")
        )
        await self._unsettled.wait_until(lambda: not self._unsettled, None)
        logger.info("nothing runs in this listener any more", extra=event("drained"))
