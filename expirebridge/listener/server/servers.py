"""The servers of a listener: one, or the primaries of a cluster."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from expirebridge.ledger.roles import ledger_engine_of
from expirebridge.listener.partition.consumer import PartitionConsumer
from expirebridge.settings import Settings


class Servers(ABC):
    """Servers of a listener, and the consumers of all partitions on them."""

    def __init__(self, settings: Settings) -> None:
        self.ledger_engine = ledger_engine_of(settings)
        """Engine and threads of the ledger, shared by all partitions; None without one."""
        self.consumers: list[PartitionConsumer] = []
        """None until `examine` finds out how many partitions there are."""

    @property
    @abstractmethod
    def ready(self) -> asyncio.Event:
        """Is set once doorbells are heard."""

    @abstractmethod
    async def examine(self) -> None:
        """Find the consumers, check whether the servers can be used, and report problems.

        Raises a ServerError, and InvalidSetting for a prefix that is that of one partition.
        """

    @abstractmethod
    async def begin(self) -> None:
        """Send the first heartbeats, before anything is claimed. Raises a ServerError."""

    @abstractmethod
    def start(self) -> None:
        """Send further heartbeats."""

    @abstractmethod
    def fall_silent(self) -> None:
        """Send no more heartbeats, without leaving: all leases lapse. For any thread."""

    @abstractmethod
    def node_roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role of the servers, by its name."""

    @abstractmethod
    async def close(self) -> None:
        """Say goodbye to the servers that answer, and close the connections."""

    async def close_ledger_engine(self) -> None:
        """Close the connections to the ledger's database."""
        if self.ledger_engine is not None:
            await asyncio.to_thread(self.ledger_engine.close)

    def roles(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutine of each role of servers and consumers, by its name."""
        roles = self.node_roles()
        for consumer in self.consumers:
            prefix = consumer.store.database.prefix
            roles |= {f"{role} of {prefix}": run for role, run in consumer.roles().items()}
        return roles

    async def stop(self) -> None:
        """Claim no more; what runs goes on."""
        await asyncio.gather(*(consumer.stop() for consumer in self.consumers))

    async def suspend(self) -> None:
        """Claim no more until `resume`; what runs goes on."""
        await asyncio.gather(*(consumer.suspend() for consumer in self.consumers))

    def resume(self) -> None:
        """Claim again."""
        for consumer in self.consumers:
            consumer.resume()
