"""The bridges, composed of the operations of the spine and of each capability.

Beside `capabilities` and `marking` no module names them: so type checkers and editors show
their methods.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from weakref import WeakSet

import redis
import redis.asyncio

from expirebridge.connection import clients
from expirebridge.fleet.operations import FleetOperations
from expirebridge.groups.operations import AsyncGroupMethods, GroupMethods, GroupOperations
from expirebridge.hooks import Hook, Hooks
from expirebridge.limits.operations import AsyncLimitMethods, LimitMethods, LimitOperations
from expirebridge.series.operations import AsyncSeriesMethods, SeriesMethods, SeriesOperations
from expirebridge.settings import DEFAULT_URL, Settings, named_url, warn_of_variables
from expirebridge.signals.operations import AsyncSignalMethods, SignalMethods, SignalOperations
from expirebridge.store.partitions import AsyncPartitions, Partitions, PartitionsByLoop
from expirebridge.task.calls.call import Runnable
from expirebridge.task.codec import Codec
from expirebridge.task.keywords import advising
from expirebridge.task.methods import AsyncTaskMethods, TaskMethods, misnamed_in
from expirebridge.task.operations.base import UnknownFunction
from expirebridge.task.operations.operations import TaskOperations
from expirebridge.task.task import Task

P = ParamSpec("P")
T = TypeVar("T")


class Operations(
    FleetOperations,
    GroupOperations,
    LimitOperations,
    SeriesOperations,
    SignalOperations,
    TaskOperations,
):
    """The operations of a producer, with the settings and hooks that they need."""


@advising
class Bridge(
    TaskMethods,
    GroupMethods,
    LimitMethods,
    SeriesMethods,
    SignalMethods,
):
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

    _operations: Operations

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
        if self._owns_client and _is_named_url(settings.url):
            _bridges_of_named_url.add(self)

    @contextmanager
    def _redirected(self, url: str) -> Iterator[None]:
        before = self._store
        self._store = Partitions(clients.producer_client(url, self._prefix), prefix=self._prefix)
        try:
            yield
        finally:
            there, self._store = self._store, before
            there.close()

    def close(self) -> None:
        """Close the connections, unless the client is the caller's."""
        if self._owns_client:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@advising
class AsyncBridge(
    AsyncTaskMethods,
    AsyncGroupMethods,
    AsyncLimitMethods,
    AsyncSeriesMethods,
    AsyncSignalMethods,
):
    """The same, awaited. See `Bridge`; `client` is a `redis.asyncio.Redis`.

    It may be used in several event loops, one after another or side by side: each has connections
    of its own, which `aclose` in that loop closes. A `client` of the caller's serves one loop.
    """

    _operations: Operations

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
        if self._owns_client and _is_named_url(settings.url):
            _bridges_of_named_url.add(self)

    @contextmanager
    def _redirected(self, url: str) -> Iterator[None]:
        before = self._stores
        self._stores = PartitionsByLoop(functools.partial(self._begin, url))
        try:
            yield
        finally:
            self._stores = before

    async def aclose(self) -> None:
        """Close the running event loop's connections, unless the client is the caller's."""
        if self._owns_client:
            await self._stores.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


_bridges_of_named_url: WeakSet[Bridge | AsyncBridge] = WeakSet()
"""The bridges that were made with the URL of the environment or the project."""


def _is_named_url(url: str) -> bool:
    return url == (named_url() or DEFAULT_URL)


@contextmanager
def redirect_bridges(url: str) -> Iterator[None]:
    """For a block, have the bridges that were made with the URL of `named_url` use this one.

    For tests: a bridge at the top of a module is made before any test begins. Those that were made
    with another URL, or with a client, are left as they are.
    """
    with ExitStack() as stack:
        for bridge in list(_bridges_of_named_url):
            stack.enter_context(bridge._redirected(url))
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
        raise misnamed_in(Operations.make_task, error) from None
    return lambda: default_bridge()._store.run(steps)


def run_on(bridge: Bridge, steps: Runnable[T]) -> T:
    """Run what is no method of a Bridge on its server."""
    return bridge._store.run(steps)


make_task = _on_default_bridge(Bridge.make_task)
make_tasks = _on_default_bridge(Bridge.make_tasks)
