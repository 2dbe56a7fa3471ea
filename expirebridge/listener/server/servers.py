"""The site: where the stations of a listener stand, on one server or on the nodes of a cluster."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from expirebridge.listener.ledger.roles import office_of
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.settings import Settings


class Servers(ABC):
    """The stations of all partitions, and the nodes below them."""

    def __init__(self, settings: Settings) -> None:
        self.office = office_of(settings)
        """What all stations share of their ledger; None without one."""
        self.stations: list[PartitionConsumer] = []
        """None until `examine` finds out how many partitions there are."""

    @property
    @abstractmethod
    def ready(self) -> asyncio.Event:
        """Is set once doorbells are heard."""

    @abstractmethod
    async def examine(self) -> None:
        """Find the stations, check whether the servers can be used, and report problems.

        Raises a ServerError, and InvalidSetting for a prefix that is that of one partition.
        """

    @abstractmethod
    async def begin(self) -> None:
        """Beat once for each station, before anything is claimed. Raises a ServerError."""

    @abstractmethod
    def start(self) -> None:
        """Go on beating."""

    @abstractmethod
    def fall_silent(self) -> None:
        """Stop beating, without leaving: all leases lapse. For any thread."""

    @abstractmethod
    def node_roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What it does for its nodes, each for ever."""

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye to the servers that answer, and close the connections."""

    async def close_office(self) -> None:
        """Close the connections to the ledger's database."""
        if self.office is not None:
            await asyncio.to_thread(self.office.close)

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What it does, each for ever, and what its stations do."""
        roles = self.node_roles()
        for station in self.stations:
            prefix = station.store.database.prefix
            roles |= {f"{role} of {prefix}": run for role, run in station.roles().items()}
        return roles

    async def stop(self) -> None:
        """Claim no more; what runs goes on."""
        await asyncio.gather(*(station.stop() for station in self.stations))

    async def suspend(self) -> None:
        """Claim no more until `resume`; what runs goes on."""
        await asyncio.gather(*(station.suspend() for station in self.stations))

    def resume(self) -> None:
        """Claim again."""
        for station in self.stations:
            station.resume()
