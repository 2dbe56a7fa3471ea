"""Runs calls against one database or partition, waiting or awaited.

What is sent, and what is done when the server answers with an error, is decided once, in
`Database.commands`, a generator of plain commands. The two stores only send them: one waits, the
other awaits.
"""

import asyncio
import contextlib
import queue
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

import redis
import redis.asyncio
from redis import exceptions

from expirebridge import errors
from expirebridge.store import script_loader
from expirebridge.store.batching import (
    AsyncRequestBatcher,
    BatchableRequest,
    CommandWords,
    RequestBatcher,
)
from expirebridge.store.errors import is_about_keys, is_within_script, out_of_memory, translated
from expirebridge.task.calls.call import (
    At,
    Command,
    IfAvailable,
    Known,
    KnownPartitions,
    Outside,
    Runnable,
    Steps,
    drive,
    drive_async,
    expand,
)
from expirebridge.task.keys import hash_tag_of
from expirebridge.task.partitions import PartitionLayout

T = TypeVar("T")


class WrongPartitionCount(Exception):
    """A call was refused: the database has more partitions than were assumed.

    No fault: it is caught where partitions are chosen, which then runs it.
    """

    def __init__(
        self, calls: Steps[Any], call: Command[Any], refusal: errors.PartitionsDiffer
    ) -> None:
        super().__init__()
        self._calls = calls
        self._call = call
        self.refusal = refusal

    def __iter__(self) -> Steps[Any]:
        """Run that call again, and what follows it."""
        call = self._call
        if isinstance(call.route, At | IfAvailable):
            # Which partition is meant depends on how many there are: the steps choose again.
            try:
                call = self._calls.throw(self.refusal)
            except StopIteration as stop:
                return stop.value
        return (yield from expand(self._calls, _unchanged, errors.ServerError, first=call))


def _unchanged(call: Command[Any]) -> Steps[Any]:
    return (yield call)


class OverlappedRequest(NamedTuple):
    """A command, and what may be called while the server works on it."""

    words: CommandWords
    meanwhile: Callable[[], object]

    def options(self, client: Any) -> dict[str, Any]:
        """How a client executes it: one that only waits leaves to the caller what could be done."""
        return {"meanwhile": self.meanwhile} if getattr(client, "overlaps", False) else {}


Sent = CommandWords | BatchableRequest | OverlappedRequest | Outside[Any]
"""A request to the server, or what is called instead."""


class Database:
    """A database, or one of its partitions, as one login uses it.

    Its names, and how calls become commands for it.
    """

    def __init__(
        self,
        *,
        prefix: str,
        number: int,
        login: str,
        followed: bool = False,
        clustered: bool = False,
        partitions: int = 1,
        assumed: bool = False,
    ) -> None:
        self.prefix = prefix
        """The prefix of the names of all keys but the trigger keys."""
        self.partitions = partitions
        """How many partitions the database has."""
        self._count_assumed = assumed and partitions == 1
        """True if the number is assumed, so that a refusal brings the real one."""
        self._count_argument = (
            number if partitions == 1 else f"{number}/{partitions}{'?' * assumed}"
        )
        self.number = number
        """The number for SELECT."""
        self.login = login
        """The name of the user that is logged in."""
        self.followed = followed
        """True if another server can take its place, by failover."""
        self.clustered = clustered
        """True if its server is a node of a cluster, by its URL."""
        self.answered = False
        """True once a script was answered: its URL is right."""
        self._headers = True
        """False once the server refused a script header: Redis before 7 has none."""

    @property
    def doorbell_channel(self) -> str:
        """The channel on which a new earliest task is announced."""
        return f"{self.prefix}:doorbell:{self.number}"

    @property
    def layout(self) -> PartitionLayout:
        """The partitions of which this is one."""
        whole = self.prefix if self.partitions == 1 else self.prefix[len(self.tag) :]
        return PartitionLayout(whole, self.partitions)

    @property
    def tag(self) -> str:
        """The tag with which its names begin, with braces; empty without one."""
        return hash_tag_of(self.prefix).decode()

    @property
    def home(self) -> str:
        """The beginning of ids that are made from a key's name, so that they belong here."""
        return "" if self.partitions == 1 else f"{self.tag[1:-1]}@"

    def owns(self, id: str) -> bool:
        """True if a task of this id belongs to this partition."""
        layout = self.layout
        return layout.partition_of(id) == layout.partition_of(self.home)

    def events(self, kind: str) -> str:
        """The channel on which the server publishes key events of this kind."""
        return f"__keyevent@{self.number}__:{kind}"

    def commands(self, runnable: Runnable[T]) -> Generator[Sent, Any, T]:
        """The commands of what is run; each is answered with its reply, or with a RedisError."""
        calls = iter(runnable)
        return expand(calls, partial(self._answer, calls), errors.ServerError)

    def _answer(self, calls: Steps[Any], call: Command[Any]) -> Generator[Sent, Any, Any]:
        """Send a call, and return its reply. Raises a ServerError, or WrongPartitionCount."""
        try:
            return (yield from self._send(call))
        except exceptions.RedisError as error:
            ours = self._explained(translated(error, answered=self.answered), call)
            if self._count_assumed and isinstance(ours, errors.PartitionsDiffer):
                raise WrongPartitionCount(calls, call, ours) from None
            raise ours from error

    def _explained(self, error: errors.ServerError, call: Command[Any]) -> errors.ServerError:
        """The error; if it is about a key, with the patterns of keys that the login needs."""
        if not call.is_script or not isinstance(error, errors.NotPermitted):
            return error
        if not is_about_keys(error):
            return error
        # Here, since producers that have their rights do without it.
        from expirebridge.store.acl import key_rules  # noqa: PLC0415

        own, *others = key_rules(self.layout)
        rules = " ".join(others) if is_within_script(error) else own
        explained = errors.NotPermitted(f"{error}: ACL SETUSER {self.login} {rules}")
        explained.__cause__ = error.__cause__
        return explained

    def _send(self, call: Command[Any] | Outside[Any] | Known[Any]) -> Generator[Sent, Any, Any]:
        if isinstance(call, Known):
            return call.read(KnownPartitions(self.layout))
        if isinstance(call, Outside):
            return (yield call)
        if not call.is_script:
            return (yield (call.name, *call.arguments))
        tail = (1, self.prefix, self._count_argument, *call.arguments)
        script = script_loader.load(call.name)
        headed = self._headers
        source = script.headed if headed else script.plain
        command = ("EVALSHA", source.sha, *tail)
        try:
            reply = yield _request(command, call)
        except exceptions.NoScriptError:
            self.answered = True
        else:
            self.answered = True
            return reply
        try:
            return (yield ("EVAL", source.text, *tail))
        except exceptions.ResponseError as error:
            if not headed or "compiling script" not in str(error):
                raise
        self._headers = False
        return (yield ("EVAL", script.plain.text, *tail))


def _close_idle(pool: redis.ConnectionPool) -> None:
    """Close the idle connections."""
    if not isinstance(pool, redis.BlockingConnectionPool):
        return pool.disconnect(inuse_connections=False)
    # Its `disconnect` closes all connections in redis-py before 7. Callers that want a connection
    # meanwhile wait, since the pool blocks.
    idle: list[Any] = []
    with contextlib.suppress(queue.Empty):
        while True:
            idle.append(pool.pool.get_nowait())
    for connection in reversed(idle):
        if connection is not None:
            connection.disconnect()
        pool.pool.put_nowait(connection)
    return None


def _request(command: CommandWords, call: Command[Any]) -> Sent:
    if call.batching is not None:
        id, shared, width = call.batching
        return BatchableRequest(command, id, len(command) - len(call.arguments) + shared, width)
    return command if call.meanwhile is None else OverlappedRequest(command, call.meanwhile)


class Store:
    """Runs calls and waits for their replies. Safe for threads, as its redis client is."""

    def __init__(
        self, client: redis.Redis, *, prefix: str, partitions: int = 1, assumed: bool = False
    ) -> None:
        self.client = client
        self.database = _database_of(client, prefix, partitions, assumed=assumed)
        self._batcher = RequestBatcher(client.execute_command)

    def run(self, runnable: Runnable[T]) -> T:
        """Run a call, or steps. Raises a ServerError if the server fails or refuses a call."""
        try:
            commands = self.database.commands(runnable)
            return drive(commands, self._send, exceptions.RedisError)
        except errors.ServerReadOnly:
            # A primary that was demoted keeps its connections; new ones may lead to its successor.
            _close_idle(self.client.connection_pool)
            raise

    def _send(self, command: Sent) -> Any:
        try:
            if type(command) is BatchableRequest:
                return self._batcher.send(command)
            if type(command) is Outside:
                return command.call()
            if type(command) is OverlappedRequest:
                options = command.options(self.client)
                return self.client.execute_command(*command.words, **options)  # type: ignore[no-untyped-call]
            return self.client.execute_command(*command)  # type: ignore[no-untyped-call]
        except MemoryError as error:
            raise out_of_memory() from error

    def close(self) -> None:
        """Close the connections."""
        self.client.close()


class AsyncStore:
    """Runs calls and awaits their replies."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        prefix: str,
        partitions: int = 1,
        assumed: bool = False,
    ) -> None:
        self.client = client
        self.database = _database_of(client, prefix, partitions, assumed=assumed)
        self._batcher = AsyncRequestBatcher(client.execute_command)

    async def run(self, runnable: Runnable[T]) -> T:
        """Run a call, or steps. Raises a ServerError if the server fails or refuses a call."""
        try:
            commands = self.database.commands(runnable)
            return await drive_async(commands, self._send, exceptions.RedisError)
        except errors.ServerReadOnly:
            # As above. Private, for the pool's own `disconnect` waits; meanwhile others may get the
            # connections that it closes, and redis-py before 7 fails there. `nowait` does not wait.
            for connection in self.client.connection_pool._available_connections:
                await connection.disconnect(nowait=True)
            raise

    async def _send(self, command: Sent) -> Any:
        try:
            if type(command) is BatchableRequest:
                return await self._batcher.send(command)
            if type(command) is Outside:
                return await asyncio.to_thread(command.call)
            if type(command) is OverlappedRequest:
                options = command.options(self.client)
                return await self.client.execute_command(*command.words, **options)  # type: ignore[no-untyped-call]
            return await self.client.execute_command(*command)  # type: ignore[no-untyped-call]
        except MemoryError as error:
            raise out_of_memory() from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def _database_of(client: Any, prefix: str, partitions: int, *, assumed: bool) -> Database:
    options = client.get_connection_kwargs()
    place = options.get("place")
    return Database(
        prefix=prefix,
        number=int(options.get("db") or 0),
        login=options.get("username") or "default",
        followed=place is not None,
        clustered=place is not None and place.clustered,
        partitions=partitions,
        assumed=assumed,
    )
