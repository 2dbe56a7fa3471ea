"""Lets calls that each make one task travel to the server together.

While such a command is on its way, others that come wait for it, and then go as one command. One
that comes alone goes at once. What goes together is decided once, by `board`, `joined` and
`divided`; the two colours only differ in how they wait.
"""

import asyncio
import contextlib
import os
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from redis import exceptions

from expirebridge.store.commands.call import CHUNK_BYTES, CHUNK_TASKS

CommandWords = tuple[Any, ...]

_AT_ONCE = 2
"""Commands of one event loop that are under way at once: while the server works on one, the loop
takes in what the other has brought."""
_LONGEST_SLEEP = 0.05
"""Seconds after which a thread that waits looks by itself whether it is its turn."""


class BatchableRequest(NamedTuple):
    """A command that can be sent together with others."""

    command: CommandWords
    id: str
    """What it is for; two for the same do not go together."""
    own: int
    """At which word those begin that are its own."""
    width: int
    """How many values of the reply are for it, after the one that is for all."""

    @property
    def kind(self) -> Any:
        """What those have in common that can go together."""
        return self.command[:2]

    @property
    def size(self) -> int:
        """About how many bytes are its own."""
        return sum(len(word) for word in self.command[self.own :] if isinstance(word, str | bytes))


class QueuedRequest(Protocol):
    """Somebody who waits with a passenger."""

    @property
    def passenger(self) -> BatchableRequest:
        """What is to be sent."""
        ...

    @property
    def gone(self) -> bool:
        """Whether nobody waits for it any more."""
        ...


W = TypeVar("W", bound=QueuedRequest)


def board(waiting: deque[W]) -> list[W]:
    """Take those who go together now, in their order. Who does not fit stays."""
    party, ids, size, stay = list[W](), set[str](), 0, list[W]()
    while waiting and len(party) < CHUNK_TASKS:
        one = waiting.popleft()
        passenger = one.passenger
        if one.gone:
            continue
        size_then = size + passenger.size
        if party and (
            passenger.kind != party[0].passenger.kind
            or passenger.id in ids
            or size_then > CHUNK_BYTES
        ):
            stay.append(one)
        else:
            party.append(one)
            size = size_then
        ids.add(passenger.id)  # whoever is for the same does not overtake one that stays
    waiting.extendleft(reversed(stay))
    return party


def joined(party: Sequence[QueuedRequest]) -> CommandWords:
    """The command of all of them."""
    first = party[0].passenger.command
    if len(party) == 1:
        return first
    rest = [word for one in party[1:] for word in one.passenger.command[one.passenger.own :]]
    return (*first, *rest)


def divided(reply: Any, party: Sequence[QueuedRequest]) -> list[Any]:
    """What each of them would have been answered alone."""
    if len(party) == 1:
        return [reply]
    width = party[0].passenger.width
    return [
        [reply[0], *reply[1 + place * width : 1 + (place + 1) * width]]
        for place in range(len(party))
    ]


class _Caller:
    """A thread with a passenger."""

    def __init__(self, passenger: BatchableRequest) -> None:
        self.passenger = passenger
        self.gone = False
        self.done = False
        self.reply: Any = None
        self.error: Exception | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        """Wait to be woken; not for long, since whoever would wake it may be interrupted."""
        self._asleep.acquire(timeout=_LONGEST_SLEEP)

    def wake(self) -> None:
        """Let it look whether it is done, or whether it is its turn to send."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._asleep.release()


class RequestBatcher:
    """Sends what threads have to send: one command at a time, and each for all that wait."""

    def __init__(self, send: Callable[..., Any]) -> None:
        self._send = send
        self._begin()

    def _begin(self) -> None:
        # The lock can be taken again by its own thread: a signal's handler may make a task, too.
        self._pid, self._turn, self._waiting = os.getpid(), threading.RLock(), deque[_Caller]()

    def take(self, passenger: BatchableRequest) -> Any:
        """Send it, perhaps together with others, and wait for its reply. Raises a RedisError."""
        if os.getpid() != self._pid:  # another thread may have had its turn when this was forked
            self._begin()
        caller = _Caller(passenger)
        self._waiting.append(caller)
        try:
            while not caller.done:
                if self._turn.acquire(blocking=False):
                    self._lead()
                else:
                    caller.sleep()
        except BaseException:  # interrupted
            caller.gone = True
            raise
        if caller.error is not None:
            raise caller.error
        return caller.reply

    def _lead(self) -> None:
        """Send what waits, and wake one of those that came meanwhile."""
        try:
            party = board(self._waiting)
            if party:
                self._carry(party)
        finally:
            self._turn.release()
            with contextlib.suppress(IndexError):  # another thread may have taken it
                self._waiting[0].wake()

    def _carry(self, party: Sequence[_Caller]) -> None:
        try:
            replies = divided(self._send(*joined(party)), party)
        except Exception as error:  # raised where each of them waits
            for caller in party:
                caller.error = error
        except BaseException:
            for caller in party:
                caller.error = exceptions.ConnectionError("the thread that sent it was interrupted")
            raise
        else:
            for caller, reply in zip(party, replies, strict=True):
                caller.reply = reply
        finally:
            for caller in party:
                caller.done = True
                caller.wake()


class _Awaiting(NamedTuple):
    """A coroutine with a passenger."""

    passenger: BatchableRequest
    place: "asyncio.Future[Any]"
    """Where it awaits the reply."""

    @property
    def gone(self) -> bool:
        """Whether nobody waits for it any more."""
        return self.place.done()


class AsyncRequestBatcher:
    """Sends what coroutines of one event loop have to send."""

    def __init__(self, send: Callable[..., Awaitable[Any]]) -> None:
        self._send = send
        self._waiting = deque[_Awaiting]()
        self._under_way = 0
        self._tasks = set[asyncio.Task[None]]()

    async def take(self, passenger: BatchableRequest) -> Any:
        """Send it, perhaps together with others, and await its reply. Raises a RedisError."""
        if self._under_way == _AT_ONCE:
            place = asyncio.get_running_loop().create_future()
            self._waiting.append(_Awaiting(passenger, place))
            return await place
        self._under_way += 1
        try:
            return await self._send(*passenger.command)
        finally:
            self._depart()

    def _depart(self) -> None:
        """Send what waits, now that something has come back."""
        party = board(self._waiting)
        if not party:
            self._under_way -= 1
            return
        # A task of its own: whoever waits may be cancelled, and the others are still to be told.
        task = asyncio.ensure_future(self._carry(party))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, party: Sequence[_Awaiting]) -> None:
        try:
            replies = divided(await self._send(*joined(party)), party)
        except Exception as error:  # raised where each of them waits
            for one in party:
                if not one.gone:
                    one.place.set_exception(error)
        except BaseException:
            for one in party:
                one.place.cancel()
            raise
        else:
            for one, reply in zip(party, replies, strict=True):
                if not one.gone:
                    one.place.set_result(reply)
        finally:
            self._depart()
