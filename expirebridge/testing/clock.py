"""The clock of a test: its database, whose time the test moves on."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Literal, Self

from expirebridge.bridge import Bridge
from expirebridge.errors import InvalidTask
from expirebridge.settings import Settings
from expirebridge.store import script_loader
from expirebridge.task.calls import producing
from expirebridge.task.durations import LONGEST, Duration, check_aware, seconds_of
from expirebridge.task.task import UNCLAIMED, Change, Task, from_ms, to_ms
from expirebridge.testing import environment, time
from expirebridge.testing.attempt import Ran
from expirebridge.testing.carried_rows import rows_in
from expirebridge.testing.environment import INSIDE, OwnLoop, empty_database, led_to
from expirebridge.testing.errors import TravelError
from expirebridge.testing.expectations import line
from expirebridge.testing.handlers import Handlers
from expirebridge.testing.made_tasks import MadeCalls
from expirebridge.testing.time import PythonClock
from expirebridge.testing.traveller import KeyEventReader, Traveller

LIMIT = 1000
"""Attempts in one travel, unless a test allows more."""
MOST_SHOWN = 30


class Clock(MadeCalls):
    """A database for one test, with a clock that the test moves on.

    While its `with` block runs, `EXPIREBRIDGE_URL` and `make_task` lead to that database, which is
    empty at first. `url` is that of another server's database than the embedded one's; it must be
    empty, or be left from another test. `tasks` is the handlers' folder. `handlers` are functions
    by their names, instead of a folder. `python_clock` moves Python's clock, too.

    Raises InvalidSetting for settings that cannot be, EmbeddedServerError if the embedded server
    does not start, ServerUnsuitable if the other one sends no key events, and TravelError if the
    database holds something, or another Clock uses it.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tasks: str | Path | None = None,
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        python_clock: bool = False,
    ) -> None:
        self._given_url = url
        self._tasks = tasks
        self._functions = handlers
        self._moves_python = python_clock
        self._stack = ExitStack()
        self._loop = OwnLoop()
        self._travelling = False
        self.url = ""
        """The URL of its database."""
        self.bridge: Bridge
        """Makes, finds and steers tasks there."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.url = self._given_url or environment.SHARED.url
            # Nothing is forgotten in a test, and its tasks lapse only in life.
            self._settings = Settings.read(
                url=self.url, tasks=self._tasks, keep_succeeded=LONGEST, keep_failed=LONGEST
            )
            self._handlers = Handlers(self._settings, self._functions)
            stack.enter_context(script_loader.using(time.movable()))
            is_ours = self._given_url is None
            self._store = stack.enter_context(empty_database(self._settings, is_ours=is_ours))
            key_events = stack.enter_context(
                closing(KeyEventReader(self._store.client, self._store.database))
            )
            stack.enter_context(led_to(self.url))
            self.bridge = stack.enter_context(Bridge(self.url, tasks=str(self._settings.tasks)))
            stack.enter_context(self._loop)
            self._traveller = Traveller(
                self._store,
                key_events,
                self._settings,
                handlers=self._handlers,
                python_clock=stack.enter_context(PythonClock()) if self._moves_python else None,
            )
            self._stack = stack.pop_all()
        self._began_at = monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    # Time

    def travel(
        self,
        duration: Duration | None = None,
        *,
        at: datetime | None = None,
        until: Literal["idle"] | None = None,
        limit: int = LIMIT,
        raising: bool = False,
        listening: bool = True,
    ) -> list[Ran]:
        """Move time on, by `duration` or to `at`, or as far as any task waits: `until="idle"`.

        Each task runs at its moment, in the order of their due times, in this thread; so does what
        handlers make, and so do retries. Returns the attempts. How they failed is in there; with
        `raising`, what a handler raised is raised, when it is recorded.

        With `listening=False` nothing runs, nor is anything heard, as while no listener is up: what
        was due meanwhile is late in the next travel.

        Raises NeverIdle if more than `limit` attempts are due, InvalidTask for a time that cannot
        be, HandlersError if the handlers cannot be loaded, and TravelError inside of a handler or
        of a running event loop: await `atravel` there.
        """
        journey = self.atravel(
            duration, at=at, until=until, limit=limit, raising=raising, listening=listening
        )
        return self._loop.run(journey, instead="atravel")

    async def atravel(
        self,
        duration: Duration | None = None,
        *,
        at: datetime | None = None,
        until: Literal["idle"] | None = None,
        limit: int = LIMIT,
        raising: bool = False,
        listening: bool = True,
    ) -> list[Ran]:
        """Do the same in the running event loop, where async handlers run: see `travel`."""
        if self._travelling:
            raise TravelError(INSIDE)
        # Before what is now is known: a row is due from its INSERT on.
        await self._traveller.exchange()
        goal = self._goal(duration, at, until)
        self._travelling = True
        try:
            if listening:
                return await self._traveller.travel(goal, limit=limit, raising=raising)
            if goal is None:
                raise InvalidTask("listening=False: say for how long, or until when")
            await self._traveller.sleep(goal)
            return []
        finally:
            self._travelling = False

    def _goal(
        self, duration: Duration | None, at: datetime | None, until: str | None
    ) -> int | None:
        """The ms to travel to; None: as far as any task waits."""
        if [duration, at, until].count(None) != 2:
            raise InvalidTask("give one of: a duration, at= or until='idle'")
        if until is not None:
            if until != "idle":
                raise InvalidTask(f"until={until!r}: it can only be 'idle'; give a time as at=")
            return None
        now = self._now_ms()
        if duration is not None:
            return now + round(seconds_of(duration, name="duration") * 1000)
        goal = to_ms(check_aware(at, name="at"))
        if goal < now:
            raise InvalidTask(f"at={at}: that has passed; it is {from_ms(now)}")
        return goal

    def run_now(self, task: Task | str, *, raising: bool = False) -> Ran:
        """Make a task, or that of an id, due now, and run what is due; returns its attempt.

        A finished task runs once more. Raises TravelError if there is no such task, or it did not
        run; else as `travel`.
        """
        return self._loop.run(self.arun_now(task, raising=raising), instead="arun_now")

    async def arun_now(self, task: Task | str, *, raising: bool = False) -> Ran:
        """Do the same in the running event loop: see `run_now`."""
        id = task if isinstance(task, str) else task.id
        await self._traveller.bring_near(id)
        change = self._store.run(producing.run_now(id))
        if change is not Change.DUE_NOW:
            raise TravelError(f"task {id!r} cannot be run now: {change}")
        for ran in reversed(await self.atravel(0, raising=raising)):
            if ran.task.id == id:
                return ran
        raise TravelError(f"task {id!r} did not run: another handler moved or cancelled it")

    def declare_series(self) -> None:
        """Declare the series of the handlers, as a listener does when it starts.

        Without this call, the ticks of what `@every` declares do not run in a travel. What a
        producer scheduled has its ticks in any case. A series has no end: travel with
        `until="idle"` then raises NeverIdle. Raises HandlersError if the handlers cannot be loaded.
        """
        self._traveller.declare_series()

    def use_ledger(self, source: object, *, name: str | None = None) -> None:
        """Relay the rows of the test's ledger until the clock ends.

        `source` is the database, as a URL or an Engine of SQLAlchemy, where the test commits: all
        that this ledger has is deleted when the clock ends. Where the test holds a transaction open
        that is rolled back, `source` is that: a Session or Connection of SQLAlchemy, or one of its
        asyncio, a connection of a driver, or a connection of Django or its alias. What is written
        to rows is a savepoint in it. A transaction of asyncio is looked at when a call is awaited
        for the first time. `name` is the ledger's; without it EXPIREBRIDGE_LEDGER_NAME, or
        `default`, is.

        Rows are carried, and written back to, when time is moved, when a task is run, and when a
        test looks at what was made. Raises TravelError if listeners have used this ledger outside
        of tests, if it has rows that no test made, or if the clock has a ledger already,
        LedgerUnsuitable for tables that are missing or of another version, InvalidTask for what is
        no database or transaction, and InvalidSetting for a URL or a name that cannot be used. What
        the database or its driver raises is passed on, then and later.
        """
        if self._traveller.rows is not None:
            raise TravelError("this clock has a ledger already")
        settings = Settings.read(
            url=self.url, ledger_name=name, keep_succeeded=LONGEST, keep_failed=LONGEST
        )
        rows = rows_in(source, self._store, settings)
        self._traveller.rows = self._stack.enter_context(rows)

    @property
    def ran(self) -> list[Ran]:
        """All attempts so far."""
        return list(self._traveller.ran)

    def __str__(self) -> str:
        now = self.now
        waiting = [line(task, now) for task in self._made() if task.state in UNCLAIMED]
        parts = [f"it is {now:%Y-%m-%d %H:%M:%S} UTC on the server's clock"]
        parts += _listed("ran:", [str(ran) for ran in self._traveller.ran[-MOST_SHOWN:]])
        parts += _listed("waits:", waiting[:MOST_SHOWN])
        return "\n".join(parts)


def _listed(head: str, lines: list[str]) -> list[str]:
    return [head, *(f"  {line}" for line in lines or ["nothing"])]
