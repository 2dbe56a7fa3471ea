"""The producer's API of the ledger: tasks in the caller's own transaction."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, Unpack, overload
from zoneinfo import ZoneInfo

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from expirebridge.errors import InvalidSetting, InvalidTask, TaskExists
from expirebridge.hooks import Hook, Hooks, Made, Making, NotMade
from expirebridge.ledger.commit_notifier import CommitNotifier
from expirebridge.ledger.db_errors import is_duplicate
from expirebridge.ledger.engine import engine_of, read_url, translated
from expirebridge.ledger.row_signals import answer_to, signalled
from expirebridge.ledger.rows import LedgerTask, check_ext, ledger_task, times_of, values_of
from expirebridge.ledger.schema import create
from expirebridge.ledger.series_rows import Scheduler, listing_of, place_in, series_of
from expirebridge.ledger.sql_tables import Tables, own_tables
from expirebridge.ledger.sql_types import ahead
from expirebridge.ledger.statements import Statements, statements
from expirebridge.ledger.transaction import (
    DatabaseCheck,
    TransactionAdapter,
    adapter_of,
    check_transaction,
)
from expirebridge.series.definition import spec_from
from expirebridge.series.schedule import Missed, Overlap, check_series_id
from expirebridge.series.values import Series, SeriesListing
from expirebridge.settings import Settings, named_url
from expirebridge.store.record_values import args_of, split_call
from expirebridge.task import keys
from expirebridge.task.argument_writer import ArgumentWriter
from expirebridge.task.calls.call import When
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.durations import Duration
from expirebridge.task.key_ring import KeyRing
from expirebridge.task.keywords import advice_on, advising, advising_methods
from expirebridge.task.new_task import Func, Named, new_task, refuse_repeated_ids, when_of
from expirebridge.task.options import PolicyOptions
from expirebridge.task.signal_payload import encode
from expirebridge.task.task import Change, Outcome, State, Task, from_ms
from expirebridge.task.transactions import Transaction

# Emits the events of tasks that a ledger makes, as a Bridge does of its own.


def announce(hooks: Hooks, new: Sequence[NewTask]) -> None:
    """Emit that tasks are about to be made; a hook may give each a place in a trace."""
    for task in new if hooks else ():
        making = Making(id=task.id, func=split_call(task.call)[0])
        hooks.emit(making)
        if making.trace is not None:
            task.fields["trace"] = making.trace


@contextmanager
def not_made(hooks: Hooks, new: Sequence[NewTask]) -> Iterator[None]:
    """Emit that none of these was made if the block raises: the transaction is lost."""
    try:
        yield
    except Exception as error:
        for task in new if hooks else ():
            hooks.emit(NotMade(id=task.id, error=error))
        raise


def emit_made(hooks: Hooks, new: NewTask, made: LedgerTask) -> None:
    """Emit that the statement of a task was sent. Its due time is by this machine's clock."""
    if not hooks:
        return
    task = Task(
        id=made.id,
        func=made.func,
        args=made.args,
        kwargs=made.kwargs,
        key=b"",
        state=State.PENDING,
        due=_due(new.when),
        tags=made.tags,
        outcome=made.outcome or Outcome.CREATED,
    )
    hooks.emit(Made(task=task))


def _due(when: When) -> datetime:
    return from_ms(when.ms + (round(time.time() * 1000) if when.relative else 0))


IfExists = Literal["reject", "replace"]


@advising
class Ledger:
    """Makes, changes and finds tasks in a table of your own SQL database.

    Each call is given your transaction, and is part of it: a Session or Connection of SQLAlchemy, a
    connection of a driver (psycopg, psycopg2, sqlite3, PyMySQL, mysqlclient), or a connection of
    Django or its alias. Of an AsyncSession or an AsyncConnection, use `run_sync`. Nothing is sent
    to Redis: a listener's relay does that once you have committed.

    `url` is the database that holds the ledger, as a URL of SQLAlchemy, or as an Engine or
    AsyncEngine for it; without it EXPIREBRIDGE_LEDGER is. If there is one, a session of another
    database is refused. `name` is that of the ledger: applications that share its table use one
    each. `tables` are those that `expirebridge.ledger.tables(metadata)` put into your own MetaData.
    `tasks` is the handlers' folder, needed only to name a handler that is given as a function.

    `redis` is the URL of the Redis database whose listeners relay; without it EXPIREBRIDGE_URL is.
    If there is one, `notify` wakes them after a commit, and a warning is logged for a new task
    whose function none of them knows, once for each function. `hooks` receive events, as those of a
    Bridge do; the event that a task was made comes before your commit. `keys` seal the arguments in
    the rows, as `Settings.keys` and EXPIREBRIDGE_KEYS do; what others INSERT stays as it is.

    Safe to share between threads. Raises InvalidSetting for a URL or a name that cannot be used.
    """

    def __init__(
        self,
        url: str | URL | Engine | AsyncEngine | None = None,
        *,
        name: str | None = None,
        tables: Tables | None = None,
        tasks: str | None = None,
        redis: str | None = None,
        hooks: Sequence[Hook] = (),
        keys: str | None = None,
    ) -> None:
        settings = Settings.read(ledger=_written(url), ledger_name=name, tasks=tasks, keys=keys)
        self.name = settings.ledger_name
        """The name of the ledger in each row."""
        self.tables = own_tables() if tables is None else tables
        """The tables that it uses."""
        self._place = settings.tasks
        self._key_ring = settings.key_ring
        self._writer = ArgumentWriter(key_ring=settings.key_ring)
        self._hooks = Hooks(hooks)
        own = None if settings.ledger is None else read_url(settings.ledger)
        self._url = own
        self._engine = url if isinstance(url, Engine) else None
        engine = url.sync_engine if isinstance(url, AsyncEngine) else self._engine
        self._database_check = DatabaseCheck(self.tables, own, engine)
        redis = redis or named_url()
        self._notifier = CommitNotifier(Settings.read(url=redis)) if redis is not None else None

    def create(self) -> bool:
        """Create the ledger's tables, unless they are there.

        It is what `expirebridge ledger create` does, in a transaction of its own, through the
        engine that `Ledger` was given, or one that it makes for its URL. Returns whether there was
        anything to do. Raises InvalidSetting without an engine and a URL, LedgerUnsuitable for
        tables of another version, and a LedgerError if the database fails.
        """
        if self._url is None:
            raise InvalidSetting(
                "which database? Give Ledger a URL or an Engine, or set EXPIREBRIDGE_LEDGER"
            )
        engine = self._engine or engine_of(self._url, poolclass=NullPool)
        with translated(self._url), engine.begin() as connection:
            return create(connection, self.tables)

    def make_task(
        self,
        session: Transaction,
        func: Func,
        args: Sequence[Any] = (),
        delay: Duration | None = None,
        *,
        kwargs: Mapping[str, Any] | None = None,
        at: datetime | None = None,
        id: str | None = None,
        if_exists: IfExists = "reject",
        ext: str | None = None,
        on_signal: Named | None = None,
        urgent: bool = False,
        **policies: Unpack[PolicyOptions],
    ) -> LedgerTask:
        """Make a task that runs `func` after `delay`, or at `at`: one INSERT in your transaction.

        A delay counts from the INSERT, on the database's clock, until the task is relayed; from
        then on Redis's clock decides, as it does for `at`. `ext` is what you call the task, such as
        "order-17": `find`, `cancel` and `reschedule` take it, and several tasks may have the same.

        A finished task of the same `id` makes way. If an unfinished one has it,
        `if_exists="reject"` raises TaskExists, and `"replace"` puts the new one in its place (a
        running one runs to its end first). All else is as in `Bridge.make_task`.

        Returns the task; `created` and `modified`, which the database sets, are None. Raises
        InvalidTask if it cannot be, TaskExists, and LedgerUnsuitable if this is not the ledger's
        database, or if its tables are of another version. What your database or its driver raises
        is passed on. After TaskExists and InvalidTask your transaction can go on.
        """
        check_transaction(session)
        new = self._new_task(
            func=func, args=args, delay=delay, kwargs=kwargs, at=at, id=id, if_exists=if_exists,
            on_signal=on_signal, urgent=urgent, **policies,
        )  # fmt: skip
        check_ext(ext)
        adapter = self._changing(session, [new.id])
        announce(self._hooks, [new])
        with not_made(self._hooks, [new]):
            values = values_of(new, ledger=self.name, ext=ext)
            if not self._insert(adapter, new, values):
                raise _exists(new.id)
        return self._made(new, values, Outcome.CREATED)

    def make_tasks(
        self, session: Transaction, tasks: Iterable[Mapping[str, Any]]
    ) -> list[LedgerTask]:
        """Make many tasks: each is a mapping of `make_task`'s arguments by their names.

        All are checked before the first is inserted. Tasks without an `id` are inserted together,
        the others one by one. Returns them in order; one whose id was taken has the outcome
        `rejected`, and does not keep the others from being made.

        Raises InvalidTask, whose message names the position, and what `make_task` raises.
        """
        check_transaction(session)
        new, exts = self._checked(tasks)
        adapter = self._changing(session, [one.id for one in new])
        announce(self._hooks, new)
        with not_made(self._hooks, new):
            values = [
                values_of(one, ledger=self.name, ext=ext)
                for one, ext in zip(new, exts, strict=True)
            ]
            random = [row for one, row in zip(new, values, strict=True) if one.has_random_id]
            if random:
                adapter.execute_many(self._statements(adapter).insert, random)
            done = [
                one.has_random_id or self._insert(adapter, one, row)
                for one, row in zip(new, values, strict=True)
            ]
        return [
            self._made(one, row, Outcome.CREATED if made else Outcome.REJECTED)
            for one, row, made in zip(new, values, done, strict=True)
        ]

    @overload
    def cancel(self, session: Transaction, id: str) -> Change: ...

    @overload
    def cancel(self, session: Transaction, *, ext: str) -> int: ...

    def cancel(
        self, session: Transaction, id: str | None = None, *, ext: str | None = None
    ) -> Change | int:
        """Cancel the task of this `id`, or all tasks of this `ext`, once you have committed.

        If a handler runs by then, no further attempt follows, its `complete_in` is refused, and it
        is stopped if it is async or has a process of its own.

        Returns, of an `id`, cancelled, finished (it has ended, or was cancelled before) or not
        found; of an `ext`, how many unfinished tasks are cancelled that were not before. Whether
        a handler runs is in Redis only. Raises InvalidTask, and LedgerUnsuitable as `make_task`.
        """
        check_transaction(session)
        by_id, values = self._which(id, ext)
        adapter = self._changing(session)
        ours = self._statements(adapter)
        if not by_id:
            return adapter.execute(ours.cancel_ext, values)
        if adapter.execute(ours.cancel, values) > 0:
            return Change.CANCELLED
        return Change.FINISHED if adapter.rows(ours.get, values) else Change.NOT_FOUND

    def reschedule(
        self,
        session: Transaction,
        id: str | None = None,
        delay: Duration | None = None,
        *,
        at: datetime | None = None,
        ext: str | None = None,
    ) -> int:
        """Move the task of this `id`, or all tasks of this `ext`, to `delay` from now, or to `at`.

        A task whose handler runs by then, or has just ended, runs once more. Returns how many
        unfinished tasks are moved: none that is cancelled. Raises InvalidTask, and LedgerUnsuitable
        as `make_task`.
        """
        check_transaction(session)
        by_id, values = self._which(id, ext)
        values |= times_of(when_of(delay, at))
        adapter = self._changing(session)
        ours = self._statements(adapter)
        return adapter.execute(ours.move if by_id else ours.move_ext, values)

    def signal(self, session: Transaction, id: str, payload: Any = None, *, by: str = "") -> Change:
        """Say that what a task waits for has come: once you have committed, it runs its
        `on_signal`.

        The row decides: of both functions exactly one runs. Before the first attempt a listener
        notes in the row that the deadline has decided, and not while your transaction is open.

        Arguments and answers are those of `Bridge.signal`; whether a handler runs is in Redis only,
        so the answer is begun as soon as the deadline has decided, and until the task has ended.
        The same signal again has the first answer as long as the row is kept, and not erased.
        Raises InvalidTask for an illegal id, payload or `by`, and for a row that cannot be a task,
        and LedgerUnsuitable as `make_task`.
        """
        check_transaction(session)
        said = encode(keys.check_id(id), payload, by, self._key_ring)
        adapter = self._changing(session)
        ours, values = self._statements(adapter), {"b_ledger": self.name, "b_id": id}
        while rows := adapter.rows(ours.get_to_signal, values):
            answer = answer_to(said, rows[0])
            if answer is not None:
                return answer
            # In SQLite, which locks no rows, it may have changed since.
            if adapter.execute(ours.signal, values | signalled(said, rows[0])) > 0:
                return Change.SIGNALLED
        return Change.NOT_FOUND

    def erase(self, session: Transaction, id: str | None = None, *, ext: str | None = None) -> int:
        """Erase what finished tasks were given, and why they failed: of this `id`, or this `ext`.

        The rows stay, without arguments, tags and `message`; the relay has Redis forget them as
        well. Of an unfinished task nothing is erased: cancel it first. Returns how many tasks were
        erased that were not before. Raises InvalidTask, and LedgerUnsuitable as `make_task`.
        """
        check_transaction(session)
        by_id, values = self._which(id, ext)
        adapter = self._changing(session)
        ours = self._statements(adapter)
        return adapter.execute(ours.erase if by_id else ours.erase_ext, values)

    def get(self, session: Transaction, id: str) -> LedgerTask | None:
        """Return a task as its row is in your transaction; None if there is none.

        Raises InvalidTask for an illegal id, and LedgerUnsuitable as `make_task`.
        """
        adapter = self._adapter(session)
        values = {"b_ledger": self.name, "b_id": keys.check_id(id)}
        rows = adapter.rows(self._statements(adapter).get, values)
        return ledger_task(rows[0], self._key_ring) if rows else None

    def find(self, session: Transaction, *, ext: str, limit: int = 100) -> list[LedgerTask]:
        """Return the tasks of this `ext`, the oldest first, at most `limit`.

        Raises InvalidTask for an illegal `ext`, and LedgerUnsuitable as `make_task`.
        """
        adapter = self._adapter(session)
        values = {"b_ledger": self.name, "b_ext": check_ext(ext), "b_limit": limit}
        rows = adapter.rows(self._statements(adapter).find, values)
        return [ledger_task(row, self._key_ring) for row in rows]

    def schedule(
        self,
        session: Transaction,
        id: str,
        func: Func,
        args: Sequence[Any] = (),
        *,
        cron: str | None = None,
        every: Duration | None = None,
        kwargs: Mapping[str, Any] | None = None,
        tz: str | ZoneInfo | None = None,
        jitter: Duration | None = None,
        start: datetime | None = None,
        until: datetime | None = None,
        missed: Missed = "latest",
        overlap: Overlap = "skip",
        **policies: Unpack[PolicyOptions],
    ) -> Series:
        """Let `func` run again and again, from your commit on. The arguments are those of
        `Bridge.schedule`.

        The series and the time of its latest tick are in this database, and each tick is a task of
        the ledger, `<id>@<ms>`: so both survive Redis. The next time is computed by this database's
        clock.

        If the id belongs to a series of the ledger, that is changed: its waiting tick is replaced.
        The same once more changes nothing. Returns the series as `get_series` does;
        `series.outcome` says what was done. Raises InvalidTask, and LedgerUnsuitable as
        `make_task`.
        """
        check_transaction(session)
        if self._writer.seals:
            raise InvalidTask(
                "a ledger does not seal the arguments of series: use Bridge.schedule, or a Ledger "
                "without keys"
            )
        spec = spec_from(
            self._place, self._writer, id, func, args, cron=cron, every=every, kwargs=kwargs,
            tz=tz, jitter=jitter, start=start, until=until, missed=missed, overlap=overlap,
            **policies,
        )  # fmt: skip
        outcome = self._scheduler(session).put(spec)
        series = self.get_series(session, id)
        assert series is not None  # noqa: S101 - this transaction has written it
        return replace(series, outcome=outcome)

    def unschedule(self, session: Transaction, id: str) -> Change:
        """Remove a series and its waiting tick, once you have committed; what runs goes on.

        Returns removed or not found. Raises InvalidTask for an illegal id, and LedgerUnsuitable as
        `make_task`.
        """
        return self._scheduler(session).remove(check_series_id(id))

    def get_series(self, session: Transaction, id: str) -> Series | None:
        """Return a series as it is in your transaction; None if there is none.

        The start and the lateness of its last tick are in Redis only: those fields are None. Raises
        InvalidTask for an illegal id, and LedgerUnsuitable as `make_task`.
        """
        adapter = self._adapter(session)
        values = {"b_ledger": self.name, "b_id": check_series_id(id), "b_ahead": ahead()}
        rows = adapter.rows(self._statements(adapter).series_show, values)
        return series_of(rows[0]) if rows else None

    def list_series(
        self, session: Transaction, *, limit: int = 100, cursor: str | None = None
    ) -> SeriesListing:
        """Return up to `limit` series, those first whose next tick is first; paused ones last.

        `listing.cursor` is where the next page begins. Pages are no snapshot. Raises InvalidTask
        for values that cannot be, and LedgerUnsuitable as `make_task`.
        """
        if not isinstance(limit, int) or limit < 1:
            raise InvalidTask(f"limit={limit!r}: it must be a whole number, at least 1")
        due, id = place_in(cursor)
        adapter = self._adapter(session)
        values = {
            "b_ledger": self.name, "b_due": due, "b_id": id, "b_limit": limit, "b_ahead": ahead(),
        }  # fmt: skip
        return listing_of(adapter.rows(self._statements(adapter).series_list, values), limit)

    def pause_series(self, session: Transaction, id: str) -> Change:
        """Let a series make no ticks until it is resumed, from your commit on.

        Its waiting tick is cancelled; one that is due within two seconds may still run. `schedule`
        does not resume it. Returns paused or not found. Raises as `unschedule`.
        """
        return self._scheduler(session).pause(check_series_id(id))

    def resume_series(self, session: Transaction, id: str) -> Change:
        """Let a paused series go on, with its first tick from now on.

        Returns resumed or not found. Raises as `unschedule`, and InvalidTask if its schedule cannot
        be read.
        """
        return self._scheduler(session).resume(check_series_id(id))

    def run_series(self, session: Transaction, id: str) -> LedgerTask | None:
        """Make one more tick of a series, due now; the others stay as they are.

        Returns its task, or None if there is no such series. Raises as `unschedule`.
        """
        tick = self._scheduler(session).run(check_series_id(id))
        return None if tick is None else self.get(session, tick)

    def _new_task(self, **given: Any) -> NewTask:
        if given.get("if_exists", "reject") not in {"reject", "replace"}:
            raise InvalidTask(f"if_exists={given['if_exists']!r}: in a ledger, reject or replace")
        new = new_task(self._place, self._writer, **given)
        args = new.fields.get("args")
        if isinstance(args, bytes):
            if len(args) <= keys.MAX_ARGS_IN_KEY and not self._writer.seals:
                raise InvalidTask(
                    "private: a row does not keep arguments out of a key's name unless they are "
                    "sealed: give the ledger keys"
                )
            new.fields["args"] = self._writer.sealed(args, new.id, *new.funcs)
        return new

    def _checked(
        self, tasks: Iterable[Mapping[str, Any]]
    ) -> tuple[list[NewTask], list[str | None]]:
        """Check and encode many tasks, each with its `ext`. An error names the position."""
        new: list[NewTask] = []
        exts: list[str | None] = []
        for position, item in enumerate(tasks):
            if not isinstance(item, Mapping):
                raise InvalidTask(f"task {position}: give a mapping of make_task's arguments")
            given = dict(item)
            ext = given.pop("ext", None)
            try:
                new.append(self._new_task(**given))
                exts.append(check_ext(ext))
            except (InvalidTask, TypeError) as error:
                reason = str(error).replace("new_task() ", "")
                raise InvalidTask(
                    f"task {position}: {reason}{advice_on(error, new_task)}"
                ) from error
        refuse_repeated_ids(new)
        return new, exts

    def _which(self, id: str | None, ext: str | None) -> tuple[bool, dict[str, Any]]:
        """Return whether the task is named by its id, and the parameters."""
        if (id is None) == (ext is None):
            raise InvalidTask("give either id or ext")
        if id is not None:
            return True, {"b_ledger": self.name, "b_id": keys.check_id(id)}
        return False, {"b_ledger": self.name, "b_ext": check_ext(ext)}

    def _insert(self, adapter: TransactionAdapter, new: NewTask, values: Mapping[str, Any]) -> bool:
        """Insert one task; False if an unfinished one has its id."""
        ours = self._statements(adapter)
        if new.has_random_id:
            adapter.execute(ours.insert, values)
            return True
        if new.if_exists == "replace":
            return adapter.execute(ours.replace, values) > 0
        try:
            return adapter.execute(ours.make, values) > 0
        except Exception as error:
            # MySQL only. A duplicate key does not end its transaction.
            if not is_duplicate(error):
                raise
        return adapter.execute(ours.take, values) > 0

    def _made(self, new: NewTask, values: Mapping[str, Any], outcome: Outcome) -> LedgerTask:
        made = _made(new, values, outcome, self._key_ring)
        emit_made(self._hooks, new, made)
        if self._notifier is not None:
            self._notifier.look_up(_functions(made.func, made.on_signal))
        return made

    def _scheduler(self, session: Transaction) -> Scheduler:
        adapter = self._changing(session)
        return Scheduler(self.name, adapter, self._statements(adapter))

    def _statements(self, adapter: TransactionAdapter) -> Statements:
        return statements(self.tables, adapter.dialect.name)

    def notify(self) -> None:
        """Have a listener look for committed rows at once, and not within a second.

        Call it after a commit; after that of a Session of SQLAlchemy or of Django it is called for
        you. It returns at once, raises nothing, and does nothing without a Redis: `redis`, or
        EXPIREBRIDGE_URL.
        """
        if self._notifier is not None:
            self._notifier.notify()

    def _changing(
        self, session: Transaction, ids: Collection[str] | None = None
    ) -> TransactionAdapter:
        """Return the adapter of a transaction that writes: listeners are notified of its commit.

        `ids`: it makes rows with these, and nothing else.
        """
        adapter = self._adapter(session)
        if self._notifier is not None:
            self._notifier.note(session, ids)
        return adapter

    def _adapter(self, session: Transaction) -> TransactionAdapter:
        """Return the adapter of the caller's transaction; a new database is checked first."""
        adapter = adapter_of(session, self.tables.task)
        self._database_check.check(adapter)
        return adapter


def _written(given: object) -> str | None:
    """The URL of what a Ledger was given. Raises InvalidSetting for what has none."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Engine | AsyncEngine):
        given = given.url
    if isinstance(given, URL):
        return given.render_as_string(hide_password=False)
    kind = type(given).__name__
    if isinstance(given, Session | scoped_session | sessionmaker | Connection):
        raise InvalidSetting(
            f"Ledger({kind}): give its engine here, Ledger(engine), and the session to each call: "
            "ledger.make_task(session, ...)"
        )
    raise InvalidSetting(f"Ledger({kind}): give a URL, an Engine or an AsyncEngine of SQLAlchemy")


def _exists(id: str) -> TaskExists:
    error = TaskExists(id, "unfinished")
    error.args = (
        f"task {id!r} exists and is not finished: pass if_exists='replace', or choose another id",
    )
    return error


def _made(
    new: NewTask, values: Mapping[str, Any], outcome: Outcome, key_ring: KeyRing | None
) -> LedgerTask:
    on_signal = None if "on_signal" not in new.fields else str(new.fields["on_signal"])
    funcs = _functions(values["b_func"], on_signal)
    args, kwargs = args_of(values["b_params"].encode(), new.id, *funcs, key_ring=key_ring)
    return LedgerTask(
        id=new.id,
        func=values["b_func"],
        args=args,
        kwargs=kwargs,
        ext=values["b_ext_string"],
        tags=tuple(str(new.fields.get("tags", "")).split()),
        urgent="urgent" in new.fields,
        on_signal=on_signal,
        outcome=outcome,
    )


def _functions(func: str, on_signal: str | None) -> list[str]:
    """Those that a task may run."""
    return [func] if on_signal is None else [func, on_signal]


advising_methods(Ledger)
