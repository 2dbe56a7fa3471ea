"""Runs calls against a server, in two colours.

What is sent, and what is done when the server answers with an error, is decided once, in
`Database.commands`, a generator of plain commands. The two stores only send them: one waits, the
other awaits.
"""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis import exceptions

from expirebridge import errors
from expirebridge.store import scripts
from expirebridge.store.calls import Call, Runnable
from expirebridge.store.translation import of_client, translated

T = TypeVar("T")

Command = tuple[Any, ...]


class Database:
    """A database as one login uses it: its names, and how calls become commands for it."""

    def __init__(
        self,
        *,
        prefix: str,
        number: int,
        login: str,
        followed: bool = False,
        clustered: bool = False,
    ) -> None:
        self.prefix = prefix
        """What the name of every key but the trigger keys begins with."""
        self.number = number
        """What SELECT calls it by."""
        self.login = login
        """The name of the user that is logged in."""
        self.followed = followed
        """Whether its server may be another one tomorrow."""
        self.clustered = clustered
        """Whether its server is a node of a cluster, by its URL."""
        self._headers = True
        """Whether the server is believed to know script headers: Redis before 7 does not."""

    @property
    def doorbell_channel(self) -> str:
        """The channel on which a new earliest task is announced."""
        return f"{self.prefix}:doorbell:{self.number}"

    def events(self, kind: str) -> str:
        """The channel on which the server publishes key events of this kind."""
        return f"__keyevent@{self.number}__:{kind}"

    def commands(self, runnable: Runnable[T]) -> Generator[Command, Any, T]:
        """The commands of what is run; each is answered with its reply, or with a RedisError."""
        calls = iter(runnable)
        try:
            call = next(calls)
            while True:
                try:
                    reply = yield from self._send(call)
                except exceptions.RedisError as error:
                    call = calls.throw(translated(error))
                else:
                    call = calls.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _send(self, call: Call[Any]) -> Generator[Command, Any, Any]:
        if not call.is_script:
            return (yield (call.name, *call.arguments))
        tail = (1, self.prefix, self.number, *call.arguments)
        script = scripts.load(call.name)
        headed = self._headers
        source = script.headed if headed else script.plain
        try:
            return (yield ("EVALSHA", source.sha, *tail))
        except exceptions.NoScriptError:
            pass
        try:
            return (yield ("EVAL", source.text, *tail))
        except exceptions.ResponseError as error:
            if not headed or "compiling script" not in str(error):
                raise
        self._headers = False
        return (yield ("EVAL", script.plain.text, *tail))


class Store:
    """Runs calls and waits for their replies. Safe for threads, as its redis client is."""

    def __init__(self, client: redis.Redis, *, prefix: str) -> None:
        self.client = client
        self.database = _database_of(client, prefix)

    def run(self, runnable: Runnable[T]) -> T:
        """Run a call, or steps. Raises a ServerError if the server fails or refuses a call."""
        commands = self.database.commands(runnable)
        try:
            command = next(commands)
            while True:
                try:
                    reply = self.client.execute_command(*command)  # type: ignore[no-untyped-call]
                except (exceptions.RedisError, MemoryError) as error:
                    command = commands.throw(of_client(error))
                else:
                    command = commands.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except errors.ServerReadOnly:
            # A primary that was demoted keeps its connections; new ones may lead to its successor.
            self.client.connection_pool.disconnect(inuse_connections=False)
            raise

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


class AsyncStore:
    """Runs calls and awaits their replies."""

    def __init__(self, client: redis.asyncio.Redis, *, prefix: str) -> None:
        self.client = client
        self.database = _database_of(client, prefix)

    async def run(self, runnable: Runnable[T]) -> T:
        """Run a call, or steps. Raises a ServerError if the server fails or refuses a call."""
        commands = self.database.commands(runnable)
        try:
            command = next(commands)
            while True:
                try:
                    reply = await self.client.execute_command(*command)  # type: ignore[no-untyped-call]
                except (exceptions.RedisError, MemoryError) as error:
                    command = commands.throw(of_client(error))
                else:
                    command = commands.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except errors.ServerReadOnly:
            # As above. While the pool's own disconnect() waits, others may be given what it closes,
            # and redis-py before 7 fails there. With nowait, nothing comes in between.
            for connection in self.client.connection_pool._available_connections:
                await connection.disconnect(nowait=True)
            raise

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


class StoresByLoop:
    """A store for each event loop: a connection belongs to the loop in which it was opened."""

    def __init__(self, open_store: Callable[[], AsyncStore]) -> None:
        self._open_store = open_store
        self._stores: dict[asyncio.AbstractEventLoop, AsyncStore] = {}

    def here(self) -> AsyncStore:
        """The store of the running loop."""
        loop = asyncio.get_running_loop()
        store = self._stores.get(loop)
        if store is None:
            self._drop_closed_loops()
            store = self._stores[loop] = self._open_store()
        return store

    async def aclose(self) -> None:
        """Close the connections of the running loop; only it can."""
        store = self._stores.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.aclose()

    def _drop_closed_loops(self) -> None:
        # A store keeps its loop alive, by its connections. Other threads may be here, too.
        for loop in list(self._stores):
            if loop.is_closed():
                self._stores.pop(loop, None)


def _database_of(client: Any, prefix: str) -> Database:
    options = client.get_connection_kwargs()
    place = options.get("place")
    return Database(
        prefix=prefix,
        number=int(options.get("db") or 0),
        login=options.get("username") or "default",
        followed=place is not None,
        clustered=place is not None and place.clustered,
    )
