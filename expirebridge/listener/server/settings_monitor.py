"""Checks the server's settings regularly: they may change while it runs."""

import asyncio
import logging
from collections.abc import Iterable

from expirebridge.checks import Finding, Level, check_server, events_are_on
from expirebridge.listener.periodic_role import PeriodicRole
from expirebridge.listener.server.key_router import KeyRouter
from expirebridge.listener.session import SessionOwner
from expirebridge.listener.wakeups import ResyncRequests
from expirebridge.settings import Settings
from expirebridge.task.texts import event

logger = logging.getLogger("expirebridge")

_LEVELS = {
    Level.OK: logging.INFO,
    Level.LIMIT: logging.INFO,
    Level.WARNING: logging.WARNING,
    Level.ERROR: logging.CRITICAL,
}


class SettingsMonitor(PeriodicRole):
    """Repeats a listener's first checks once a lease, and reports what has changed.

    It leaves out the search for other data, which is for the start and the doctor. And it declares
    its listener's functions again, in case that another client overwrote their names.

    After each check that finds that the server sends no key events, and once after the first that
    finds that it sends them again, it asks for a scan, which finds what the events would have said.
    """

    role = "the look at the server's settings"

    def __init__(
        self,
        server: SessionOwner,
        key_router: KeyRouter,
        settings: Settings,
        *,
        resyncs: ResyncRequests,
    ) -> None:
        super().__init__(server)
        self.retry_pause = settings.lease
        self._key_router = key_router
        self._settings = settings
        self._resyncs = resyncs
        self._known: dict[str, Finding] = {}
        self._silent = False

    def learn(self, findings: Iterable[Finding]) -> None:
        """Take findings as known: only what differs from them is reported."""
        self._known |= {finding.check: finding for finding in findings}

    async def wait(self, pause: float) -> None:
        """Wait for a lease at a time, until the server has a partition."""
        await super().wait(max(pause, self._settings.lease))
        while not self._key_router.consumers:
            await super().wait(self._settings.lease)

    async def run_once(self) -> float:
        """Check the server once; returns the seconds to pause. Raises a ServerError."""
        store = self._key_router.consumers[0].store
        findings = await store.run(check_server(store.database, data=False))
        await self._declare_again()
        self._compare(findings)
        return self._settings.lease

    async def _declare_again(self) -> None:
        """Overwrite what other clients may have written there."""
        for consumer in self._key_router.consumers:
            await asyncio.to_thread(consumer.leases.declare)

    def _compare(self, findings: list[Finding]) -> None:
        for finding in findings:
            before = self._known.get(finding.check)
            if before is not None and before.level is not finding.level:
                logger.log(
                    _LEVELS[finding.level], "the server changed: %s", finding,
                    extra=event(
                        "alarm", check=finding.check, found=finding.level, told=str(finding)
                    ),
                )  # fmt: skip
        self.learn(findings)
        was_silent, self._silent = self._silent, not events_are_on(findings)
        looks = any(consumer.membership.hears for consumer in self._key_router.consumers)
        if (self._silent or was_silent) and looks:
            self._resyncs.look_again()
