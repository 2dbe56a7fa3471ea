"""The ledger's protocol as a model: what rows, records and numbers become, step by step.

One row and one record for each task, one number on each side, and passes that stop where the real
ones do. `World` drives it beside the real thing, and compares the two after each act. The model is
told what chance or time decide there, such as which rows a pass takes, and checks that it may be.
"""

from collections.abc import Collection, Generator, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace

WAITING, SUCCEEDED, FAILED, CANCELLED = 1, 10, 20, 30
NOTHING, RELAY, REBUILD, TAKEN = 0, 1, 2, 3
STATUS = {"succeeded": SUCCEEDED, "failed": FAILED, "cancelled": CANCELLED}
PUT_OFF = -1
"""Of what is dirty: its row is locked, and it is read again."""
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
    call: str = ""
    """The arguments."""
    is_moved: bool = True
    """Whether its time was not carried yet."""
    is_far: bool = False
    """Whether that is later than the horizon."""
    was_far: bool = False
    """Whether it was when it was asked for."""

    @property
    def is_kept_back(self) -> bool:
        """Whether the relay leaves it alone until it comes near."""
        is_asked = self.status == WAITING and not self.is_cancelled
        return self.is_far and is_asked and self.todo == RELAY and self.stamp == 0

    @property
    def waits(self) -> bool:
        """Whether the relay is to take it."""
        return self.todo in {RELAY, REBUILD} and not self.is_kept_back


@dataclass(slots=True)
class Record:
    """What Redis knows of it."""

    generation: int
    revision: int
    state: str = "pending"
    token: str = ""
    cancel: bool = False
    """Whether no further attempt is to follow the one that runs."""
    rearm: bool = False
    """Whether it is to run once more after its run."""
    next: "Record | None" = None
    """Another life of the id, which is to follow the run of this one; it may have ended."""
    call: str = ""
    is_early: bool = False
    """Whether the pass that brings its row is still to come."""


@dataclass(slots=True)
class Redis:
    """All that Redis knows, and can lose a suffix of."""

    records: dict[str, Record] = field(default_factory=dict)
    dirty: dict[str, int] = field(default_factory=dict)
    """What rows are to learn, and when that changed last."""
    number: int = 0
    """Of the last pass that was seen here."""
    is_bound: bool = False
    unmarked: tuple[int, int] | None = None
    """What was lost, if some of these rows were locked: rows with a stamp between these numbers."""
    binding: int = 0
    """How often the two had been bound anew by then."""
    taken_ids: set[str] = field(default_factory=set)
    """Ids that tasks have which are not of the ledger."""

    @property
    def place(self) -> tuple[int, bool, int]:
        """What a batch compares: it was read a moment before."""
        return self.number, self.is_bound, self.binding


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
    binding: int = 0
    """How often the two were bound anew."""
    now: int = 0
    """How many scripts have run: each has a time of its own."""
    hidden: dict[str, Row] = field(default_factory=dict)
    """Rows that the database has not, as after a failover, and will have again."""
    page: Collection[str] = ()
    """The rows that the pass which is under way took, as the real one did."""
    locked: set[str] = field(default_factory=set)
    """The rows that a transaction of the application has locked."""

    # The application

    def insert(self, id: str, generation: int, call: str, *, is_far: bool = False) -> None:
        """A new row, also of an id whose row was deleted. When that is decides its generation."""
        self.rows[id] = Row(generation, call=call, is_far=is_far, was_far=is_far)

    def replace(self, id: str, generation: int, call: str) -> None:
        """A new task in the place of another."""
        row = self.rows[id]
        assert generation > row.generation
        row.generation, row.call, row.is_moved = generation, call, True
        row.is_cancelled, row.status = False, WAITING
        row.is_far = row.was_far = False
        self._wish(row)

    def _wish(self, row: Row) -> None:
        row.revision += 1
        row.todo = row.todo if row.todo == REBUILD else RELAY

    def want_cancel(self, id: str) -> int:
        if is_open := self._is_open(id):
            self.rows[id].is_cancelled = True
            self._wish(self.rows[id])
        return int(is_open)

    def move(self, id: str, *, is_far: bool = False) -> int:
        row = self.rows[id]
        if is_open := self._is_open(id):
            row.is_moved, row.is_far, row.was_far = True, is_far, is_far
            self._wish(row)
        return int(is_open)

    def come_near(self, id: str) -> None:
        """So much time has passed."""
        self.rows[id].is_far = False

    def erase(self, id: str, erased: str) -> int:
        row = self.rows[id]
        if row.status == WAITING or row.call == erased:
            return 0
        row.call = erased
        self._wish(row)
        return 1

    def touch(self, id: str) -> None:
        """Change what is not the time: the row is carried, and nothing is to come of it."""
        self.rows[id].revision += 1
        self.rows[id].todo = RELAY

    def _is_open(self, id: str) -> bool:
        return self.rows[id].status == WAITING and not self.rows[id].is_cancelled

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

    def note_met(self, id: str) -> None:
        """A listener met a task whose row wants something else."""
        if (row := self.rows.get(id)) and row.stamp == 0:
            row.stamp = 1

    def ask_again(self) -> None:
        """Rows that wait for their ids are relayed again."""
        for row in self.rows.values():
            if row.todo == TAKEN:
                row.todo = RELAY

    def rebind(self) -> None:
        """`ledger rebuild`: all but what is kept back is relayed again."""
        assert self.taken >= self.redis.number
        self.begun = True
        self.taken = self.taken + 1
        self.binding += 1
        self.redis.number, self.redis.is_bound, self.redis.binding = 0, True, self.binding
        self.redis.unmarked = None
        for row in self.rows.values():
            if row.stamp or not row.is_far or row.is_cancelled or row.status != WAITING:
                row.todo = REBUILD

    # Redis, whatever the ledger does

    def mark(self, id: str) -> None:
        self.redis.dirty[id] = self.now

    def claim(
        self, ids: Iterable[str], token: str, gate: int, *, far: Collection[str] = ()
    ) -> None:
        """A listener took these. Raises AssertionError if none may, or more could; `far` are not
        due for hours."""
        waiting = {id for id, record in self.redis.records.items() if record.state == "pending"}
        found = set(ids)
        waiting -= set(far)
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
            self.mark(id)
            return
        if record.rearm:
            self._begin_anew(id, record)
            return
        record.state = "cancelled" if record.cancel and state == "pending" else state
        record.cancel = False
        self.mark(id)

    def _begin_anew(self, id: str, record: Record) -> None:
        """A task runs once more, as Redis wants it."""
        record.generation += 1
        record.state, record.rearm, record.cancel = "pending", False, False
        self.mark(id)

    def forget(self) -> None:
        """The time is over for which finished tasks are kept."""
        records = self.redis.records
        for id in [id for id, record in records.items() if record.state in STATUS]:
            if id not in self.redis.dirty:
                del records[id]

    def revive(self, id: str) -> None:
        """`run_now`, or a raw SET, of a finished task."""
        self.now += 1
        self._begin_anew(id, self.redis.records[id])

    def set_timer(self, id: str) -> None:
        """A raw SET, which a listener heard of."""
        record = self.redis.records[id]
        if record.state in STATUS:
            self.revive(id)
        elif record.state == "running":
            record.rearm = True
        else:
            self.move_there(id)

    def move_there(self, id: str) -> None:
        """`Bridge.reschedule`."""
        self.now += 1
        record = self.redis.records[id]
        if record.state == "running":
            self._rearm(record)
        self.mark(id)

    def _rearm(self, record: Record) -> None:
        if record.next and record.next.state != "pending":
            record.next.generation += 1
            record.next.state = "pending"
        record.rearm, record.cancel = record.next is None, False

    def cancel_there(self, id: str) -> None:
        """`Bridge.cancel`."""
        self.now += 1
        self._cancel(id, self.redis.records[id])

    def _cancel(self, id: str, record: Record) -> None:
        if record.state != "running":
            record.state = "cancelled"
            self.mark(id)
            return
        record.cancel, record.rearm = True, False
        if record.next:
            record.next.state = "cancelled"

    # Numbers

    def fence(self) -> None:
        if self.begun:
            self.taken += 1

    def agrees(self) -> bool:
        """Whether a listener may open its gate: what is locked holds up only itself."""
        rebuilding = any(
            row.todo == REBUILD for id, row in self.rows.items() if id not in self.locked
        )
        return self.redis.is_bound and self.redis.number >= self.stamp and not rebuilding

    def _take(self, taken: int, stamp: int) -> int | None:
        if (self.taken, self.stamp) != (taken, stamp):
            return None
        self.taken = taken + 1
        return self.taken

    def _mark(self, after: int, before: int) -> tuple[int, int] | None:
        """Mark what was lost; returns the numbers if some of it is locked."""
        lost = {
            id for id, row in self.rows.items() if after < row.stamp < before and row.todo < REBUILD
        }
        for id in lost - self.locked:
            self.rows[id].todo = REBUILD
        return (after, before) if lost & self.locked else None

    def is_lost(self, id: str) -> bool:
        """Whether Redis lacks what the row knows."""
        row, unmarked = self.rows[id], self.redis.unmarked
        return row.todo == REBUILD or (
            unmarked is not None and unmarked[0] < row.stamp < unmarked[1]
        )

    # Passes

    def carry(self) -> Steps:
        """From rows to Redis."""
        self.begun = True
        taken, stamp = self.taken, self.stamp
        waits = any(row.waits for row in self.rows.values())
        seen, place = self.redis.number, self.redis.place
        unmarked = left = self.redis.unmarked
        yield "read"
        if not waits and seen >= stamp and not unmarked:
            return
        number = self._take(taken, stamp) if seen < stamp else None
        if number is not None:
            left = self._mark(min(seen, *(unmarked or (seen,))), number)
        elif seen >= stamp:
            left = self._mark(*unmarked) if unmarked else None
            number = self._take(taken, stamp) if self.page or left != unmarked else None
        if number is None:
            yield "number taken"
            return
        page = {id: replace(self.rows[id]) for id in self.page}
        self._check(page)
        yield "number taken"
        if self.redis.place != place:
            yield "carried"
            return
        self.now += 1
        taken_ids = self.redis.taken_ids & page.keys()
        for id, row in page.items():
            if id not in taken_ids:
                self._land(id, row)
        self.redis.number, self.redis.is_bound, self.redis.unmarked = number, True, left
        self.redis.binding = self.binding
        yield "carried"
        if self.taken == number:
            self._conclude(page, number, taken_ids)
        yield "stamped"

    def _check(self, page: Mapping[str, Row]) -> None:
        """New ones first; of those to be rebuilt the finished ones, and what is cancelled.

        What is locked may be left out.
        """

        def place(row: Row) -> tuple[int, bool]:
            is_to_run = row.status == WAITING and not row.is_cancelled
            return row.todo, row.todo == REBUILD and is_to_run

        there = self.rows.keys() - page.keys() - self.locked
        left = [self.rows[id] for id in there if self.rows[id].waits]
        assert all(row.waits for row in page.values())
        if page and left:
            assert max(map(place, page.values())) <= min(map(place, left)), "the wrong page"

    def _conclude(self, page: Mapping[str, Row], number: int, taken_ids: Collection[str]) -> None:
        for id, then in page.items():
            row = self.rows.get(id) if id not in self.locked else None
            if row is None or _life(row) != _life(then) or row.status != then.status:
                continue
            if id in taken_ids and then.was_far and then.stamp == 0:
                row.todo = TAKEN if row.todo in {RELAY, REBUILD} else row.todo
                continue
            row.todo, row.stamp, row.is_moved = NOTHING, number, False
            if id in taken_ids:
                row.status = FAILED
        if page:
            self.stamp = number

    def _land(self, id: str, row: Row) -> None:
        """One row of a page arrives."""
        record = self.redis.records.get(id)
        if record is None:
            self._create(id, row)
            return
        record.is_early = False
        last = record.next or record
        is_new = last.revision != row.revision
        if last.generation > row.generation:
            self.mark(id)
            if not is_new:
                return
        if last.generation < row.generation or last.call != row.call:
            self._succeed(id, row, record)
            return
        last.revision = row.revision
        if row.status == WAITING:
            self._follow(id, row, record, is_new=is_new)
        elif record.state not in {"running", STATE[row.status]}:
            self.redis.records[id] = Record(*_life(row), STATE[row.status], call=row.call)

    def _follow(self, id: str, row: Row, record: Record, *, is_new: bool) -> None:
        if record.state in STATUS:
            self.mark(id)
        if row.is_cancelled:
            if record.state not in STATUS:
                self._cancel(id, record)
        elif is_new and (row.is_moved or (row.todo == REBUILD and record.state != "pending")):
            if record.state == "running":
                self._rearm(record)
            else:
                record.state = "pending"
                self.mark(id)

    def _succeed(self, id: str, row: Row, record: Record) -> None:
        """Another life takes the place of the one that is here, or follows its run."""
        if record.state != "running":
            self._create(id, row)
            return
        record.next = Record(*_life(row), STATE.get(row.status, "pending"), call=row.call)
        record.rearm = record.cancel = False
        if row.status == WAITING and row.is_cancelled:
            self._cancel(id, record)

    def _create(self, id: str, row: Row) -> None:
        """A task, in the place of any other."""
        state = STATE.get(row.status, "cancelled" if row.is_cancelled else "pending")
        self.redis.records[id] = Record(*_life(row), state, call=row.call)
        if row.status == WAITING and row.is_cancelled:
            self.mark(id)

    # What comes before its pass

    def send_early(self, ids: Iterable[str], least: int | None) -> Steps:
        """New rows are sent if Redis has seen this pass; None: this relay knows of none."""
        if least is None:
            return
        rows = {id: replace(self.rows[id]) for id in ids if self._is_new(id)}
        yield "read"
        if not rows:
            return
        if self.redis.is_bound and self.redis.number >= least:
            self.now += 1
            for id, row in rows.items():
                if id not in self.redis.records:
                    self._create(id, row)
                    self.redis.records[id].is_early = True
        yield "sent"

    def _is_new(self, id: str) -> bool:
        row = self.rows.get(id)
        return row is not None and (
            (row.todo, row.stamp, row.status, row.is_cancelled) == (RELAY, 0, WAITING, False)
        )

    def awaits_its_row(self, id: str, *, has_waited: bool) -> bool | None:
        """Whether a claimed task without a row is put off; None if that has been for too long."""
        record = self.redis.records[id]
        if not record.is_early:
            return False
        if not has_waited or record.rearm:
            return True
        del self.redis.records[id]
        return None

    def hide(self, id: str) -> None:
        self.hidden[id] = self.rows.pop(id)

    def show(self, id: str) -> None:
        self.rows[id] = self.hidden.pop(id)

    def bring_back(self) -> Steps:
        """From Redis to rows."""
        self.begun = True
        taken, stamp = self.taken, self.stamp
        seen, binding = self.redis.number, self.binding
        has_dirty = bool(self.redis.dirty)
        yield "read"
        if seen < stamp or not has_dirty:
            return
        found = {id: self.redis.dirty[id] for id in self.page}
        assert found.keys() <= self.redis.dirty.keys()
        records = {id: deepcopy(self.redis.records.get(id)) for id in found}
        is_same = self.redis.place == (seen, True, binding)
        yield "dirty read"
        if not is_same or not found:
            return
        number = self._take(taken, stamp)
        again = self.locked & records.keys()
        if number is not None:
            self._learn(records, number)
        yield "written"
        if number is None:
            return
        self._forget_dirty(found, again, (seen, True, binding), number)
        yield "forgotten"

    def _learn(self, records: Mapping[str, Record | None], number: int) -> None:
        for id, record in records.items():
            row = self.rows.get(id) if id not in self.locked else None
            if record:
                self.stamp = number
            if row and record is None:
                row.todo = row.todo or RELAY
            elif row and record:
                self._learn_one(row, record, number)

    def _learn_one(self, row: Row, record: Record, number: int) -> None:
        if row.revision != record.revision or row.generation > record.generation:
            return  # it wants something that is not carried yet
        status, is_later = STATUS.get(record.state, WAITING), row.generation < record.generation
        if not is_later and row.status != WAITING:
            if record.state != "running" and row.status != status:
                row.todo = row.todo or RELAY
            return
        if is_later and status == WAITING and not record.cancel:
            row.is_cancelled = False
        row.generation, row.status, row.stamp = record.generation, status, number
        row.is_moved = row.is_moved and status != WAITING

    def _forget_dirty(
        self,
        found: Mapping[str, int],
        again: Collection[str],
        place: tuple[int, bool, int],
        number: int,
    ) -> None:
        redis = self.redis
        if redis.place != place:
            return
        if any(redis.dirty.get(id, -1) < since for id, since in found.items()):
            return
        redis.number = number
        for id, since in found.items():
            if redis.dirty[id] == since and id not in again:
                del redis.dirty[id]
            elif redis.dirty[id] == since:
                redis.dirty[id] = PUT_OFF


def _life(of: Row | Record) -> tuple[int, int]:
    return of.generation, of.revision
