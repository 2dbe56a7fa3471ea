"""Runs operations, raw edits, claims and deaths in any order, on a real server and on the model."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import redis
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from expirebridge import Change, Outcome, State
from expirebridge.connection import clients
from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls import claiming, editing, producing, reconciling
from expirebridge.task.calls.call import Argument, Command, When
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.calls.reconciling import Adoption, EventKind
from expirebridge.task.keys import TriggerKey, parse_key
from expirebridge.task.operations.editing import EDITABLE
from tests.machine.model import LIMITED, NEVER, Decision, Model, New, foreign_id
from tests.machine.promise import ANY_TIME, Promise
from tests.machine.world import World

T = TypeVar("T")

# Sixty seconds are the step of the model's clock; half a lease falls between two steps, so that the
# few milliseconds that really pass decide nothing.
STEP = 60
WINDOW = 2.5 * STEP
SETTINGS = Settings(lease=150, keep_succeeded=600, keep_failed=1200)

IDS = ("a", "b")
CALLS = ("mail.send?[1]", "mail.send?[2]", f"{LIMITED}?[1]")
LIMITS = [(f"f {LIMITED}", f'[["{LIMITED}"]]'.encode()), (f"l {LIMITED}", b'{"most":1}')]
ROWS = (
    "make, reject", "make, keep", "make, throttled", "make, replace", "make, extend", "watch",
    "beat", "cancel", "reschedule", "put off", "run_now", "pause", "resume", "edit",
    "raw SET PX", "raw SET", "raw EXPIRE later", "raw EXPIRE sooner", "raw PERSIST", "raw DEL",
    "raw RENAME",
)  # fmt: skip
COLUMNS = ("absent", *State)
ENDS = {State.RUNNING, State.SUCCEEDED, State.FAILED}
EXPIRED = {EventKind.EXPIRED, EventKind.EXPIRED_IN_LEDGER}

any_call = st.sampled_from(CALLS)
any_tags = st.sampled_from(["", "t", "t u"])
ids = st.integers(0, 4)
names = st.integers(0, 7)
windows = st.sampled_from([STEP / 2, WINDOW])
limits = st.sampled_from([None, None, STEP, 4 * STEP])
delays = st.sampled_from([0, 0, STEP, 2 * STEP, 5 * STEP])


def said(answer: object) -> object:
    """What an answer says, without the moment at which it was given."""
    if isinstance(answer, list):
        return [said(one) for one in answer]
    return answer.outcome if isinstance(answer, producing.MakeReply) else answer


@dataclass
class Claimed:
    """One run that a listener was given."""

    id: str
    token: str


@dataclass
class Life:
    """A listener: what it believes to hold."""

    name: str
    held: list[Claimed] = field(default_factory=list)


class Machine(RuleBasedStateMachine):
    """One database, from empty to the end of all its tasks."""

    url: ClassVar[str]
    hits: ClassVar[Counter[tuple[str, str]]]
    aims: ClassVar[list[tuple[str, str]]]
    """Cells of the table: each life begins with one of them."""
    awaited: ClassVar[Mapping[str, str]] = {}
    """By call: the function that a signal runs instead."""

    def __init__(self) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(self.url)
        self.client.flushall()
        self.store = Store(clients.producer_client(self.url), prefix="expirebridge")
        self.model = Model(SETTINGS)
        self.world = World(self.client, self.model)
        self.promise = Promise()
        self.listeners = [Life("one"), Life("two")]
        self.runs: list[Claimed] = []
        self.edited: set[str] = set()
        self.tokens = 0

    def teardown(self) -> None:
        """Let everything come to its end: what is owed must have been started by then."""
        try:
            # Not after a failure, nor on a machine that stood still.
            if sys.exception() is None and self.world.elapsed() < STEP / 3:
                self._run_to_the_end()
        finally:
            self.store.close()
            self.client.close()

    # What the rules are made of

    def run(self, call: Command[T], *, twice: bool = False) -> T:
        """Send a call; if `twice`, then again, as if its reply had been lost."""
        answer = self.store.run(call)
        if twice:
            assert said(self.store.run(call)) == said(answer)
        return answer

    @invariant()
    def holds(self) -> None:
        # On a machine that stood still, time has passed that the model knows nothing of.
        assume(self.world.elapsed() < STEP / 3)
        self.world.check(self.edited)

    def known_ids(self) -> list[str]:
        return list(dict.fromkeys([*sorted(self.model.tasks), *IDS, "c"]))

    def known_names(self) -> list[str]:
        usual = [f"{id}:?{call}" for id in IDS for call in CALLS]
        known = [task.key for _, task in sorted(self.model.tasks.items())]
        return list(dict.fromkeys([*known, *usual, *sorted(self.model.timers)]))

    def id_for(self, row: str, pick: int) -> str:
        """The id that an operation of this row of the table is about to meet."""
        known = self.known_ids()
        id = known[pick % len(known)]
        self.hit(row, id)
        return id

    def name_of(self, pick: int) -> str:
        known = self.known_names()
        return known[pick % len(known)]

    def hit(self, row: str, id: str | None) -> State | None:
        """Count a cell of the table: this operation met a task in that state."""
        state = self.model.state_of(id) if id is not None else None
        self.hits[row, state or "absent"] += 1
        return state

    @contextmanager
    def _taking_over(self) -> Iterator[None]:
        """A foreign task may make way for one of a producer's with the same key: it is replaced."""
        before = {id: task for id, task in self.model.tasks.items() if not task.state.finished}
        yield
        for id in before.keys() - self.model.tasks.keys():
            assert id == foreign_id(before[id].key)
            assert self.model.owner_of(before[id].key)
            self.promise.debts.pop(id, None)

    @initialize(data=st.data(), other=st.sampled_from(COLUMNS[::-1]))
    def begin(self, data: st.DataObject, other: str) -> None:
        """Bring each id into some state, and meet one cell of the table, so that none is rare."""
        self.run(declare_limits("11", LIMITS))
        row, state = data.draw(st.sampled_from(self.aims))
        self._bring("a", state)
        self._bring("b", other)
        self._meet(row)

    def _bring(self, id: str, state: str) -> None:
        if state == State.WAITING:
            self._bring_to_wait(id)
        elif state != "absent":
            delay = 0 if state in ENDS else STEP
            self._make(id, CALLS[0], delay, "t", "reject", ttl=2 * STEP)
        if state in ENDS:
            self._claim(self.listeners[0], places=1, idle=True)
            if state != State.RUNNING:
                self._settle(self.runs[-1], state)
        if state == State.PAUSED:
            self._pause(id)
        if state == State.CANCELLED:
            self._cancel(id)

    def _bring_to_wait(self, id: str) -> None:
        """Another one runs, so that this one waits."""
        for other in (["c"] if "c" not in self.model.tasks else []) + [id]:
            self._make(other, f"{LIMITED}?[1]", 0, "t", "reject", ttl=2 * STEP)
            self._claim(self.listeners[0], places=1, idle=True)

    def _meet(self, row: str) -> None:
        """Do what stands in this row of the table to the first id."""
        call = self.model.tasks["a"].call if "a" in self.model.tasks else CALLS[0]
        id, name = self.known_ids().index("a"), self.known_names().index(f"a:?{call}")
        self._operations(id, name, call)[row]()

    def _operations(self, id: int, name: int, call: str) -> dict[str, Callable[[], None]]:
        """By row of the table: what is done to the task at this place, or its key."""
        return {
            "make, reject": lambda: self.make_or_reject(id, CALLS[1], STEP, "u", twice=False),
            "make, keep": lambda: self.make_or_keep(id, CALLS[1], STEP, "u", twice=False),
            "make, throttled": lambda: self.make_throttled(id, CALLS[1], STEP, WINDOW, twice=False),
            "make, replace": lambda: self.make_or_replace(id, CALLS[1], STEP, "u", twice=False),
            "make, extend": lambda: self.make_or_extend(id, CALLS[1], STEP, "u", twice=False),
            "watch": lambda: self.watch(id, call, STEP, twice=False),
            "beat": lambda: self.beat(id, twice=False),
            "cancel": lambda: self.cancel(id, twice=False),
            "reschedule": lambda: self.reschedule(id, STEP, twice=False),
            "put off": lambda: self.put_off(id, STEP, twice=False),
            "run_now": lambda: self.run_now(id, twice=False),
            "pause": lambda: self.pause(id, twice=False),
            "resume": lambda: self.resume(id, twice=False),
            "edit": lambda: self.edit_arguments(id, "[2]", twice=False),
            "raw SET PX": lambda: self.raw_set_with_an_end(name, STEP),
            "raw SET": lambda: self.raw_set_without_an_end(name),
            "raw EXPIRE later": lambda: self.raw_expire_later(name, STEP),
            "raw EXPIRE sooner": lambda: self.raw_expire_sooner(name),
            "raw PERSIST": lambda: self.raw_persist(name),
            "raw DEL": lambda: self.raw_delete(name),
            "raw RENAME": lambda: self.raw_rename(name),
        }

    # Producers

    @rule(pick=ids, call=any_call, delay=delays, tags=any_tags, twice=st.booleans())
    def make_or_reject(self, pick: int, call: str, delay: int, tags: str, twice: bool) -> None:
        self._make(self.id_for("make, reject", pick), call, delay, tags, "reject", twice=twice)

    @rule(pick=ids, call=any_call, delay=delays, tags=any_tags, twice=st.booleans())
    def make_or_keep(self, pick: int, call: str, delay: int, tags: str, twice: bool) -> None:
        self._make(self.id_for("make, keep", pick), call, delay, tags, "keep", twice=twice)

    @rule(pick=ids, call=any_call, delay=delays, window=windows, twice=st.booleans())
    def make_throttled(self, pick: int, call: str, delay: int, window: float, twice: bool) -> None:
        id = self.id_for("make, throttled", pick)
        self._make(id, call, delay, "", "keep", twice=twice, window=window)

    @rule(
        pick=ids, call=any_call, delay=delays, tags=any_tags, twice=st.booleans(), limit=limits
    )  # fmt: skip
    def make_or_replace(
        self, pick: int, call: str, delay: int, tags: str, twice: bool, limit: int | None = None
    ) -> None:
        id = self.id_for("make, replace", pick)
        self._make(id, call, delay, tags, "replace", twice=twice, limit=limit)

    @rule(
        pick=ids, call=any_call, delay=delays, tags=any_tags, twice=st.booleans(), limit=limits
    )  # fmt: skip
    def make_or_extend(
        self, pick: int, call: str, delay: int, tags: str, twice: bool, limit: int | None = None
    ) -> None:
        id = self.id_for("make, extend", pick)
        self._make(id, call, delay, tags, "extend", twice=twice, limit=limit)

    def _make(
        self, id: str, call: str, delay: int, tags: str, if_exists: str, *, twice: bool = False,
        ttl: int | None = None, limit: int | None = None, window: float | None = None,
    ) -> None:  # fmt: skip
        delay = delay if limit is None else min(delay, limit)
        due = self.model.now + delay
        fields: dict[str, Argument] = {"tags": tags} if tags else {}
        if ttl is not None:
            fields["ttl"] = ttl * 1000
        if limit is not None:
            fields["max_wait"] = limit * 1000
        if window is not None:
            fields["window"] = round(window * 1000)
        on_signal = self.awaited.get(call)
        if on_signal is not None:
            fields["on_signal"] = on_signal
        new = producing.NewTask(
            id=id, has_random_id=False, if_exists=if_exists, call=call.encode(),
            when=When(delay * 1000, relative=True), fields=fields,
        )  # fmt: skip
        [made] = self.run(producing.make([new]), twice=twice)
        with self._taking_over():
            wanted = New(
                call, due, frozenset(tags.split()), ttl, limit, window,
                decision=Decision(on_signal),
            )  # fmt: skip
            expected = self.model.make(id, wanted, if_exists)
        assert made.outcome is expected
        if made.outcome not in {Outcome.KEPT, Outcome.REJECTED}:
            if limit is not None:
                due = min(due, self.model.now + (made.due - made.now) / 1000)
            self.promise.acknowledged(id, due)

    @rule(pick=ids, call=any_call, ttl=st.sampled_from([STEP, 3 * STEP]), twice=st.booleans())
    def watch(self, pick: int, call: str, ttl: int, twice: bool) -> None:
        self._make(self.id_for("watch", pick), call, ttl, "", "extend", twice=twice, ttl=ttl)

    @rule(pick=ids, twice=st.booleans())
    def beat(self, pick: int, twice: bool) -> None:
        id = self.id_for("beat", pick)
        change = self.run(producing.beat(id), twice=twice)
        assert change is self.model.beat(id)
        if change in {Change.MOVED, Change.REARMED}:
            task = self.model.tasks[id]
            ttl = (task.run.replacement or task).ttl
            assert ttl is not None
            self.promise.acknowledged(id, self.model.now + ttl)

    @rule(pick=ids, twice=st.booleans())
    def cancel(self, pick: int, twice: bool) -> None:
        id = self.id_for("cancel", pick)
        self._cancel(id, twice=twice)

    def _cancel(self, id: str, *, twice: bool = False) -> None:
        [change] = self.run(producing.cancel([id], keep=SETTINGS.keep_succeeded), twice=twice)
        assert change is self.model.cancel(id)
        if change in {Change.CANCELLED, Change.RUNNING}:
            self.promise.excused(id)

    @rule(pick=ids, delay=delays, twice=st.booleans())
    def reschedule(self, pick: int, delay: int, twice: bool) -> None:
        id, due = self.id_for("reschedule", pick), self.model.now + delay
        when = When(delay * 1000, relative=True)
        change = self.run(producing.reschedule(id, when), twice=twice)
        assert change is self.model.reschedule(id, due)
        if change in {Change.MOVED, Change.REARMED}:
            self.promise.acknowledged(id, due)

    @rule(pick=ids, seconds=st.sampled_from([STEP, 4 * STEP]), twice=st.booleans())
    def put_off(self, pick: int, seconds: int, twice: bool) -> None:
        id = self.id_for("put off", pick)
        [change] = self.run(producing.put_off([id], seconds), twice=twice)
        assert change is self.model.put_off(id, seconds)
        task = self.model.tasks.get(id)
        if change is Change.MOVED and task is not None:
            if task.state is State.PAUSED:
                self.promise.paused(id, self.model.now)
                self.promise.put_off(id, seconds)
            else:
                self.promise.acknowledged(id, task.look_at)

    @rule(pick=ids, twice=st.booleans())
    def run_now(self, pick: int, twice: bool) -> None:
        self._run_now(self.id_for("run_now", pick), twice=twice)

    def _run_now(self, id: str, *, twice: bool = False) -> None:
        change = self.run(producing.run_now(id), twice=twice)
        assert change is self.model.run_now(id)
        if change is Change.DUE_NOW:
            self.promise.acknowledged(id, self.model.now)

    @rule(pick=ids, twice=st.booleans())
    def pause(self, pick: int, twice: bool) -> None:
        id = self.id_for("pause", pick)
        self._pause(id, twice=twice)

    def _pause(self, id: str, *, twice: bool = False) -> None:
        [change] = self.run(producing.pause([id]), twice=twice)
        assert change is self.model.pause(id)
        if change is Change.PAUSED:
            self.promise.paused(id, self.model.now)

    @rule(pick=ids, twice=st.booleans())
    def resume(self, pick: int, twice: bool) -> None:
        id = self.id_for("resume", pick)
        [change] = self.run(producing.resume([id]), twice=twice)
        assert change is self.model.resume(id)
        if change is Change.RESUMED:
            self.promise.resumed(id, self.model.now)

    @rule(pick=ids, args=st.sampled_from(["[1]", "[2]"]), twice=st.booleans())
    def edit_arguments(self, pick: int, args: str, twice: bool) -> None:
        id = self.id_for("edit", pick)
        found = self.run(editing.read_task(id))
        before = found if found is not None and found.task.state in EDITABLE else None
        was = self.model.tasks[id].key if id in self.model.tasks else ""
        change = self.run(editing.edit(id, before, args.encode()), twice=twice)
        with self._taking_over():
            assert change is self.model.edit(id, args)
        if was in self.edited:
            self.edited.add(self.model.tasks[id].key)

    # Other clients, with plain commands

    def edit(self, row: str, pick: int) -> tuple[str, str | None]:
        """The name of a key to be edited, and the id of the task whose key it is."""
        name = self.name_of(pick)
        owner = self.model.owner_of(name)
        self.hit(row, owner)
        return name, owner

    @rule(pick=names, delay=st.sampled_from([STEP, 3 * STEP]))
    def raw_set_with_an_end(self, pick: int, delay: int) -> None:
        name, owner = self.edit("raw SET PX", pick)
        end = self.model.now + delay
        self.client.set(name, "", px=delay * 1000)
        self.model.raw_set(name, end)
        self._edited(name, owner, end)

    @rule(pick=names)
    def raw_set_without_an_end(self, pick: int) -> None:
        name, owner = self.edit("raw SET", pick)
        self.client.set(name, "")
        self.model.raw_set(name, NEVER)
        self._edited(name, owner, self.model.now)

    @rule(pick=names, delay=st.sampled_from([STEP, 3 * STEP]))
    def raw_expire_later(self, pick: int, delay: int) -> None:
        name, owner = self.edit("raw EXPIRE later", pick)
        before = self.model.timers.get(name, NEVER)
        self._expire(name, owner, (self.model.now if before == NEVER else before) + delay)

    @rule(pick=names)
    def raw_expire_sooner(self, pick: int) -> None:
        name, owner = self.edit("raw EXPIRE sooner", pick)
        self._expire(name, owner, self.model.now + STEP)

    def _expire(self, name: str, owner: str | None, end: float) -> None:
        answer = self.client.pexpire(name, round((end - self.model.now) * 1000))
        assert answer == self.model.raw_expire(name, end)
        if answer:
            self._edited(name, owner, end)

    @rule(pick=names)
    def raw_persist(self, pick: int) -> None:
        name, owner = self.edit("raw PERSIST", pick)
        answer = self.client.persist(name)
        assert answer == self.model.raw_persist(name)
        if answer:
            self._edited(name, owner, self.model.now)

    def _edited(self, name: str, owner: str | None, end: float) -> None:
        self.edited.add(name)
        if owner is not None:
            self.promise.edited(owner, end)

    @rule(pick=names)
    def raw_delete(self, pick: int) -> None:
        name, owner = self.edit("raw DEL", pick)
        answer = self.client.delete(name)
        assert answer == self.model.raw_delete(name)
        self._taken_away(name, owner)

    @rule(pick=names)
    def raw_rename(self, pick: int) -> None:
        name, owner = self.edit("raw RENAME", pick)
        other = f"copy:?{name.partition(':?')[2]}"
        there = self.model.raw_rename(name, other)
        assert there == bool(self.client.exists(name))
        if there:
            self.client.rename(name, other)
            self._edited(other, self.model.owner_of(other), self.model.now)
        self._taken_away(name, owner)

    def _taken_away(self, name: str, owner: str | None) -> None:
        self.edited.add(name)
        if owner is not None:
            self.promise.doubted(owner)

    # Listeners

    @rule(pick=names, heard=st.sampled_from(EventKind))
    def hear(self, pick: int, heard: EventKind) -> None:
        """An event comes: a true one, a late one, or a forged one."""
        self._adopt(self.name_of(pick), heard)

    def _adopt(self, name: str, heard: EventKind) -> None:
        key = parse_key(name.encode())
        assert isinstance(key, TriggerKey)
        hint = reconciling.KeyEvent.of(key, name.encode(), heard)
        [code] = self.run(reconciling.adopt([hint], SETTINGS))
        there = name in self.model.timers
        expected, id = self.model.hear(name, heard)
        assert code is expected, (name, heard, id, self.model.tasks, self.model.timers)
        after = self.model.state_of(id)
        if code is Adoption.ADOPTED:
            self.edited.add(name)
            due = self.model.timers.get(name, self.model.now)
            self.promise.acknowledged(id, due)
        elif after is State.CANCELLED:
            self.promise.excused(id)
        elif heard in EXPIRED and not there and after is State.PENDING:
            self.promise.edited(id, ANY_TIME)

    @rule()
    def scan(self) -> None:
        cursor, found = "", list[bytes]()
        while cursor != "0":
            page = self.run(reconciling.scan(cursor or "0", 10))
            cursor = page.cursor
            found += page.found
        assert {name.decode() for name in found} == self.model.scan()
        for name in dict.fromkeys(found):
            self._adopt(name.decode(), EventKind.LIVE)

    @rule(
        who=st.sampled_from([0, 1]), places=st.sampled_from([1, 2, 100, 100]),
        busy=st.booleans(), twice=st.booleans(),
    )  # fmt: skip
    def claim(self, who: int, places: int, busy: bool, twice: bool) -> None:
        self._claim(self.listeners[who], places=places, idle=not busy, twice=twice)

    def _claim(self, listener: Life, *, places: int, idle: bool, twice: bool = False) -> None:
        self.tokens += 1
        token = f"token-{self.tokens}"
        order = self.world.order(State.PENDING)
        call = claiming.claim(token, SETTINGS, places=places, idle=idle)
        claimed = self.run(call)
        ids = [task.id for task in claimed.tasks]
        assert ids == self.model.claim(token, order, places=places, idle=idle)
        if twice and ids:
            again = self.run(claiming.resent(call))
            assert sorted(task.id for task in again.tasks) == sorted(ids)
        for task in claimed.tasks:
            self._started(task)
            run = Claimed(task.id, token)
            listener.held.append(run)
            self.runs.append(run)

    def _started(self, task: ClaimedTask) -> None:
        self.promise.started(task.id, self.model.now)
        assert task.attempt == self.model.tasks[task.id].run.attempt

    @precondition(lambda self: self.runs)
    @rule(
        back=st.integers(0, 5), delay=delays, twice=st.booleans(),
        outcome=st.sampled_from(["succeeded", "failed", "retry", "snoozed", "released", "unknown"]),
    )  # fmt: skip
    def settle(self, back: int, delay: int, outcome: str, twice: bool) -> None:
        """A run ends: one of the latest, or one that is long over, of a silent listener."""
        self._settle(self.runs[-1 - back % len(self.runs)], outcome, delay, twice=twice)

    def _settle(self, run: Claimed, outcome: str, delay: int = 0, *, twice: bool = False) -> None:
        valid = self.model.holds(run.id, run.token)
        settlement = Settlement(run.id, run.token, outcome, delay, "")
        [answer] = self.run(claiming.settle([settlement], SETTINGS), twice=twice)
        with self._taking_over():
            assert answer is self.model.settle(run.id, run.token, outcome, delay)
        assert answer is Settled.DONE or not valid
        for listener in self.listeners:
            listener.held = [held for held in listener.held if held != run]
        if not valid:
            return
        if self.model.state_of(run.id) is State.PENDING:
            due = self.model.now + delay if delay or outcome != "released" else ANY_TIME
            self.promise.to_run_again(run.id, run.token, due)
        self.promise.settled.add((run.id, run.token))

    @precondition(lambda self: self.runs)
    @rule(
        back=st.integers(0, 5), pick=ids, call=any_call, delay=delays, twice=st.booleans(),
        if_exists=st.sampled_from(["reject", "keep", "replace", "extend"]),
    )  # fmt: skip
    def settle_then(
        self, back: int, pick: int, call: str, delay: int, if_exists: str, twice: bool
    ) -> None:
        """A run ends well, and has a follow-up, whose id may be that of a task, or its own."""
        run = self.runs[-1 - back % len(self.runs)]
        id = self.known_ids()[pick % len(self.known_ids())]
        valid = self.model.holds(run.id, run.token)
        new = producing.NewTask(
            id=id, has_random_id=False, if_exists=if_exists, call=call.encode(),
            when=When(delay * 1000, relative=True), fields={},
        )  # fmt: skip
        settlement = Settlement(run.id, run.token, "succeeded", then=new)
        [answer] = self.run(claiming.settle_then([settlement], SETTINGS), twice=twice)
        due = self.model.now + delay
        with self._taking_over():
            code, made = self.model.settle_then(
                run.id, run.token, id, New(call, due, frozenset()), if_exists
            )
        assert answer.code is code
        if made is Outcome.REJECTED or not valid:
            return
        if made is not Outcome.KEPT:
            self.promise.acknowledged(id, due)
        for listener in self.listeners:
            listener.held = [held for held in listener.held if held != run]
        if self.model.state_of(run.id) is State.PENDING and id != run.id:
            self.promise.to_run_again(run.id, run.token, ANY_TIME)
        self.promise.settled.add((run.id, run.token))

    @rule(who=st.sampled_from([0, 1]))
    def heartbeat(self, who: int) -> None:
        self._heartbeat(self.listeners[who])

    def _heartbeat(self, listener: Life) -> None:
        held = [(run.id, run.token) for run in listener.held]
        beat = self.run(claiming.heartbeat(listener.name, SETTINGS.lease, held, code="c0de"))
        assert (beat.gap, beat.lost, beat.cancelled) == self.model.heartbeat(held)

    @rule(who=st.sampled_from([0, 1]))
    def die(self, who: int) -> None:
        """A listener is killed: what it held is neither renewed nor, in time, settled."""
        self.listeners[who] = Life(self.listeners[who].name)

    @rule(who=st.sampled_from([0, 1]))
    def live_on(self, who: int) -> None:
        """One listener beats for longer than a lease, so that the other's leases run out."""
        for _ in range(3):
            self.world.advance(STEP)
            self._heartbeat(self.listeners[who])

    @rule()
    def sweep(self) -> None:
        self._sweep()

    def _sweep(self) -> None:
        tokens = {id: task.run.token for id, task in self.model.tasks.items()}
        # One that lapses first may be replaced by what another one becomes; one that runs may not.
        first = self.world.order(State.RUNNING)
        swept = self.run(reconciling.sweep(SETTINGS))
        with self._taking_over():
            assert (set(swept.lapsed), set(swept.failed)) == self.model.sweep(first)
        for id in swept.lapsed:
            if id in self.model.tasks:
                self.promise.to_run_again(id, tokens[id] or "")

    @rule(seconds=st.sampled_from([STEP, STEP, 3 * STEP, 6 * STEP, 15 * STEP, 90_000]))
    def wait(self, seconds: int) -> None:
        self.world.advance(seconds)

    # The end

    def _run_to_the_end(self) -> None:
        for _ in range(30):
            for id in self._in(State.PAUSED):
                self.run(producing.resume([id]))
                self.model.resume(id)
                self.promise.resumed(id, self.model.now)
            for run in [Claimed(id, self._token(id)) for id in self._in(State.RUNNING)]:
                self._settle(run, "succeeded")
            if all(task.state.finished for task in self.model.tasks.values()):
                break
            self.world.advance(10 * STEP)
            self._heartbeat(self.listeners[0])
            self._claim(self.listeners[0], places=100, idle=True)
        assert all(task.state.finished for task in self.model.tasks.values())
        assert not self.promise.outstanding(), (self.promise, self.model.tasks)
        self.holds()

    def _in(self, state: State) -> list[str]:
        return [id for id, task in self.model.tasks.items() if task.state is state]

    def _token(self, id: str) -> str:
        token = self.model.tasks[id].run.token
        assert token is not None
        return token


def machine_for(
    url: str, hits: Counter[tuple[str, str]], aims: list[tuple[str, str]]
) -> type[Machine]:
    """The machine on one server, counting the cells that it meets."""
    return type("MachineOn", (Machine,), {"url": url, "hits": hits, "aims": aims})
