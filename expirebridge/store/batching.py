"""Batches calls that each make one task.

While one request is in flight, later calls are queued and sent as one batch. A call that comes
alone is sent at once. `next_batch`, `merge` and `split` decide once what a batch is; the two
batchers only differ in how they wait.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from redis import exceptions

from expirebridge.task.calls.call import CHUNK_BYTES, CHUNK_TASKS
from expirebridge.task.forks import renew_after_fork

CommandWords = tuple[Any, ...]

_MAX_IN_FLIGHT = 2
"""Requests of one event loop that are in flight at once: while the server works on one, the loop
reads the reply to the other."""
_MAX_SLEEP = 0.05
"""Seconds after which a waiting thread checks by itself whether it can send."""


class BatchableRequest(NamedTuple):
    """A command that can be sent in a batch with others."""

    command: CommandWords
    id: str
    """The task's id: a batch has no id twice."""
    shared: int
    """The number of leading words that a batch has once."""
    width: int
    """The number of values in the reply for each request, after the first, which is for all."""

    @property
    def kind(self) -> Any:
        """The script and its digest, which all requests of a batch share."""
        return self.command[:2]

    @property
    def own_words(self) -> CommandWords:
        """The words that only this request has."""
        return self.command[self.shared :]

    @property
    def size(self) -> int:
        """About how many bytes it adds to a batch."""
        return sum(len(word) for word in self.own_words if isinstance(word, str | bytes))


class QueuedRequest(Protocol):
    """A request that waits for the next batch."""

    @property
    def request(self) -> BatchableRequest:
        """The command to send."""
        ...

    @property
    def cancelled(self) -> bool:
        """True if its caller no longer waits for the reply."""
        ...


Q = TypeVar("Q", bound=QueuedRequest)


def next_batch(queue: deque[Q]) -> list[Q]:
    """Take the requests of the next batch from the queue, in order, and drop cancelled ones."""
    batch, ids, size, rest = list[Q](), set[str](), 0, list[Q]()
    while queue and len(batch) < CHUNK_TASKS:
        queued = queue.popleft()
        request = queued.request
        if queued.cancelled:
            continue
        size_with_it = size + request.size
        if batch and (
            request.kind != batch[0].request.kind or request.id in ids or size_with_it > CHUNK_BYTES
        ):
            rest.append(queued)
        else:
            batch.append(queued)
            size = size_with_it
        ids.add(request.id)  # requests of one id keep their order, also if the first has to wait
    queue.extendleft(reversed(rest))
    return batch


def merge(batch: Sequence[QueuedRequest]) -> CommandWords:
    """Return the one command of a batch."""
    words = [word for queued in batch[1:] for word in queued.request.own_words]
    return (*batch[0].request.command, *words)


def split(reply: Any, batch: Sequence[QueuedRequest]) -> list[Any]:
    """Return the reply to each request of a batch, as if it had been sent alone."""
    if len(batch) == 1:
        return [reply]
    width = batch[0].request.width
    return [
        [reply[0], *reply[1 + place * width : 1 + (place + 1) * width]]
        for place in range(len(batch))
    ]


class _ThreadRequest:
    """A queued request of a thread."""

    def __init__(self, request: BatchableRequest) -> None:
        self.request = request
        self.cancelled = False
        self.done = False
        self.reply: Any = None
        self.error: Exception | None = None
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def sleep(self) -> None:
        """Wait for `wake`, but not for long: the thread that would call it may be interrupted."""
        self._asleep.acquire(timeout=_MAX_SLEEP)

    def wake(self) -> None:
        """Let the thread check whether its request is done, or whether it can send."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._asleep.release()


class RequestBatcher:
    """Batches the requests of threads. One of them sends for all; one request is in flight."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._execute = execute
        self.renew()
        renew_after_fork(self)

    def renew(self) -> None:
        """Forget all requests: another thread may have been sending when this was forked."""
        # Reentrant: a signal's handler in the thread that sends may make a task, too.
        self._sending = threading.RLock()
        self._queue = deque[_ThreadRequest]()

    def send(self, request: BatchableRequest) -> Any:
        """Send a request, perhaps in a batch, and wait for its reply. Raises a RedisError."""
        if not self._queue and self._sending.acquire(blocking=False):
            try:
                return self._execute(*request.command)
            finally:
                self._let_next_send()
        queued = _ThreadRequest(request)
        self._queue.append(queued)
        try:
            while not queued.done:
                if self._sending.acquire(blocking=False):
                    self._send_next()
                else:
                    queued.sleep()
        except BaseException:  # interrupted
            queued.cancelled = True
            raise
        if queued.error is not None:
            raise queued.error
        return queued.reply

    def _send_next(self) -> None:
        """Send the next batch, and let a thread that queued meanwhile send the one after it."""
        try:
            batch = next_batch(self._queue)
            if batch:
                self._send_batch(batch)
        finally:
            self._let_next_send()

    def _let_next_send(self) -> None:
        self._sending.release()
        with contextlib.suppress(IndexError):  # there is none, or another thread has taken it
            self._queue[0].wake()

    def _send_batch(self, batch: Sequence[_ThreadRequest]) -> None:
        try:
            replies = split(self._execute(*merge(batch)), batch)
        except Exception as error:  # raised in each of their threads
            for queued in batch:
                queued.error = error
        except BaseException:
            for queued in batch:
                queued.error = exceptions.ConnectionError("the thread that sent it was interrupted")
            raise
        else:
            for queued, reply in zip(batch, replies, strict=True):
                queued.reply = reply
        finally:
            for queued in batch:
                queued.done = True
                queued.wake()


class _CoroutineRequest(NamedTuple):
    """A queued request of a coroutine."""

    request: BatchableRequest
    future: "asyncio.Future[Any]"
    """Gets the reply."""

    @property
    def cancelled(self) -> bool:
        """True if the coroutine no longer waits for the reply."""
        return self.future.done()


class AsyncRequestBatcher:
    """Batches the requests of the coroutines of one event loop."""

    def __init__(self, execute: Callable[..., Awaitable[Any]]) -> None:
        self._execute = execute
        self._queue = deque[_CoroutineRequest]()
        self._in_flight = 0
        self._tasks = set[asyncio.Task[None]]()

    async def send(self, request: BatchableRequest) -> Any:
        """Send a request, perhaps in a batch, and await its reply. Raises a RedisError."""
        if self._in_flight == _MAX_IN_FLIGHT:
            future = asyncio.get_running_loop().create_future()
            self._queue.append(_CoroutineRequest(request, future))
            return await future
        self._in_flight += 1
        try:
            return await self._execute(*request.command)
        finally:
            self._send_next()

    def _send_next(self) -> None:
        """Send the next batch, after a reply."""
        batch = next_batch(self._queue)
        if not batch:
            self._in_flight -= 1
            return
        # A task of its own: a caller may be cancelled, and the others still need their replies.
        task = asyncio.ensure_future(self._send_batch(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_batch(self, batch: Sequence[_CoroutineRequest]) -> None:
        try:
            replies = split(await self._execute(*merge(batch)), batch)
        except Exception as error:  # raised in each of their coroutines
            for queued in batch:
                if not queued.cancelled:
                    queued.future.set_exception(error)
        except BaseException:
            for queued in batch:
                queued.future.cancel()
            raise
        else:
            for queued, reply in zip(batch, replies, strict=True):
                if not queued.cancelled:
                    queued.future.set_result(reply)
        finally:
            self._send_next()
