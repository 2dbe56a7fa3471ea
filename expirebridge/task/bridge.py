"""The two colours of a producer: `Bridge` waits, `AsyncBridge` is awaited.

Neither has logic of its own: every method runs the operation of the same name, which is described,
documented and typed once, in `Operations`.
"""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

import redis
import redis.asyncio

from expirebridge.connection import clients
from expirebridge.fleet.unknown_functions import UnknownFunction
from expirebridge.hooks import Hook, Hooks
from expirebridge.sealing.codec import Codec
from expirebridge.settings import DEFAULT_URL, Settings, named_url, warn_of_variables
from expirebridge.store.partitions import AsyncPartitions, Partitions, PartitionsByLoop
from expirebridge.task.calls.call import Runnable
from expirebridge.task.keywords import advising, is_of_the_call, misnamed
from expirebridge.task.log_fields import event
from expirebridge.task.operations.operations import Operations
from expirebridge.task.task import Task

logger = logging.getLogger("expirebridge")

P = ParamSpec("P")
T = TypeVar("T")


def _waits(
    operation: Callable[Concatenate[Operations, P], Runnable[T]],
) -> "Callable[Concatenate[Bridge, P], T]":
    @_documented_by(operation)
    def method(self: "Bridge", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            runnable = operation(self._operations, *args, **kwargs)
        except TypeError as error:
            raise _misnamed(operation, error) from None
        if asyncio._get_running_loop() is not None:
            warn_of_waiting()
        return self._store.run(runnable)

    return method


def _awaits(
    operation: Callable[Concatenate[Operations, P], Runnable[T]],
) -> "Callable[Concatenate[AsyncBridge, P], Coroutine[Any, Any, T]]":
    @_documented_by(operation)
    async def method(self: "AsyncBridge", /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            runnable = operation(self._operations, *args, **kwargs)
        except TypeError as error:
            raise _misnamed(operation, error) from None
        return await self._stores.here().run(runnable)

    return method


@functools.cache
def warn_of_waiting() -> None:
    """Warn once that a `Bridge` blocks the event loop while it waits for the server."""
    logger.warning(
        "a Bridge, or make_task, was called inside of a running event loop, which stands still "
        "until the server answers: use AsyncBridge there (this is said once)",
        extra=event("loop waits"),
    )


def _misnamed(operation: Callable[..., Any], error: TypeError) -> TypeError:
    """Return the error of a call that does not fit, with the right name of a foreign keyword."""
    return misnamed(error, operation, operation.__name__) if is_of_the_call(error) else error


def _documented_by(operation: Callable[..., Runnable[Any]]) -> Callable[[T], T]:
    """Give a method the name, text and parameters of its operation, and the result as its type."""

    def decorate(method: T) -> T:
        functools.update_wrapper(method, operation)  # type: ignore[arg-type]
        method.__signature__ = _signature_of(operation)  # type: ignore[attr-defined]
        return method

    return decorate


@functools.cache
def _signature_of(operation: Callable[..., Runnable[Any]]) -> inspect.Signature:
    """That of an operation, with what comes of it as the result."""
    signature = inspect.signature(operation)
    # Of Call[T], and of Steps[T]; the name of what is not loaded before it is needed.
    result = signature.return_annotation.__args__[-1]
    return signature.replace(return_annotation=getattr(result, "__forward_arg__", result))


@advising
class Bridge:
    """Makes, finds and steers tasks; every call waits for the server.

    `url` names server, sentinels or cluster, and database (docs/how-to/sentinel-and-cluster.md);
    without it EXPIREBRIDGE_URL does, or redis://localhost:6379/1. A `client` of the caller's own is
    taken instead, and is not closed; it must not decode replies, nor be a cluster's. `tasks` is the
    handlers' folder, needed only to name a handler that is given as a function. `prefix` begins
    the names of expirebridge's keys. `hooks` are called for every task that is made.
    `unknown` is the policy for a new task or series whose function no listener has: `"warn"` logs
    it with the nearest name, `"refuse"` raises InvalidTask before anything is made, `"off"`
    does not ask the listeners. To warn, they are asked once in this process about each function,
    when its first task has been made. A task is refused only if at least one listener is live, and
    each live one reports its functions.
    `codec` keeps arguments of more than 64 KiB elsewhere: a `Codec`, or its place as text,
    `module:object`; without it, EXPIREBRIDGE_CODEC names one. `keys` seal arguments, results and
    errors, as `Settings.keys` and EXPIREBRIDGE_KEYS do.

    A context manager; safe to share between threads. Raises InvalidSetting for a URL or a client
    that it cannot use, and for another value of `unknown`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: redis.Redis | None = None,
        prefix: str | None = None,
        tasks: str | None = None,
        hooks: Sequence[Hook] = (),
        unknown: UnknownFunction = "warn",
        codec: Codec | str | None = None,
        keys: str | None = None,
    ) -> None:
        settings = Settings.read(url=url, prefix=prefix, tasks=tasks, codec=codec, keys=keys)
        warn_of_variables()
        self._owns_client = client is None
        if client is None:
            client = clients.producer_client(settings.url, settings.prefix)
        else:
            clients.check_client(client, redis.Redis)
        self._store = Partitions(client, prefix=settings.prefix)
        self._operations = Operations(settings, Hooks(hooks), unknown=unknown)
        self._prefix = settings.prefix
        if self._owns_client and _is_led(settings.url):
            _led.add(self)

    @contextmanager
    def _leading_to(self, url: str) -> Iterator[None]:
        before = self._store
        self._store = Partitions(clients.producer_client(url, self._prefix), prefix=self._prefix)
        try:
            yield
        finally:
            there, self._store = self._store, before
            there.close()

    make_task = _waits(Operations.make_task)
    make_tasks = _waits(Operations.make_tasks)
    watch = _waits(Operations.watch)
    beat = _waits(Operations.beat)
    make_group = _waits(Operations.make_group)
    close_group = _waits(Operations.close_group)
    cancel_group = _waits(Operations.cancel_group)
    get_group = _waits(Operations.get_group)
    list_groups = _waits(Operations.list_groups)
    get = _waits(Operations.get)
    why = _waits(Operations.why)
    list = _waits(Operations.list)
    count = _waits(Operations.count)
    limits = _waits(Operations.limits)
    cancel = _waits(Operations.cancel)
    cancel_all = _waits(Operations.cancel_all)
    cancel_func = _waits(Operations.cancel_func)
    cancel_tag = _waits(Operations.cancel_tag)
    reschedule = _waits(Operations.reschedule)
    put_off = _waits(Operations.put_off)
    put_off_all = _waits(Operations.put_off_all)
    put_off_tag = _waits(Operations.put_off_tag)
    pause = _waits(Operations.pause)
    pause_all = _waits(Operations.pause_all)
    pause_tag = _waits(Operations.pause_tag)
    resume = _waits(Operations.resume)
    resume_all = _waits(Operations.resume_all)
    resume_tag = _waits(Operations.resume_tag)
    run_now = _waits(Operations.run_now)
    edit = _waits(Operations.edit)
    let_pass = _waits(Operations.let_pass)
    weight = _waits(Operations.weight)
    find_failed = _waits(Operations.find_failed)
    retry_failed = _waits(Operations.retry_failed)
    purge_failed = _waits(Operations.purge_failed)
    schedule = _waits(Operations.schedule)
    schedule_many = _waits(Operations.schedule_many)
    unschedule = _waits(Operations.unschedule)
    get_series = _waits(Operations.get_series)
    list_series = _waits(Operations.list_series)
    pause_series = _waits(Operations.pause_series)
    resume_series = _waits(Operations.resume_series)
    run_series = _waits(Operations.run_series)
    prune_series = _waits(Operations.prune_series)
    hold = _waits(Operations.hold)
    release = _waits(Operations.release)
    holds = _waits(Operations.holds)
    create_partitions = _waits(Operations.create_partitions)
    count_partitions = _waits(Operations.count_partitions)
    list_partitions = _waits(Operations.list_partitions)
    key_of = _waits(Operations.key_of)

    def close(self) -> None:
        """Close the connections, unless the client is the caller's."""
        if self._owns_client:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@advising
class AsyncBridge:
    """The same, awaited. See `Bridge`; `client` is a `redis.asyncio.Redis`.

    It may be used in several event loops, one after another or side by side: each has connections
    of its own, which `aclose` in that loop closes. A `client` of the caller's serves one loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client: redis.asyncio.Redis | None = None,
        prefix: str | None = None,
        tasks: str | None = None,
        hooks: Sequence[Hook] = (),
        unknown: UnknownFunction = "warn",
        codec: Codec | str | None = None,
        keys: str | None = None,
    ) -> None:
        settings = Settings.read(url=url, prefix=prefix, tasks=tasks, codec=codec, keys=keys)
        warn_of_variables()
        self._owns_client = client is None
        if client is not None:
            clients.check_client(client, redis.asyncio.Redis)

        def begin(url: str = settings.url) -> AsyncPartitions:
            connecting = client or clients.async_producer_client(url, settings.prefix)
            return AsyncPartitions(connecting, prefix=settings.prefix)

        begin()  # sends nothing, and refuses a bad URL
        self._begin = begin
        self._stores = PartitionsByLoop(begin)
        self._operations = Operations(settings, Hooks(hooks), unknown=unknown)
        if self._owns_client and _is_led(settings.url):
            _led.add(self)

    @contextmanager
    def _leading_to(self, url: str) -> Iterator[None]:
        before = self._stores
        self._stores = PartitionsByLoop(functools.partial(self._begin, url))
        try:
            yield
        finally:
            self._stores = before

    make_task = _awaits(Operations.make_task)
    make_tasks = _awaits(Operations.make_tasks)
    watch = _awaits(Operations.watch)
    beat = _awaits(Operations.beat)
    make_group = _awaits(Operations.make_group)
    close_group = _awaits(Operations.close_group)
    cancel_group = _awaits(Operations.cancel_group)
    get_group = _awaits(Operations.get_group)
    list_groups = _awaits(Operations.list_groups)
    get = _awaits(Operations.get)
    why = _awaits(Operations.why)
    list = _awaits(Operations.list)
    count = _awaits(Operations.count)
    limits = _awaits(Operations.limits)
    cancel = _awaits(Operations.cancel)
    cancel_all = _awaits(Operations.cancel_all)
    cancel_func = _awaits(Operations.cancel_func)
    cancel_tag = _awaits(Operations.cancel_tag)
    reschedule = _awaits(Operations.reschedule)
    put_off = _awaits(Operations.put_off)
    put_off_all = _awaits(Operations.put_off_all)
    put_off_tag = _awaits(Operations.put_off_tag)
    pause = _awaits(Operations.pause)
    pause_all = _awaits(Operations.pause_all)
    pause_tag = _awaits(Operations.pause_tag)
    resume = _awaits(Operations.resume)
    resume_all = _awaits(Operations.resume_all)
    resume_tag = _awaits(Operations.resume_tag)
    run_now = _awaits(Operations.run_now)
    edit = _awaits(Operations.edit)
    let_pass = _awaits(Operations.let_pass)
    weight = _awaits(Operations.weight)
    find_failed = _awaits(Operations.find_failed)
    retry_failed = _awaits(Operations.retry_failed)
    purge_failed = _awaits(Operations.purge_failed)
    schedule = _awaits(Operations.schedule)
    schedule_many = _awaits(Operations.schedule_many)
    unschedule = _awaits(Operations.unschedule)
    get_series = _awaits(Operations.get_series)
    list_series = _awaits(Operations.list_series)
    pause_series = _awaits(Operations.pause_series)
    resume_series = _awaits(Operations.resume_series)
    run_series = _awaits(Operations.run_series)
    prune_series = _awaits(Operations.prune_series)
    hold = _awaits(Operations.hold)
    release = _awaits(Operations.release)
    holds = _awaits(Operations.holds)
    create_partitions = _awaits(Operations.create_partitions)
    count_partitions = _awaits(Operations.count_partitions)
    list_partitions = _awaits(Operations.list_partitions)
    key_of = _awaits(Operations.key_of)

    async def aclose(self) -> None:
        """Close the running event loop's connections, unless the client is the caller's."""
        if self._owns_client:
            await self._stores.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


_led: WeakSet[Bridge | AsyncBridge] = WeakSet()
"""The bridges that were made with the URL of the environment or the project."""


def _is_led(url: str) -> bool:
    return url == (named_url() or DEFAULT_URL)


@contextmanager
def leading_to(url: str) -> Iterator[None]:
    """For a block, have the bridges that were made with the URL of `named_url` use this one.

    For tests: a bridge at the top of a module is made before any test begins. Those that were made
    with another URL, or with a client, are left as they are.
    """
    with ExitStack() as stack:
        for bridge in list(_led):
            stack.enter_context(bridge._leading_to(url))
        yield


@functools.cache
def default_bridge() -> Bridge:
    """The bridge that `make_task` and `make_tasks` use."""
    return Bridge()


def forget_default_bridge() -> None:
    """Let `make_task` and `make_tasks` look for their server again, by EXPIREBRIDGE_URL."""
    if default_bridge.cache_info().currsize:
        default_bridge().close()
    default_bridge.cache_clear()


def _on_default_bridge(method: Callable[Concatenate[Bridge, P], T]) -> Callable[P, T]:
    @functools.wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> T:
        return method(default_bridge(), *args, **kwargs)

    signature = inspect.signature(method)
    without_self = list(signature.parameters.values())[1:]
    function.__signature__ = signature.replace(parameters=without_self)  # type: ignore[attr-defined]
    return function


def prepare_task(*args: Any, **kwargs: Any) -> Callable[[], Task]:
    """Check the arguments of `make_task` now, and return a function that makes the task."""
    try:
        steps = default_bridge()._operations.make_task(*args, **kwargs)
    except TypeError as error:
        raise _misnamed(Operations.make_task, error) from None
    return lambda: default_bridge()._store.run(steps)


make_task = _on_default_bridge(Bridge.make_task)
make_tasks = _on_default_bridge(Bridge.make_tasks)
