"""Puts tasks that Redis has already under the ledger, while listeners and producers go on."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import orjson
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from expirebridge.errors import InvalidTask
from expirebridge.ledger.carrying import NEVER
from expirebridge.ledger.engine import translated
from expirebridge.ledger.partition import Office
from expirebridge.ledger.rows import new_task_of
from expirebridge.ledger.tables import ADOPTED, Status, Todo, Wanted
from expirebridge.model import keys
from expirebridge.model.task import State
from expirebridge.store import commands
from expirebridge.store.client import Store
from expirebridge.store.commands import Stored
from expirebridge.store.partitions import Partitions
from expirebridge.store.task_records import exported, split_call, whole

STATES: Final = (State.RUNNING, State.PENDING, State.PAUSED)
MOST_WALKS: Final = 10
"""What comes due, or is made, during a walk shifts the pages of it: so another follows."""


@dataclass(slots=True)
class Adopted:
    """What became of tasks that were to be adopted."""

    adopted: int = 0
    """They have a row now."""
    gone: int = 0
    """They ended, were replaced or removed before they had one: nothing is left of the attempt."""
    ticks: int = 0
    """They are of a series, which makes them."""
    taken: int = 0
    """Another task of the ledger had their id, and its row is kept."""
    unfit: int = 0
    """They cannot be told in a row, such as those with an illegal id."""


class Adoption:
    """Adopts the tasks of one partition that wait, are paused or run.

    A batch is inserted as rows that say so; then passes carry it, as they carry any row. Whoever
    dies in between leaves rows that the next pass carries, whoever makes it.
    """

    def __init__(self, office: Office, store: Store, *, func: str | None = None) -> None:
        self._books = office.books(lambda: store)
        self._url, self._engine = office.url, office.engine
        self._task, self._ledger = office.made.task, office.settings.ledger_name
        self._partition = store.database.layout.number_of(store.database.prefix)
        self._store = store
        self._func = func
        self._left: set[str] = set()
        """Ids that were counted and are not adopted."""
        self.done = Adopted()

    def run(self, progress: Callable[[int], object] = lambda _: None) -> Adopted:
        """Adopt all there are. After each batch, `progress` is called with how many.

        Raises LedgerUnsuitable if ledger and server are not each other's, another LedgerError if
        the database fails, and a ServerError if the server does.
        """
        self._books.pass_once()
        for _ in range(MOST_WALKS):
            before = self.done.adopted
            for state in STATES:
                for page in self._pages(state):
                    progress(self._adopt(page, state))
            if self.done.adopted == before:
                break
        return self.done

    def _pages(self, state: State) -> Iterator[list[Stored]]:
        """The tasks of a state that have no row and are to have one."""
        cursor = commands.BEGINNING
        while True:
            page = self._store.run(commands.stored_page(state, cursor))
            yield [task for task in page.tasks if self._is_meant(task)]
            cursor = page.cursor
            if cursor == commands.BEGINNING:
                return

    def _is_meant(self, task: Stored) -> bool:
        func, _ = split_call(task.fields.get("call", b""))
        if "ledger" in task.fields or "next" in task.fields or task.id in self._left:
            return False
        if self._func not in {None, func}:
            return False
        if "tick" in task.fields:
            self._leave(task.id)
            self.done.ticks += 1
            return False
        return True

    def _leave(self, id: str) -> None:
        self._left.add(id)

    def _adopt(self, tasks: list[Stored], state: State) -> int:
        """Give tasks rows, and wait until passes have carried these; returns how many have one."""
        began = time.monotonic()
        rows = [row for task in tasks if (row := self._row(task, state)) is not None]
        if not rows:
            return 0
        with translated(self._url):
            ids = self._insert(rows)
        while self._count(ids, adopted=False):
            self._books.pass_once()
        adopted = self._count(ids, adopted=True)
        self.done.adopted += adopted
        self.done.gone += len(ids) - adopted
        time.sleep(time.monotonic() - began)  # so that the passes of others are not held up
        return adopted

    def _row(self, task: Stored, state: State) -> dict[str, Any] | None:
        """The row of a task; None if it has none."""
        try:
            row = row_of(task, state)
            new_task_of({**row, "generation": 1, "revision": 1, "due": None}, 0)
        except (InvalidTask, ValueError):
            self._leave(task.id)
            self.done.unfit += 1
            return None
        return row | {"ledger": self._ledger, "slot": self._partition}

    def _insert(self, rows: list[dict[str, Any]]) -> list[str]:
        """Insert rows, but where there is one already; returns the ids of those that were."""
        while True:
            try:
                with self._engine.begin() as connection:
                    return self._insert_new(connection, rows)
            except IntegrityError:  # another inserted one of them meanwhile
                continue

    def _insert_new(self, connection: Connection, rows: list[dict[str, Any]]) -> list[str]:
        task = self._task
        ids = [row["id"] for row in rows]
        query = select(task.c.id, task.c.stamp).where(
            task.c.ledger == self._ledger, task.c.id.in_(ids)
        )
        known = {row.id: row.stamp for row in connection.execute(query)}
        new = [row for row in rows if row["id"] not in known]
        if new:
            connection.execute(insert(task), new)
        for id, stamp in known.items():
            if stamp != ADOPTED:
                self._leave(id)
                self.done.taken += 1
        return [id for id in ids if known.get(id, ADOPTED) == ADOPTED]

    def _count(self, ids: list[str], *, adopted: bool) -> int:
        """How many of these rows were carried, or wait to be."""
        task = self._task.c
        query = select(func.count()).where(
            task.ledger == self._ledger, task.id.in_(ids),
            task.stamp > ADOPTED if adopted else task.stamp == ADOPTED,
        )  # fmt: skip
        with translated(self._url), self._engine.connect() as connection:
            return int(connection.scalar(query) or 0)


def adopt_all(
    office: Office,
    server: Partitions,
    *,
    func: str | None = None,
    progress: Callable[[int], object] = lambda _: None,
) -> Adopted:
    """Adopt the tasks of each partition; of one function only, if given. Raises as `run`."""
    done = Adopted()
    for store in server.each():
        part = Adoption(office, store, func=func).run(progress)
        for name, number in asdict(part).items():
            setattr(done, name, getattr(done, name) + number)
    return done


def row_of(task: Stored, state: State) -> dict[str, Any]:
    """What a row says of a task that has none. Raises ValueError for a damaged record."""
    func, inline = split_call(task.fields["call"])
    args = task.fields.get("args", b"") if inline == keys.IN_RECORD else inline
    options = exported(task.fields)
    attempt, error = options.pop("attempt", 0), options.pop("error", None)
    made = whole(task.fields.get("made", b""))
    return {
        "id": task.id,
        "func": func,
        "params": args.decode(),
        "options": orjson.dumps(options).decode() if options else None,
        "wanted": Wanted.NONE.value,
        "status": Status.WAITING.value,
        "at_ms": task.due,
        "delay_ms": None,
        "due": NEVER if state is State.PAUSED else task.due,
        "retry_times": int(attempt),
        "message": error,
        "todo": Todo.RELAY.value,
        "stamp": ADOPTED,
        **({} if made is None else {"created": made * 1000}),
    }
