"""Calls: the requests of which operations consist.

A call names a script (or, rarely, a plain command), holds its arguments, and reads the reply. What
takes more than one call is a generator of them:

    counts = yield from looking.count(lease=10)

Because its arguments are fixed when it is made, a call can be sent again as it is: the nonces in
them let the server know a resend.
"""

import secrets
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from expirebridge.store.record_values import text

if TYPE_CHECKING:
    from expirebridge.task.listings import LeftOut
    from expirebridge.task.partitions import PartitionLayout

# Which partitions a call concerns, if the database has several.


class OfId(NamedTuple):
    """The partition of this id."""

    id: str


class ByItem(NamedTuple):
    """The partition of each item: the call is divided, and its results are put in order again."""

    items: Sequence[Any]
    id_of: Callable[[Any], str]
    call_of: Callable[[list[Any]], Any]
    """The call for some of the items, whose result is a list with one place for each."""
    random_ids: bool = False
    """True if their ids are random, and others would do: no failover of a node is waited for."""
    bulk: bool = False
    """True if the error names the items that were not done."""


class Everywhere(NamedTuple):
    """Every partition, one after the other."""

    join: Callable[[list[Any]], Any]
    """Makes one result of those of all partitions, which are in order."""


class Anywhere(NamedTuple):
    """Any partition that answers, since all have the same data: the first, if it answers."""


class At(NamedTuple):
    """The partition of this number."""

    number: int


class IfAvailable(NamedTuple):
    """The partition of this number, which is left out if it cannot be asked."""

    number: int
    fail_fast: bool
    """True not to wait for a failover of its node."""


class Creation(NamedTuple):
    """The partitions themselves, which are created."""

    partitions: int


Route = OfId | ByItem | Everywhere | Anywhere | At | IfAvailable | Creation


class Joined(NamedTuple):
    """An answer that was read already, and joined, where several partitions were asked."""

    result: Any


def by_id(ids: Sequence[str], call_of: Callable[[list[str]], Any]) -> ByItem:
    """The route of a call for ids."""
    return ByItem(ids, _same, call_of)


def _same(id: str) -> str:
    return id


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Argument = str | bytes | int | float

CHUNK = 100
"""Tasks or keys that one request reads or changes at most, so that none holds up the server for
long (see docs/internals/performance.md)."""


CHUNK_TASKS = 64
"""Tasks that one request makes at most. They occupy the server for a millisecond, and for two if a
million others are pending."""
CHUNK_BYTES = 1024 * 1024
"""And how large such a request is, in bytes, unless a single task is larger."""


class BatchSpec(NamedTuple):
    """How a call for one task is batched: sent with others of its script in one request."""

    id: str
    """The task's id: a batch has no id twice."""
    shared: int
    """The number of leading arguments that a batch has once; those after them are per task."""
    width: int
    """The number of values in the reply for each task, after the first, which is for all."""


@dataclass(frozen=True, slots=True)
class Command(Generic[T]):
    """One request to the server, and how its reply is read."""

    name: str
    """A script's name, or a command."""
    arguments: tuple[Argument, ...]
    read: Callable[[Any], T]
    is_script: bool = True
    route: Route | None = None
    """Which partitions are asked, if there are several; None: the first, since each would do."""
    batching: BatchSpec | None = None
    """How it is batched with other calls; None: it is sent by itself."""
    meanwhile: Callable[[], object] | None = None
    """A function to call while the server works on it, if the client can; again, if it is sent
    again."""

    def __iter__(self) -> "Steps[T]":
        """Let `yield from call` send the call and give back what was read from the reply."""
        reply = yield self
        if type(reply) is Joined:
            result: T = reply.result
            return result
        return self.read(reply)


Steps = Generator[Command[Any], Any, T]
"""Calls, one after the other; each is answered with its raw reply."""


def at(call: Command[T], number: int) -> Command[T]:
    """The call to the partition of this number."""
    return Command(call.name, call.arguments, call.read, call.is_script, At(number))


def at_if_available(call: Command[T], number: int, *, fail_fast: bool = False) -> Command[T | None]:
    """The same; its result is None if that partition cannot be asked, and others perhaps can.

    `fail_fast`: do not wait for a failover of its node.
    """
    route = IfAvailable(number, fail_fast)
    return Command(call.name, call.arguments, call.read, call.is_script, route)


def wait_for_failover(call: Command[T]) -> Command[T]:
    """The same call, to be sent again: now it waits for a failover."""
    route = call.route._replace(random_ids=False) if isinstance(call.route, ByItem) else call.route
    return Command(call.name, call.arguments, call.read, call.is_script, route)


class Runnable(Protocol[T_co]):
    """One call, or steps: the argument of a store's `run`."""

    def __iter__(self) -> Steps[T_co]:
        """The calls, each answered with its raw reply, and the result."""
        ...


def new_nonce() -> str:
    """A value that no other call has."""
    return secrets.token_hex(8)


def script(
    name: str,
    *arguments: Argument,
    read: Callable[[Any], T],
    route: Route | None = None,
    batching: BatchSpec | None = None,
) -> Command[T]:
    """A call of the operation `name`, whose file is `<name>.lua` in a folder of `lua/`."""
    return Command(name, arguments, read, route=route, batching=batching)


class KnownPartitions(NamedTuple):
    """What is known about partitions where calls are sent to them."""

    layout: "PartitionLayout"
    """How many there are. The first call to one of them may raise PartitionsDiffer, and then there
    are others."""
    left_out: "tuple[LeftOut, ...]" = ()
    """Those that were left out of the answers to the calls before."""
    unavailable: frozenset[int] = frozenset()
    """The numbers of those that cannot be asked now."""


class Known(Generic[T]):
    """What is known about partitions; the server is not asked.

    `yield from Known(read)` gives what `read` returns.
    """

    __slots__ = ("read",)

    def __init__(self, read: Callable[[KnownPartitions], T]) -> None:
        self.read = read

    def __iter__(self) -> "Steps[T]":
        """Have it read."""
        step: Any = self
        known: T = yield step
        return known


PARTITIONS: Known[int] = Known(attrgetter("layout.count"))
LEFT_OUT: "Known[tuple[LeftOut, ...]]" = Known(attrgetter("left_out"))


class Outside(Generic[T]):
    """A function that may wait for something else than the server, such as a store of the caller's.

    `yield from Outside(function)` gives its result, or raises its error. For an asyncio program, it
    is called in a thread.
    """

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function

    def call(self) -> tuple[T | None, Exception | None]:
        """Call the function. Its error is no fault of the server, and so it is not raised here."""
        try:
            return self._function(), None
        except Exception as error:
            return None, error

    def __iter__(self) -> "Steps[T]":
        """Have the function called."""
        step: Any = self
        answer, error = yield step
        if error is not None:
            raise error
        result: T = answer
        return result


class When(NamedTuple):
    """A due time: so many ms from now on the server's clock, or at that ms since 1970."""

    ms: int
    relative: bool

    def encode(self) -> tuple[Argument, ...]:
        """The arguments for the scripts."""
        return ("in" if self.relative else "at", self.ms)


def only(call: Command[list[T]]) -> Command[T]:
    """The call for one thing, where a script takes many: its result is that of the one."""

    def read(reply: Any) -> T:
        [result] = call.read(reply)
        return result

    return Command(call.name, call.arguments, read, call.is_script, call.route)


def command(*parts: Argument) -> Command[Any]:
    """A plain command, for what is no task's business: the server's version, settings and role."""
    return Command(str(parts[0]), parts[1:], lambda reply: reply, is_script=False)


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """The items of each request."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def milliseconds(seconds: float) -> int:
    """Seconds as the scripts take them."""
    return round(seconds * 1000)


def ids_of(raw: Iterable[bytes]) -> list[str]:
    """Ids of a reply as text."""
    return [text(id) for id in raw]


def rows_of(columns: Sequence[Any], width: int) -> list[Sequence[Any]]:
    """A flat reply cut into rows."""
    return [columns[at : at + width] for at in range(0, len(columns), width)]


# Drives steps: generators that yield requests and are sent their results. An operation yields
# calls, a call becomes commands, and neither does any I/O. `drive` and `drive_async` do the I/O of
# the innermost steps; `expand` is a layer in between.

S = TypeVar("S")
R = TypeVar("R")

Faults = type[Exception] | tuple[type[Exception], ...]
"""The exceptions that are raised in the steps, which may go on; any other ends them."""


def drive(steps: Generator[S, Any, T], take: Callable[[S], Any], faults: Faults) -> T:
    """Take each step, and return the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                result = take(step)
            except faults as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


async def drive_async(
    steps: Generator[S, Any, T], take: Callable[[S], Awaitable[Any]], faults: Faults
) -> T:
    """Await each step, and return the result of the generator."""
    try:
        step = next(steps)
        while True:
            try:
                result = await take(step)
            except faults as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


def expand(
    steps: Generator[S, Any, T],
    take: Callable[[S], Generator[R, Any, Any]],
    faults: Faults,
    first: S | None = None,
) -> Generator[R, Any, T]:
    """Replace each step by the steps that `take` yields for it.

    `first` is a step that was yielded already, and is still without a result.
    """
    try:
        step = next(steps) if first is None else first
        while True:
            try:
                result = yield from take(step)
            except faults as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
