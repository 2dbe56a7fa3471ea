"""A node: one server, and the stations of this listener that stand on it."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from expirebridge.checks import (
    EVENT_FLAGS,
    Finding,
    Level,
    check_server,
    events_are_on,
    refuse_unsuitable,
)
from expirebridge.errors import NotPermitted, PartitionsDiffer, ServerUnsuitable
from expirebridge.hooks import Hooks
from expirebridge.listener.ears import Ears
from expirebridge.listener.footing import Ground
from expirebridge.listener.gaps import Gaps
from expirebridge.listener.node.follower import Follower
from expirebridge.listener.node.generation import Generation
from expirebridge.listener.node.heartbeat import Heartbeat
from expirebridge.listener.node.inspector import Inspector
from expirebridge.listener.node.scanner import Scanner
from expirebridge.listener.node.subscriber import Subscriber
from expirebridge.listener.outage import Outage
from expirebridge.listener.runner.runner import Runner
from expirebridge.listener.station.station import Station
from expirebridge.listener.watchdog import Watchdog
from expirebridge.log_fields import event
from expirebridge.settings import Doorbells, Settings
from expirebridge.slots import Layout
from expirebridge.store import calls
from expirebridge.store.routing import Routing
from expirebridge.topology import clients
from expirebridge.topology.primary import Berth

logger = logging.getLogger("expirebridge")


class Node:
    """The roles of one server, with a station for each partition of these prefixes."""

    def __init__(
        self,
        settings: Settings,
        prefixes: Sequence[str],
        *,
        name: str,
        runner: Runner,
        watchdog: Watchdog,
        hooks: Hooks,
    ) -> None:
        self._settings = settings
        outage, gaps, ears = Outage(), Gaps(), Ears()
        begin = partial(Generation, settings, outage=outage, gaps=gaps, ears=ears)
        primary = clients.to_follow(settings.url, prefixes[0])
        self._generation = begin(Berth(primary) if primary else None)
        self._prefixes = prefixes
        self._begin_station = partial(
            Station, settings=settings, name=name, runner=runner, hooks=hooks
        )
        self.stations = stations = list[Station]()
        """Those of all partitions; none until `examine` finds out how many there are."""
        self.heartbeat = Heartbeat(stations, lease=settings.lease, outage=outage, watchdog=watchdog)
        self._subscriber = Subscriber(
            stations, heartbeat=self.heartbeat, ears=ears, gaps=gaps, outage=outage
        )
        self._scanner = Scanner(stations, settings, gaps=gaps, outage=outage, hooks=hooks)
        self._inspector = Inspector(stations, settings, gaps=gaps, outage=outage)
        self._follower = None if primary is None else Follower(
            primary, self._generation, begin, stations,
            heartbeat=self.heartbeat, gaps=gaps, outage=outage, hooks=hooks,
        )  # fmt: skip

    @property
    def ready(self) -> asyncio.Event:
        """Is set once doorbells are heard."""
        return self._subscriber.ready

    def ground_of(self, prefix: str, partitions: int = 1) -> Ground:
        """What a station of this prefix stands on here."""
        return self._generation.ground_of(prefix, partitions)

    async def examine(self) -> None:
        """Find the stations, check whether the server can be used, and report problems.

        Raises a ServerError, and InvalidSetting for a prefix that is that of one partition.
        """
        await self.find_stations()
        store = self.stations[0].store
        findings = await store.run(check_server(store.database))
        _report(findings)
        refuse_unsuitable(findings)
        if self._settings.doorbell is Doorbells.EVENTS and not events_are_on(findings):
            raise ServerUnsuitable(
                "--doorbell events needs the server's key events, and it sends none: CONFIG SET "
                f"notify-keyspace-events {EVENT_FLAGS}, or take --doorbell both"
            )
        self._inspector.learn(findings)

    async def find_stations(self) -> None:
        """Begin a station for each partition. Raises as `examine`."""
        for prefix in self._prefixes:
            layout = await self._find_layout(prefix)
            self.stations += [
                self._begin_station(self.ground_of(one, layout.count)) for one in layout.prefixes()
            ]
        self._subscriber.begin()

    async def _find_layout(self, prefix: str) -> Layout:
        """How many partitions the database has."""
        routing = Routing(prefix)
        try:
            await self.ground_of(prefix).store.run(calls.read_partitions())
        except PartitionsDiffer as told:
            routing.learn(told)
        except NotPermitted:
            pass  # the check of the rights says what is missing
        return routing.layout

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What it does, each for ever, and what its stations do."""
        roles = {
            "subscription": self._subscriber.run(),
            "changes of the subscription": self._subscriber.run_changes(),
            "scans": self._scanner.run(),
            "inspection": self._inspector.run(),
        }
        if self._follower is not None:
            roles["the primary"] = self._follower.run()
        for station in self.stations:
            prefix = station.store.database.prefix
            roles |= {f"{role} of {prefix}": run for role, run in station.roles().items()}
        return roles

    async def stop(self) -> None:
        """Claim no more; what runs goes on."""
        for station in self.stations:
            await station.stop()

    async def suspend(self) -> None:
        """Claim no more until `resume`; what runs goes on."""
        for station in self.stations:
            await station.suspend()

    def resume(self) -> None:
        """Claim again."""
        for station in self.stations:
            station.resume()

    async def close(self) -> None:
        """Say goodbye, if the server answers, and close the connections."""
        await asyncio.to_thread(self.heartbeat.stop)
        await asyncio.gather(*(station.close() for station in self.stations))
        generation = self._generation
        if self._follower is not None:
            await self._follower.close()
            generation = self._follower.generation
        await generation.close()


def _report(findings: list[Finding]) -> None:
    for finding in findings:
        if finding.level is Level.WARNING:
            logger.warning(
                "%s", finding,
                extra=event("finding", check=finding.check, told=str(finding)),
            )  # fmt: skip
