"""The slot map of a cluster, as its nodes report it."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import redis
from redis import exceptions

from expirebridge.connection.urls import Address
from expirebridge.store.errors import NoPrimary, SlotNotServed, WrongPlace
from expirebridge.task.forks import renew_after_fork

# Which node serves which slot, as one node of a cluster says it.

SLOTS = 16384
_UNKNOWN = {b"", b"?", None}
"""How a node says that it does not know under which name it is reached: as it was reached."""


class SlotRange(NamedTuple):
    """Adjacent slots of one primary."""

    start: int
    end: int
    primary: Address
    replicas: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class SlotMap:
    """Which slots each primary of a cluster serves, in the order of the slots."""

    ranges: Sequence[SlotRange]
    names: frozenset[str]
    """The names of its nodes within the cluster."""
    is_well: bool = True
    """False if the node that said this is in a minority, and takes no commands."""
    moved: Mapping[int, Address] = field(default_factory=dict)
    """Slots with a new primary, as their former one reported."""

    @property
    def replicas(self) -> frozenset[Address]:
        """The nodes that follow others."""
        return frozenset(replica for one in self.ranges for replica in one.replicas)

    @property
    def primaries(self) -> frozenset[Address]:
        """The nodes that serve slots."""
        return frozenset(one.primary for one in self.ranges)

    def node_of(self, slot: int) -> Address | None:
        """The primary of a slot; None without one."""
        if slot in self.moved:
            return self.moved[slot]
        place = bisect_right(self.ranges, slot, key=lambda one: one.start) - 1
        found = self.ranges[place] if place >= 0 else None
        return found.primary if found is not None and slot <= found.end else None

    def corrected(self, slot: int, primary: Address) -> "SlotMap":
        """The same, but for a slot that has another primary."""
        return replace(self, moved={**self.moved, slot: primary})


def read_slots(reply: Sequence[Any], asked: Address, *, is_well: bool) -> SlotMap:
    """Read the reply to CLUSTER SLOTS of the node at the address `asked`."""
    ranges, names = list[SlotRange](), set[str]()
    for start, end, primary, *others in reply:
        replicas = tuple(_address(node, asked) for node in others)
        ranges.append(SlotRange(start, end, _address(primary, asked), replicas))
        names |= {node[2].decode() for node in (primary, *others)}
    ranges.sort(key=lambda one: one.start)
    return SlotMap(ranges, frozenset(names), is_well)


def _address(node: Sequence[Any], asked: Address) -> Address:
    host, port = node[:2]
    return Address(asked.host if host in _UNKNOWN else host.decode(), port)


JUST_NOW = 0.1
"""Seconds for which threads that look at the same time share an answer."""


class Cluster:
    """Follows the slots of a cluster. Any of its nodes is asked; `seeds` are the first.

    A node that did not answer is asked last from then on. The answer of one that takes no commands,
    as in a minority, counts only if no other answers. While none answers, the known slots stay.

    Safe for threads, and for a process that forks. A thread that has a node for its slot never
    waits for another thread that asks.
    """

    def __init__(self, seeds: Sequence[Address], ask: Callable[[Address], SlotMap]) -> None:
        self.seeds = seeds
        self._ask = ask
        """Asks one node; raises a RedisError."""
        self._silent: list[Address] = []
        """Nodes that did not answer when they were last asked, the latest at the end."""
        self.renew()
        renew_after_fork(self)
        self._asked = float("-inf")
        self.reached = set(seeds)
        """Nodes that have answered at the address by which they are known, and those of the URL."""
        self.known: SlotMap | None = None
        """The slot map as last read; None before it was found."""

    def renew(self) -> None:
        """Forget who asks: another thread may have asked when this was forked."""
        self._lock = threading.Lock()

    def find(self, slot: int) -> Address:
        """The node that serves a slot, as far as is known; ask only if nothing is.

        Raises NoPrimary if no node answers, SlotUnserved if none serves the slot, and WrongPlace if
        those that answer are no nodes of one cluster.
        """
        known = self.known or self.look()
        node = known.node_of(slot)
        if node is None:
            node = self.look().node_of(slot)
        if node is None:
            raise SlotNotServed(
                f"no node of the cluster serves slot {slot}; nothing was written: `redis-cli "
                "--cluster check HOST:PORT` shows which slots lack a node"
            )
        return node

    def look(self, *, first: Address | None = None, last: Address | None = None) -> SlotMap:
        """Ask the nodes who serves what: one of them first, another only if no other answers."""
        with self._lock:
            if self.known is None:
                self.known = self._first_look()
            elif time.monotonic() >= self._asked + JUST_NOW:
                self.known = self._next_look(first, last) or self.known
            self._asked = time.monotonic()
            return self.known

    def follow(self, slot: int, *, old: Address, new: Address) -> None:
        """Record that a slot has left a node, as that node said."""
        known = self.look(first=new)
        if known.node_of(slot) == old:
            self.known = known.corrected(slot, new)

    def _first_look(self) -> SlotMap:
        """Ask all seeds: whether they are nodes of one cluster is not asked again."""
        with ThreadPoolExecutor(len(self.seeds)) as pool:
            answers = list(pool.map(self._answer, self.seeds))
        maps, faults = dict[Address, SlotMap](), dict[Address, exceptions.RedisError]()
        for seed, answer in zip(self.seeds, answers, strict=True):
            if isinstance(answer, SlotMap):
                maps[seed] = answer
            else:
                faults[seed] = answer
        if not maps:
            raise _nobody_answers(faults)
        known = next((one for one in maps.values() if one.is_well), next(iter(maps.values())))
        for seed, answer in maps.items():
            if not answer.names & known.names and known.names:
                others = ", ".join(map(str, sorted(known.primaries)))
                raise WrongPlace(
                    f"the URL names nodes of two clusters: {seed} is not of the one of {others}"
                )
        self._silent += faults
        return known

    def _next_look(self, first: Address | None, last: Address | None) -> SlotMap | None:
        doubtful = None
        for node in self._in_order(first, last):
            answer = self._answer(node)
            if node in self._silent:
                self._silent.remove(node)
            if not isinstance(answer, SlotMap):
                self._silent.append(node)
            elif answer.is_well:
                return answer
            else:
                doubtful = doubtful or answer
        return doubtful

    def _in_order(self, first: Address | None, last: Address | None) -> Iterator[Address]:
        known = self.known
        others: Iterable[Address] = () if known is None else (*known.primaries, *known.replicas)
        nodes = dict.fromkeys([*([first] if first else []), *others, *self.seeds])
        late = [*self._silent, *([last] if last else [])]
        yield from (node for node in nodes if node == first or node not in late)
        yield from (node for node in dict.fromkeys(late) if node in nodes and node != first)

    def _answer(self, node: Address) -> SlotMap | exceptions.RedisError:
        try:
            answer = self._ask(node)
        except exceptions.RedisError as error:
            return error
        self.reached.add(node)
        return answer


class SlotPrimary:
    """Locates the primary of a slot in a cluster, as `Primary` does with sentinels."""

    name = "of the slot"
    clustered = True

    def __init__(self, cluster: Cluster, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot

    def find(self) -> Address:
        """Ask the nodes. Raises as `Cluster.find`."""
        self._cluster.look()
        return self.locate()

    def locate(self) -> Address:
        """Return the address, as far as is known. Raises as `Cluster.find`."""
        return self._cluster.find(self._slot)


def slots_at(client: redis.Redis, node: Address) -> SlotMap:
    """Ask a node who serves what. Raises a RedisError, WrongPlace if it is of no cluster."""
    try:
        state: Any = client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
        slots: Any = client.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    except exceptions.ResponseError as error:
        if "cluster support disabled" in str(error) or "unknown command" in str(error):
            raise WrongPlace(
                f"{node} is no node of a cluster: {error}; begin the URL of a server with redis://"
            ) from error
        raise
    return read_slots(slots, node, is_well=b"cluster_state:ok" in state)


def _nobody_answers(faults: Mapping[Address, exceptions.RedisError]) -> exceptions.RedisError:
    """The error if no node knows the slots: its reason, if asking again cannot help."""
    for fault in faults.values():
        silent = isinstance(fault, exceptions.ConnectionError | exceptions.TimeoutError)
        if isinstance(fault, exceptions.AuthenticationError) or not silent:
            return fault
    said = "; ".join(f"{node}: {fault}" for node, fault in faults.items())
    return NoPrimary(f"no node of the cluster answers: {said}")
