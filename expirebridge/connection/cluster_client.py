"""Clients of a cluster: each script goes to the node that serves the slot of its key now.

redis-py has clients of clusters, too. The async one sends ASKING on another connection than the
command, both refuse databases other than 0, and both follow a move that is half done; a script of
ours would see half of its data there. What is decided here is decided once, by
`ClusterRouter.steps`, a generator; the two clients only take its steps: one waits, the other
awaits.
"""

import asyncio
import time
from binascii import crc_hqx
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Self, TypeVar

import redis
import redis.asyncio
from redis import exceptions
from redis.backoff import ExponentialWithJitterBackoff

from expirebridge.connection.cluster import SLOTS, Cluster, SlotPrimary
from expirebridge.connection.urls import Address
from expirebridge.store.errors import NoPrimary, SlotIsMoving, SlotNotServed
from expirebridge.store.tls import is_plain_text
from expirebridge.task.calls.call import drive, drive_async

_SCRIPTS = {"EVALSHA", "EVAL"}
C = TypeVar("C", redis.Redis, redis.asyncio.Redis)

_PAUSES = ExponentialWithJitterBackoff(base=0.05, cap=1.0)
_MOST_MOVES = 5
"""How often one command follows a slot: more than once in a moment, and the nodes disagree."""


class Send(NamedTuple):
    """Send the command to this node."""

    node: Address


class Resolve(NamedTuple):
    """Find the node of a slot; several may be asked."""

    slot: int


class Refresh(NamedTuple):
    """Read the slot map again, from this node last."""

    last: Address


class Redirect(NamedTuple):
    """Record that a slot moved away from a node."""

    slot: int
    old: Address
    new: Address


class Backoff(NamedTuple):
    """Wait so many seconds."""

    seconds: float


Step = Send | Resolve | Refresh | Redirect | Backoff


class ClusterRouter:
    """The routing of commands to nodes, without I/O, for both clients.

    `home` is the slot whose node gets the commands without a key. `patience` is for how many
    seconds a command is sent again after it failed; 0: it is sent once.
    """

    def __init__(self, cluster: Cluster, *, home: int, patience: float) -> None:
        self.cluster = cluster
        self.home = SlotPrimary(cluster, home)
        self._home = home
        self._patience = patience

    def steps(self, command: Sequence[Any]) -> Generator[Step, Any, Any]:
        """The steps of a command; each is answered with its result, or with a RedisError."""
        slot = slot_of(command[3]) if command[0] in _SCRIPTS else self._home
        end = time.monotonic() + self._patience
        failures = moves = 0
        unsent = True
        while True:
            node: Address = self.node_of(slot) or (yield Resolve(slot))
            try:
                answer = yield Send(node)
            except exceptions.MovedError as moved:
                self.cluster.reached.add(node)
                moves += 1
                if moves > _MOST_MOVES:
                    raise
                yield Redirect(slot, node, _named_by(moved, node))
                continue
            except (
                exceptions.AskError,
                exceptions.ClusterDownError,
                exceptions.ConnectionError,
                exceptions.InvalidResponse,  # something else listens there
                exceptions.TimeoutError,
            ) as failure:
                if isinstance(failure, exceptions.AuthenticationError) or is_plain_text(failure):
                    raise
                error = self._described(failure, node, slot)
                unsent = unsent and "connecting to" in str(failure)
                if isinstance(error, NoPrimary):
                    error.unsent = unsent
            else:
                self.cluster.reached.add(node)
                return answer
            failures += 1
            yield Refresh(node)
            pause = _PAUSES.compute(failures)
            if time.monotonic() + pause > end:
                raise error
            yield Backoff(pause)

    def _described(self, error: Exception, node: Address, slot: int) -> exceptions.RedisError:
        """The outcome of a command for a slot at its node."""
        if isinstance(error, exceptions.AskError):
            return SlotIsMoving(
                f"slot {slot} is being moved from {node} to {_named_by(error, node)} key by key, "
                "and nothing was written; if nobody is doing that any more, finish it: `redis-cli "
                f"--cluster fix {node}`"
            )
        if isinstance(error, exceptions.ClusterDownError):
            return SlotNotServed(
                f"{node} takes no commands: {error}; `redis-cli --cluster check {node}` shows "
                "which slots lack a node; with `cluster-require-full-coverage no` the others go "
                "on meanwhile"
            )
        advice = (
            "it answered before: until it is back, or the cluster names another node, tasks of "
            "its slots wait"
            if node in self.cluster.reached
            else "if it cannot be reached at that address from here, the nodes need another: "
            "`cluster-announce-ip` and `cluster-announce-port`, or `cluster-announce-hostname` "
            "with `cluster-preferred-endpoint-type hostname`"
        )
        return NoPrimary(
            f"no answer from {node}, which the cluster names for slot {slot}: {error}; {advice}"
        )

    def take(self, step: Resolve | Refresh | Redirect) -> Any:
        """Take a step that asks nodes who serves what; it waits for them."""
        match step:
            case Resolve(slot):
                return self.cluster.find(slot)
            case Refresh(last):
                return self.cluster.look(last=last)
            case Redirect(slot, old, new):
                return self.cluster.follow(slot, old=old, new=new)

    def node_of(self, slot: int) -> Address | None:
        """The node that serves a slot, as far as is known."""
        known = self.cluster.known
        return None if known is None else known.node_of(slot)


def slot_of(key: str) -> int:
    """The slot of a key: that of what is between its first braces, if they hold anything."""
    _, brace, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if brace and closed and tag else key).encode(), 0) % SLOTS


def _named_by(error: exceptions.AskError, node: Address) -> Address:
    """The node to which another one sends; it may leave its name out."""
    return Address(error.host or node.host, int(error.port))


class NodeClients(Generic[C]):
    """A client for each node, which repeats nothing by itself. Safe for threads."""

    def __init__(self, make: Callable[[Address], C]) -> None:
        self._make: Callable[[Address], C] = make
        self.by_address: dict[Address, C] = {}

    def at(self, node: Address) -> C:
        """The client of a node."""
        client = self.by_address.get(node)
        return client or self.by_address.setdefault(node, self._make(node))


class ClusterClient(redis.Redis):
    """A client whose scripts go to the nodes of their keys. Safe for threads.

    `fail_fast_client` is one that waits for no node longer than 2 seconds, and sends nothing again.

    It is one for what `execute_command` sends; `close` closes the connections to all nodes.
    """

    @classmethod
    def of(
        cls,
        like: redis.Redis,
        nodes: NodeClients[redis.Redis],
        router: ClusterRouter,
        fail_fast_client: Self | None = None,
    ) -> Self:
        """Make one with the options of a client of any node."""
        client = cls(connection_pool=like.connection_pool)
        client._nodes, client._router = nodes, router
        client.fail_fast_client = fail_fast_client or client
        return client

    fail_fast_client: Self
    _nodes: NodeClients[redis.Redis]
    _router: ClusterRouter

    def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command to the node of its key, and wait. Raises a RedisError."""
        take = partial(self._take, command, options)
        return drive(self._router.steps(command), take, exceptions.RedisError)

    def _take(self, command: Any, options: Any, step: Step) -> Any:
        match step:
            case Send(node):
                return self._nodes.at(node).execute_command(*command, **options)  # type: ignore[no-untyped-call]
            case Backoff(seconds):
                return time.sleep(seconds)
            case _:
                return self._router.take(step)

    def get_connection_kwargs(self) -> dict[str, Any]:
        """The options of the connections to each node, and where commands without a key go."""
        return {**super().get_connection_kwargs(), "place": self._router.home}

    def node_of(self, key: str) -> Address | None:
        """The node that serves a key, as far as is known."""
        return self._router.node_of(slot_of(key))

    def primaries(self) -> dict[object, redis.Redis]:
        """A client for each primary. Raises a RedisError if no node says which these are."""
        known = self._router.cluster.look()
        return {node: self._nodes.at(node) for node in sorted(known.primaries)}

    def pubsub(self, **options: Any) -> Any:
        """A subscription at the node to which commands without a key go."""
        return self._nodes.at(self._router.home.locate()).pubsub(**options)  # type: ignore[no-untyped-call]

    def __del__(self) -> None:
        """Leave the connections to the clients of the nodes."""

    def close(self) -> None:
        """Close the connections to all nodes."""
        if self.fail_fast_client is not self:
            self.fail_fast_client.close()
        for client in list(self._nodes.by_address.values()):
            client.close()


class AsyncClusterClient(redis.asyncio.Redis):
    """An awaited `ClusterClient`; a thread reads the slot map."""

    @classmethod
    def of(
        cls,
        like: redis.asyncio.Redis,
        nodes: NodeClients[redis.asyncio.Redis],
        router: ClusterRouter,
        fail_fast_client: Self | None = None,
    ) -> Self:
        """Make one with the options of a client of any node."""
        client = cls(connection_pool=like.connection_pool)
        client._nodes, client._router = nodes, router
        client.fail_fast_client = fail_fast_client or client
        return client

    fail_fast_client: Self
    _nodes: NodeClients[redis.asyncio.Redis]
    _router: ClusterRouter

    async def execute_command(self, *command: Any, **options: Any) -> Any:
        """Send a command to the node of its key, and await the reply. Raises a RedisError."""
        take = partial(self._take, command, options)
        return await drive_async(self._router.steps(command), take, exceptions.RedisError)

    async def _take(self, command: Any, options: Any, step: Step) -> Any:
        match step:
            case Send(node):
                return await self._nodes.at(node).execute_command(*command, **options)  # type: ignore[no-untyped-call]
            case Backoff(seconds):
                return await asyncio.sleep(seconds)
            case _:
                return await asyncio.to_thread(self._router.take, step)

    def get_connection_kwargs(self) -> dict[str, Any]:
        """The options of the connections to each node, and where commands without a key go."""
        options = super().get_connection_kwargs()  # type: ignore[no-untyped-call]
        return {**options, "place": self._router.home}

    def node_of(self, key: str) -> Address | None:
        """The node that serves a key, as far as is known."""
        return self._router.node_of(slot_of(key))

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: ARG002
        """Close the connections to all nodes."""
        if self.fail_fast_client is not self:
            await self.fail_fast_client.aclose()
        for client in list(self._nodes.by_address.values()):
            await client.aclose()
