"""Many tasks of a ledger side by side, what is wanted of each, and what became of it."""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

import redis
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from expirebridge import Bridge, Change, State, current_task
from expirebridge.ledger import Ledger
from expirebridge.settings import Settings
from tests.kit.patience import PATIENCE
from tests.kit.witness import listening

P = ParamSpec("P")
T = TypeVar("T")

TASKS = int(os.environ.get("TASKS", "12"))
REST = 8.0
"""Seconds in which all is at rest, if it ever is."""
RETRIES = (0.1,) * 20
AGREE = {
    1: {State.PENDING, State.WAITING, State.PAUSED, State.RUNNING},
    10: {State.SUCCEEDED},
    20: {State.FAILED},
    30: {State.CANCELLED},
}
"""For each status of a row, what Redis may say of the task."""


@dataclass(eq=False)
class Run:
    """One call of a handler."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    began: float = field(default_factory=time.time)
    ended: float | None = None
    completed: bool = False
    """Whether it completed its task in a transaction that was committed."""
    may_end: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class Tale:
    """What is wanted of one task, and what became of it."""

    number: int
    held: int
    """So many of its runs do not end before they are let go."""
    runs: list[Run] = field(default_factory=list)
    wish: float | None = None
    """When the wish was committed that is to count."""
    due: float = 0.0
    """When it is to run then, or was to run before."""

    @property
    def id(self) -> str:
        return f"t{self.number}"

    @property
    def func(self) -> str:
        """Every other handler is a coroutine function."""
        return "test.plain" if self.number % 2 else "test.coroutine"

    @property
    def is_wished(self) -> bool:
        return self.wish is not None

    def begun_after(self, moment: float | None) -> list[Run]:
        return [run for run in self.runs if moment is not None and run.began > moment]


Act = Callable[["Stage", Tale, Run], None]


class Stage:
    """Listeners, an application with its ledger, and what the handlers were called with."""

    def __init__(self, engine: Engine, settings: Settings, bridge: Bridge, listeners: int) -> None:
        self.engine, self.settings, self.bridge = engine, settings, bridge
        self.client = redis.Redis.from_url(settings.url)
        self.poking = Ledger(engine.url, redis=settings.url)
        self.quiet = Ledger(engine.url)
        """Whose commits nobody hears of: they are found within a second."""
        self.tales: list[Tale] = []
        self.chance = random.Random(7)  # noqa: S311 - for a test
        self._act: Act = lambda *_: None
        self._listeners = listeners
        self._writer = threading.Lock() if engine.dialect.name == "sqlite" else nullcontext()
        self._more = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(16))

    # The listeners and their handlers

    @asynccontextmanager
    async def opened(self, act: Act | None = None) -> AsyncIterator[None]:
        """With listeners, whose handlers do that before they return."""
        self._act = act or self._act
        handlers = {"plain": self._plain, "coroutine": self._coroutine}
        async with AsyncExitStack() as stack:
            for _ in range(self._listeners):
                await stack.enter_async_context(listening(self.settings, **handlers))
            yield

    def _plain(self, *args: Any, **kwargs: Any) -> None:
        with self._run(args, kwargs) as (tale, run):
            run.may_end.wait(PATIENCE)
            self._act(self, tale, run)

    async def _coroutine(self, *args: Any, **kwargs: Any) -> None:
        with self._run(args, kwargs) as (tale, run):
            await self.until(run.may_end.is_set)
            await asyncio.to_thread(self._act, self, tale, run)

    @contextmanager
    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Tale, Run]]:
        tale, run = self.tales[int(current_task().id[1:])], Run(args, kwargs)
        tale.runs.append(run)
        if len(tale.runs) > tale.held:
            run.may_end.set()
        self._notify()
        try:
            yield tale, run
        finally:
            run.ended = time.time()
            self._notify()

    def _notify(self) -> None:
        self._loop.call_soon_threadsafe(self._more.set)

    def let_go(self, *runs: Run) -> None:
        for run in runs:
            run.may_end.set()
        self._notify()

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until that is so after a run began, ended, or was let go."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._more.clear()
                await self._more.wait()

    def complete(self, run: Run) -> None:
        """For a handler: have an effect, and complete its task with it."""
        with self._writer, self.engine.begin() as connection:
            connection.execute(text("INSERT INTO effect VALUES (:id)"), {"id": current_task().id})
            current_task().complete_in(connection)
        run.completed = True

    # The application

    async def commit(self, call: Callable[..., T], *args: Any, **options: Any) -> T:
        """Make one call of a ledger in a transaction of its own."""

        def transaction() -> T:
            with self._writer, Session(self.engine) as session, session.begin():
                return call(session, *args, **options)

        return await asyncio.to_thread(transaction)

    async def wish(self, tale: Tale, call: Callable[..., int | Change], *args: Any) -> None:
        """Ask for a change that is to count from its commit on, if there is something to change."""
        if await self.commit(call, tale.id, *args) in {1, Change.CANCELLED}:
            tale.wish = time.time()

    async def each(self, step: Callable[[Tale], Awaitable[T]]) -> list[T]:
        """Do that with all tasks, side by side."""
        return await asyncio.gather(*map(step, self.tales))

    async def make(
        self, *, held: int = 0, quietly: bool = False, func: str | None = None,
        delay: Callable[[Tale], float] = lambda _: 0.0, retry: Sequence[float] = RETRIES,
    ) -> None:  # fmt: skip
        """Make the tasks, and wait until all are carried."""
        self.tales = [Tale(number, held) for number in range(TASKS)]
        tasks = [
            {"func": func or tale.func, "args": ["A"], "delay": delay(tale), "id": tale.id,
             "retry": list(retry)}
            for tale in self.tales
        ]  # fmt: skip
        await self.commit((self.quiet if quietly else self.poking).make_tasks, tasks)
        await self.carried()

    async def make_and_hold(
        self, *, quietly: bool = True, retry: Sequence[float] = RETRIES
    ) -> None:
        """Make tasks whose handlers run until they are let go. If that was quietly, the next look
        at the rows is nearly a second away.
        """
        await self.make(held=1, quietly=quietly, retry=retry)
        await self.until(lambda: all(tale.runs for tale in self.tales))

    async def moment(self, least: float, most: float) -> None:
        await asyncio.sleep(self.chance.uniform(least, most))

    async def ask(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Make a call that waits, such as a Bridge's."""
        return await asyncio.to_thread(partial(call, *args, **options))

    # How it stands

    def rows(self) -> dict[str, Any]:
        with self.engine.connect() as connection:
            found = connection.execute(
                text("SELECT id, status, todo, due, params FROM expirebridge_task")
            )
            return {row.id: row for row in found}

    def effects(self) -> Counter[str]:
        with self.engine.connect() as connection:
            return Counter(connection.scalars(text("SELECT id FROM effect")))

    def state_of(self, id: str) -> State | None:
        task = self.bridge.get(id)
        return task.state if task else None

    async def look(self, holds: Callable[[], bool], within: float) -> bool:
        """Whether that is so within this time: rows have no events."""
        end = time.monotonic() + within
        while not (found := await self.ask(holds)) and time.monotonic() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found

    async def carried(self) -> None:
        """Wait until Redis knows what was committed."""
        assert await self.look(self._is_carried, PATIENCE)

    def _is_carried(self) -> bool:
        return not any(row.todo for row in self.rows().values())

    async def rest(self, within: float = REST) -> dict[str, str]:
        """Wait until nothing is left to do; returns what is wrong then, by the tasks' ids."""

        def rests() -> bool:
            # Asked twice: what has ended in between has made rows that are to learn it.
            return self._agrees() and self._has_finished() and self._agrees()

        await self.look(rests, within)
        return await self.ask(self._wrong)

    def _agrees(self) -> bool:
        """Whether nothing is on its way in either direction."""
        return self._is_carried() and not self.client.zcard("expirebridge:dirty")

    def _has_finished(self) -> bool:
        counts = self.bridge.count()
        return counts.succeeded + counts.failed + counts.cancelled == len(self.tales)

    def _wrong(self) -> dict[str, str]:
        wrong = {}
        for id, row in self.rows().items():
            state = self.state_of(id)
            is_dirty = self.client.zscore("expirebridge:dirty", id) is not None
            if row.todo or is_dirty or state is None or not state.finished:
                left = " to carry" * bool(row.todo) + " to learn" * is_dirty
                wrong[id] = f"not at rest: row {row.status}{left}, Redis {state}"
            elif state not in AGREE[row.status]:
                wrong[id] = f"row {row.status}, Redis {state}"
        return wrong

    def none_broke(
        self, faults: Callable[[Tale], Iterable[str]], *at_rest: Mapping[str, str]
    ) -> None:
        """Fail if there are faults of a task, or something was wrong with it at rest."""
        found = {
            tale.id: {*faults(tale), *(wrong[tale.id] for wrong in at_rest if tale.id in wrong)}
            for tale in self.tales
        }
        broken = [id for id, reasons in found.items() if reasons]
        reasons = Counter(reason for some in found.values() for reason in some)
        listed = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        assert not broken, f"{len(broken)} of {TASKS} broken: {listed} ({' '.join(broken)})"
