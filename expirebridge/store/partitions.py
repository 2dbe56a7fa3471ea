"""Sends what is run to the partitions that it concerns, in two colours.

Which these are is decided once, in `Routing`.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import redis
import redis.asyncio

from expirebridge.errors import ServerError
from expirebridge.store.client import AsyncStore, Database, Store, WrongPartitionCount
from expirebridge.store.partition_availability import Request
from expirebridge.store.routing import Routing
from expirebridge.task.calls.call import Runnable, drive, drive_async
from expirebridge.task.calls.partitions import read_partitions
from expirebridge.task.partitions import PartitionLayout

if TYPE_CHECKING:
    from expirebridge.task.listings import LeftOut

T = TypeVar("T")
S = TypeVar("S", Store, AsyncStore)


class _Stores(Generic[S]):
    """The stores of a database, one for each partition, in one colour."""

    def __init__(self, kind: type[S], client: Any, prefix: str) -> None:
        place = client.get_connection_kwargs().get("place")
        self._fail_fast_client = getattr(client, "fail_fast_client", client)
        self._kind: type[S] = kind
        self._client = client
        self._whole: S = kind(client, prefix=prefix, assumed=True)
        self._routing = Routing(
            prefix,
            clustered=place is not None and place.clustered,
            node_of=getattr(client, "node_of", None),
        )
        self._stores: dict[tuple[PartitionLayout, int, bool, bool], S] = {}

    @property
    def database(self) -> Database:
        """The database as it is known by now; of several partitions, the first."""
        layout = self._routing.layout
        return self._whole.database if layout.count == 1 else self._store_of(layout, 0).database

    @property
    def layout(self) -> PartitionLayout:
        """How many partitions there are, as far as that is known by now."""
        return self._routing.layout

    @property
    def left_out(self) -> "tuple[LeftOut, ...]":
        """The partitions that are missing from the latest answers."""
        return self._routing.unavailable.left_out(self.layout)

    def _store_for(self, request: Request) -> S:
        return self._store_of(
            request.layout, request.number, sure=request.sure, fail_fast=request.fail_fast
        )

    def _store_of(
        self, layout: PartitionLayout, number: int, *, sure: bool = False, fail_fast: bool = False
    ) -> S:
        store = self._stores.get((layout, number, sure, fail_fast))
        if store is None:
            store = self._stores[layout, number, sure, fail_fast] = self._kind(
                self._fail_fast_client if fail_fast else self._client,
                prefix=layout.prefix_of(number),
                partitions=layout.count,
                assumed=not sure and layout.count > 1,
            )
        return store


class Partitions(_Stores[Store]):
    """Runs calls in their partitions, and waits. Safe for threads."""

    def __init__(self, client: redis.Redis, *, prefix: str) -> None:
        super().__init__(Store, client, prefix)
        self.client = client

    def run(self, runnable: Runnable[T]) -> T:
        """Run a call, or steps. Raises a ServerError if the server fails or refuses a call."""
        if self._routing.layout.count == 1:
            try:
                return self._whole.run(runnable)
            except WrongPartitionCount as wrong:
                self._routing.correct(wrong.refusal)
                runnable = wrong
        return drive(self._routing.requests(runnable), self._ask, ServerError)

    def _ask(self, request: Request) -> Any:
        return self._store_for(request).run(request.runnable)

    def each(self) -> list[Store]:
        """Return a store for each partition. Raises a ServerError if none has the number."""
        self.run(read_partitions())
        layout = self._routing.layout
        return [self._store_of(layout, number, sure=True) for number in range(layout.count)]

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


class AsyncPartitions(_Stores[AsyncStore]):
    """Runs calls in their partitions, awaited."""

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str) -> None:
        super().__init__(AsyncStore, client, prefix)
        self.client = client

    async def run(self, runnable: Runnable[T]) -> T:
        """Run a call, or steps. Raises a ServerError if the server fails or refuses a call."""
        if self._routing.layout.count == 1:
            try:
                return await self._whole.run(runnable)
            except WrongPartitionCount as wrong:
                self._routing.correct(wrong.refusal)
                runnable = wrong
        return await drive_async(self._routing.requests(runnable), self._ask, ServerError)

    async def _ask(self, request: Request) -> Any:
        return await self._store_for(request).run(request.runnable)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


class PartitionsByLoop:
    """The partitions for each event loop: a connection belongs to the loop that opened it."""

    def __init__(self, begin: Callable[[], AsyncPartitions]) -> None:
        self._begin = begin
        self._by_loop: dict[asyncio.AbstractEventLoop, AsyncPartitions] = {}

    def here(self) -> AsyncPartitions:
        """The partitions for the running loop."""
        loop = asyncio.get_running_loop()
        partitions = self._by_loop.get(loop)
        if partitions is None:
            self._drop_closed_loops()
            partitions = self._by_loop[loop] = self._begin()
        return partitions

    async def aclose(self) -> None:
        """Close the connections of the running loop; only it can."""
        partitions = self._by_loop.pop(asyncio.get_running_loop(), None)
        if partitions is not None:
            await partitions.aclose()

    def _drop_closed_loops(self) -> None:
        # They keep their loop alive, by their connections. Other threads may be here, too.
        for loop in list(self._by_loop):
            if loop.is_closed():
                self._by_loop.pop(loop, None)
