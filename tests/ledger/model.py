"""The ledger's protocol as a model: what rows, records and numbers become, step by step.

One row and one record for each task, one number on each side, and passes that stop where the real
ones do. `World` drives it beside the real thing, and compares the two after each act. The model is
told what chance or time decide there, such as which rows a pass takes, and checks that it may be.
"""

from collections.abc import Collection, Generator, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

WAITING, SUCCEEDED, CANCELLED = 1, 10, 30
NOTHING, RELAY, REBUILD = 0, 1, 2
STATUS = {"succeeded": SUCCEEDED, "cancelled": CANCELLED}
STATE = {status: state for state, status in STATUS.items()}
Steps = Generator[str, None, None]


@dataclass(slots=True)
class Row:
    """What SQL knows of a task."""

    generation: int
    revision: int = 1
    is_cancelled: bool = False
    """Whether the application wants that."""
    status: int = WAITING
    todo: int = RELAY
    stamp: int = 0


@dataclass(slots=True)
class Record:
    """What Redis knows of it."""

    generation: int
    revision: int
    state: str = "pending"
    token: str = ""
    cancel: bool = False
    """Whether no further attempt is to follow the one that runs."""
    next: "Record | None" = None
    """A later life of the id, which is to follow the run of this one."""


@dataclass(slots=True)
class Redis:
    """All that Redis knows, and can lose a suffix of."""

    records: dict[str, Record] = field(default_factory=dict)
    dirty: dict[str, int] = field(default_factory=dict)
    """What rows are to learn, and when that changed last."""
    number: int = 0
    """Of the last pass that was seen here."""
    is_bound: bool = False


@dataclass(slots=True)
class Model:
    """The ledger and Redis, and the rules by which they change."""

    rows: dict[str, Row] = field(default_factory=dict)
    redis: Redis = field(default_factory=Redis)
    taken: int = 0
    """The number that was taken last."""
    stamp: int = 0
    """The highest that was ever given to a row."""
    begun: bool = False
    now: int = 0
    """How many scripts have run: each has a time of its own."""
    page: Collection[str] = ()
    """The rows that the pass which is under way took, as the real one did."""

    # The application

    def insert(self, id: str, generation: int) -> None:
        """A new row, also of an id whose row was deleted. When that is decides its generation."""
        self.rows[id] = Row(generation)

    def replace(self, id: str, generation: int) -> None:
        """A new task in the place of another."""
        row = self.rows[id]
        assert generation > row.generation
        row.generation, row.revision = generation, row.revision + 1
        row.is_cancelled, row.status = False, WAITING
        row.todo = REBUILD if row.todo == REBUILD else RELAY

    def want_cancel(self, id: str) -> None:
        row = self.rows[id]
        row.is_cancelled, row.todo = True, RELAY
        row.revision += 1

    def touch(self, id: str) -> None:
        """Change what is not the time: the row is carried, and nothing is to come of it."""
        self.rows[id].revision += 1
        self.rows[id].todo = RELAY

    def complete(self, id: str, generation: int, revision: int) -> bool:
        """`complete_in`, in the handler's transaction; whether it is let."""
        row = self.rows.get(id)
        if (
            row is None
            or (row.generation, row.revision, row.status) != (generation, revision, WAITING)
            or row.is_cancelled
        ):
            return False
        row.status = SUCCEEDED
        return True

    def prune(self, id: str) -> None:
        del self.rows[id]

    # Redis, whatever the ledger does

    def mark(self, id: str) -> None:
        self.redis.dirty[id] = self.now

    def claim(self, ids: Iterable[str], token: str, gate: int) -> None:
        """A listener took these. Raises AssertionError if none may, or more could."""
        waiting = {id for id, record in self.redis.records.items() if record.state == "pending"}
        found = set(ids)
        assert found <= waiting, f"{found - waiting} cannot be claimed"
        if self.redis.number < gate:
            assert not found, f"{found} claimed below pass {gate}"
        else:
            assert found or not waiting, f"none of {waiting} was claimed"
        for id in found:
            self.redis.records[id] = replace(self.redis.records[id], state="running", token=token)

    def settle(self, id: str, token: str, state: str) -> None:
        self.now += 1
        record = self.redis.records.get(id)
        if record and record.state == "running" and record.token == token:
            self._end_run(id, record, state)

    def lapse(self, alive: Collection[str]) -> None:
        """The leases of all are over whose tokens nobody holds."""
        self.now += 1
        for id, record in self.redis.records.items():
            if record.state == "running" and record.token not in alive:
                self._end_run(id, record, "pending")

    def _end_run(self, id: str, record: Record, state: str) -> None:
        """`pending` is what is to run again."""
        if record.next:
            self.redis.records[id] = record.next
            return
        record.state = "cancelled" if record.cancel and state == "pending" else state
        record.cancel = False
        self.mark(id)

    def forget(self) -> None:
        """The time is over for which finished tasks are kept."""
        records = self.redis.records
        for id in [id for id, record in records.items() if record.state in STATUS]:
            if id not in self.redis.dirty:
                del records[id]

    def revive(self, id: str) -> None:
        """`run_now` of a finished task."""
        self.now += 1
        record = self.redis.records[id]
        record.state = "pending"
        record.generation += 1
        self.mark(id)

    # Numbers

    def fence(self) -> None:
        if self.begun:
            self.taken += 1

    def agrees(self) -> bool:
        """Whether a listener may open its gate."""
        rebuilding = any(row.todo == REBUILD for row in self.rows.values())
        return self.redis.is_bound and self.redis.number >= self.stamp and not rebuilding

    def _take(self, taken: int, seen: int) -> int | None:
        if self.taken != taken:
            return None
        self.taken = taken + 1
        if seen < self.stamp:
            for row in self.rows.values():
                if row.stamp > seen:
                    row.todo = REBUILD
        return self.taken

    # Passes

    def carry(self) -> Steps:
        """From rows to Redis."""
        self.begun = True
        taken, stamp = self.taken, self.stamp
        waits = any(row.todo for row in self.rows.values())
        seen, was_bound = self.redis.number, self.redis.is_bound
        yield "read"
        if not waits and seen >= stamp:
            return
        number = self._take(taken, seen)
        yield "number taken"
        if number is None:
            return
        page = {id: replace(self.rows[id]) for id in self.page}
        self._check(page)
        yield "page read"
        if (self.redis.number, self.redis.is_bound) != (seen, was_bound):
            yield "carried"
            return
        self.now += 1
        for id, row in page.items():
            self._land(id, row)
        self.redis.number, self.redis.is_bound = number, True
        yield "carried"
        if self.taken == number:
            self._conclude(page, number)
        yield "stamped"

    def _check(self, page: Mapping[str, Row]) -> None:
        """New ones first; of those to be rebuilt the finished ones."""

        def place(row: Row) -> tuple[int, int]:
            return row.todo, -row.status if row.todo == REBUILD else 0

        left = [row for id, row in self.rows.items() if row.todo and id not in page]
        assert all(row.todo for row in page.values())
        if page and left:
            assert max(map(place, page.values())) <= min(map(place, left)), "the wrong page"

    def _conclude(self, page: Mapping[str, Row], number: int) -> None:
        for id, then in page.items():
            row = self.rows.get(id)
            if row and _life(row) == _life(then) and row.status == then.status:
                row.todo, row.stamp = NOTHING, number
        if page:
            self.stamp = number

    def _land(self, id: str, row: Row) -> None:
        """One row of a page arrives."""
        record = self.redis.records.get(id)
        last = record.next or record if record else None
        if record is None or last is None or last.generation < row.generation:
            self._create(id, row)
        elif last.generation > row.generation:
            self.mark(id)
        elif row.status != WAITING:
            if record.state != STATE[row.status]:
                self.redis.records[id] = Record(*_life(row), STATE[row.status])
        elif record.next and row.is_cancelled:
            self._create(id, row)
        else:
            last.revision = max(last.revision, row.revision)
            if record.state in STATUS:
                self.mark(id)
            elif row.is_cancelled and record.state == "running":
                record.cancel = True
            elif row.is_cancelled:
                record.state = "cancelled"
                self.mark(id)

    def _create(self, id: str, row: Row) -> None:
        """A task, in the place of any other; one that is to run follows one that runs."""
        state = STATE.get(row.status, "cancelled" if row.is_cancelled else "pending")
        made, old = Record(*_life(row), state), self.redis.records.get(id)
        if old and old.state == "running" and state == "pending":
            old.next, old.cancel = made, False
            return
        self.redis.records[id] = made
        if row.status == WAITING and row.is_cancelled:
            self.mark(id)

    def bring_back(self) -> Steps:
        """From Redis to rows."""
        self.begun = True
        taken, stamp = self.taken, self.stamp
        seen = self.redis.number
        has_dirty = bool(self.redis.dirty)
        yield "read"
        if seen < stamp or not has_dirty:
            return
        number = self._take(taken, seen)
        yield "number taken"
        if number is None:
            return
        found = {id: self.redis.dirty[id] for id in self.page}
        assert found.keys() <= self.redis.dirty.keys()
        records = {id: deepcopy(self.redis.records.get(id)) for id in found}
        is_same = (self.redis.number, self.redis.is_bound) == (seen, True)
        yield "dirty read"
        if not is_same:
            return
        is_last = self.taken == number
        if is_last:
            self._learn(records, number)
        yield "written"
        if not is_last:
            return
        self._forget_dirty(found, seen, number)
        yield "forgotten"

    def _learn(self, records: Mapping[str, Record | None], number: int) -> None:
        for id, record in records.items():
            row = self.rows.get(id)
            if record:
                self.stamp = number
            if row and record and record.generation > row.generation:
                row.is_cancelled, row.generation = False, record.generation
            elif row and record is None:
                row.todo = row.todo or RELAY
                continue
            elif not row or not record or _life(row) != _life(record) or row.status != WAITING:
                continue
            row.status = STATUS.get(record.state, WAITING)
            row.stamp = number

    def _forget_dirty(self, found: Mapping[str, int], seen: int, number: int) -> None:
        redis = self.redis
        if (redis.number, redis.is_bound) != (seen, True):
            return
        if any(redis.dirty.get(id, -1) < since for id, since in found.items()):
            return
        redis.number = number
        for id, since in found.items():
            if redis.dirty[id] == since:
                del redis.dirty[id]


def _life(of: Row | Record) -> tuple[int, int]:
    return of.generation, of.revision
