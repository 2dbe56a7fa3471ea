"""The servers of a listener: one, or the primaries of a cluster."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any

from expirebridge.listener.partition.capability_roles import CapabilityRoles
from expirebridge.listener.partition.consumer import PartitionConsumer


class Servers(ABC):
    """Servers of a listener, and the consumers of all partitions on them."""

    def __init__(self, capabilities: Sequence[CapabilityRoles]) -> None:
        self._capabilities = capabilities
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

    async def close_capabilities(self) -> None:
        """Close what capabilities share among all partitions."""
        for each in self._capabilities:
            if each.close is not None:
                await asyncio.to_thread(each.close)

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
