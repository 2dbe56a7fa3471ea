"""The tasks that a test made, and the assertions about them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any

from expirebridge.bridge import Bridge
from expirebridge.store.client import Store
from expirebridge.task.durations import Duration, seconds_of
from expirebridge.task.task import State, Task, from_ms
from expirebridge.testing import time
from expirebridge.testing.environment import unseen_loop
from expirebridge.testing.errors import TravelError
from expirebridge.testing.expectations import TaskPattern, complaint, find
from expirebridge.testing.handlers import Func, Handlers

if TYPE_CHECKING:
    from expirebridge.testing.traveller import Traveller


class MadeCalls:
    """The calls of a Clock about what was made.

    The awaited ones are for a ledger in a transaction of asyncio: that cannot be read otherwise.
    """

    bridge: Bridge
    _store: Store
    _handlers: Handlers
    _traveller: "Traveller"
    _began_at: float
    """When the test began, by `time.monotonic`."""

    @property
    def now(self) -> datetime:
        """The server's time, which the test moved."""
        return from_ms(self._now_ms())

    def _now_ms(self) -> int:
        return self._store.run(time.now()) // 1000

    def made(self, func: Func | None = None) -> list[Task]:
        """The tasks that were made, or those of a function: those that wait, and that have ended.

        Those that wait come first, the soonest before. Raises TravelError if the ledger is in a
        transaction of asyncio: await `amade` there.
        """
        self._exchange("amade")
        return self._made(func)

    async def amade(self, func: Func | None = None) -> list[Task]:
        """Do the same in the running event loop: see `made`."""
        await self._traveller.exchange()
        return self._made(func)

    def failed(self, func: Func | None = None) -> list[Task]:
        """The tasks that failed for good, or those of a function; `error` says why.

        Raises TravelError as `made`.
        """
        self._exchange("afailed")
        return self._failed(func)

    async def afailed(self, func: Func | None = None) -> list[Task]:
        """Do the same in the running event loop: see `failed`."""
        await self._traveller.exchange()
        return self._failed(func)

    def assert_made(
        self,
        func: Func,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        due_in: Duration | None = None,
        within: Duration = 1.0,
        count: int | None = None,
    ) -> list[Task]:
        """Assert that a task was made, and return it, or all that are like it.

        What is not given may be anything. With `due_in` the task must wait, and be due in that time
        from now, give or take `within` and, as time goes on by itself, what the test has taken so
        far. `count` is how many there must be; without it, one or more.

        Raises AssertionError, which shows what was made instead, InvalidTask for values that cannot
        be, and TravelError as `made`.
        """
        __tracebackhide__ = True
        self._exchange("aassert_made")
        return self._check_made(self._wanted(func, args, kwargs, due_in, within), count)

    async def aassert_made(
        self,
        func: Func,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        due_in: Duration | None = None,
        within: Duration = 1.0,
        count: int | None = None,
    ) -> list[Task]:
        """Do the same in the running event loop: see `assert_made`."""
        __tracebackhide__ = True
        await self._traveller.exchange()
        return self._check_made(self._wanted(func, args, kwargs, due_in, within), count)

    def assert_not_made(
        self,
        func: Func,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Assert that no such task waits or has run. One that was cancelled does not count.

        Raises AssertionError, which shows what was made, InvalidTask for values that cannot be, and
        TravelError as `made`.
        """
        __tracebackhide__ = True
        self._exchange("aassert_not_made")
        self._check_not_made(self._wanted(func, args, kwargs, None, 0))

    async def aassert_not_made(
        self,
        func: Func,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Do the same in the running event loop: see `assert_not_made`."""
        __tracebackhide__ = True
        await self._traveller.exchange()
        self._check_not_made(self._wanted(func, args, kwargs, None, 0))

    def _exchange(self, instead: str) -> None:
        """Carry the ledger's rows. Raises TravelError if that is to be awaited."""
        rows = self._traveller.rows
        if rows is None:
            return
        if rows.awaits or rows.is_elsewhere:
            what = "of another thread" if rows.is_elsewhere else "of asyncio"
            raise TravelError(f"the ledger is in a transaction {what}: await {instead}(...)")
        rows.exchange()

    def _made(self, func: Func | None = None) -> list[Task]:
        name = None if func is None else self._handlers.name_of(func)
        late = [task for task in self._traveller.kept_back if name in {None, task.func}]
        with unseen_loop():  # in which a Bridge would warn that it waits
            found = {
                state: [
                    task
                    for task in self.bridge.list(state=state, func=name, limit=10_000).tasks
                    if task.id not in self._traveller.undone
                ]
                for state in State
            }
        found[State.PENDING] = sorted(found[State.PENDING] + late, key=attrgetter("due"))
        return [task for tasks in found.values() for task in tasks]

    def _failed(self, func: Func | None) -> list[Task]:
        return [task for task in self._made(func) if task.state is State.FAILED]

    def _check_made(self, wanted: TaskPattern, count: int | None) -> list[Task]:
        __tracebackhide__ = True
        tasks = self._made()
        found = find(wanted, tasks)
        if (not found) if count is None else len(found) != count:
            asked = "wanted" if count is None else f"wanted {count}"
            raise AssertionError(self._complaint(wanted, tasks, found, asked))
        return found

    def _check_not_made(self, wanted: TaskPattern) -> None:
        __tracebackhide__ = True
        tasks = [task for task in self._made() if task.state is not State.CANCELLED]
        if found := find(wanted, tasks):
            raise AssertionError(self._complaint(wanted, tasks, found, "not wanted"))

    def _complaint(
        self, wanted: TaskPattern, tasks: list[Task], found: list[Task], asked: str
    ) -> str:
        ledger = self._traveller.rows is not None
        return complaint(wanted, tasks, found, asked, ledger=ledger)

    def _wanted(
        self,
        func: Func,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        due_in: Duration | None,
        within: Duration,
    ) -> TaskPattern:
        return TaskPattern(
            func=self._handlers.name_of(func),
            args=args,
            kwargs=kwargs,
            due_in=None if due_in is None else seconds_of(due_in, name="due_in"),
            within=seconds_of(within, name="within"),
            now=self.now,
            passed=monotonic() - self._began_at,
        )
