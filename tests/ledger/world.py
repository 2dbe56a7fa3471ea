"""Random histories of a ledger and a server: relays that stall, a server that loses what it saw.

Real rows, a real server, the real passes. When all is quiet, every committed task that was not
cancelled ran, what the ledger knew as done or cancelled never started afterwards, what completes in
its transaction did so once, and each row says what happened. With a model beside it, rows, records
and numbers are compared after each act.
"""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, select, update

from expirebridge import Change
from expirebridge.errors import CompletionRefused, LedgerError
from expirebridge.ledger import Ledger, complete
from expirebridge.ledger import calls as ledger_calls
from expirebridge.ledger.calls import Lost
from expirebridge.ledger.early_sends import EarlySends
from expirebridge.ledger.relay import BatchSteps, Relay
from expirebridge.ledger.relay_statements import RelayState, RowBatch
from expirebridge.ledger.relay_store import RelayStore
from expirebridge.ledger.row_check import decide
from expirebridge.ledger.rows import DesiredState, RowVersion, Status, SyncState
from expirebridge.settings import Settings
from expirebridge.task import keys
from expirebridge.task.calls import claiming, producing, reconciling
from expirebridge.task.calls.call import When
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.producing import NewTask
from expirebridge.task.calls.reconciling import EventKind
from tests.kit.ledgers import LedgerHarness, Snapshot, restore, snapshot
from tests.ledger.model import STATUS, Model, Redis, Steps

SETTINGS = Settings()
PREFIX = "expirebridge"
KEPT = 40
HORIZON, NEAR, FAR = 7200.0, "1h", "5h"
FEW = 3
"""Tasks that are asked much of at once."""
HOUR = 3_600_000
WISHES: Final = ("cancel", "reschedule", "replace", "erase")
FINISHED = ("succeeded", "failed", "cancelled")
ERASED = keys.ERASED.decode()


class Run(NamedTuple):
    """A handler at work."""

    id: str
    token: str
    version: RowVersion
    args: str
    link: int
    """What the server had lost by then, counted."""


class Watched(RelayStore):
    """Says which rows the last pass took: of those that are alike, the database chooses."""

    taken: tuple[str, ...] = ()

    def begin_batch(
        self, expected: RelayState, *, seen: int, unmarked: Lost | None = None
    ) -> RowBatch | None:
        page = super().begin_batch(expected, seen=seen, unmarked=unmarked)
        self.taken = tuple(row.id for row in page.rows) if page else ()
        return page


class World:
    """One ledger, one server, two relays and two listeners; what is in `out` is left out."""

    def __init__(
        self,
        harness: LedgerHarness,
        client: Any,
        seed: int,
        out: frozenset[str] = frozenset(),
        model: Model | None = None,
        *,
        is_calm: bool = False,
        sends_early: bool = False,
    ) -> None:
        self.harness, self.client, self.out = harness, client, out
        self.is_calm = is_calm
        """Whether nothing is lost or killed, and much is asked of few tasks."""
        self.sends_early = sends_early
        """Whether rows are sent before their passes, and lost to the database for a while."""
        self.sends: list[Iterator[None]] = []
        """What is being sent."""
        self.hidden: dict[str, dict[str, Any]] = {}
        """Rows that the database will have again."""
        self.pages_under_way: dict[int, tuple[str, ...]] = {}
        self.model = model
        self.store = harness.store
        self.has_horizon = harness.horizon is not None
        self.pages = harness.rows = Watched(
            harness.engine, harness.made, name=harness.name, horizon=harness.horizon
        )
        self.random = random.Random(seed)  # noqa: S311 - to be repeated
        self.ledger = Ledger(tables=harness.made)
        self.sender = self.harness.relay()
        self.early_sends = EarlySends(self.sender, self.pages, lambda: harness.store)
        self.relays = [self.relay(self.sender), self.relay(self.harness.relay())]
        self.past = [self.remembered()]
        self.link = 0
        self.checked: dict[int, tuple[int, int, Lost | None]] = {}
        self.fenced: dict[int, int] = {}
        self.running: list[Run] = []
        self.made = 0
        self.starts: set[tuple[str, int]] = set()
        """What ran: its id and its generation."""
        self.deleted: list[str] = []
        """Ids whose rows were deleted."""
        self.effects: set[tuple[str, int]] = set()
        """What completed in its transaction: its id and its generation."""
        self.done_known: set[tuple[str, int]] = set()
        self.cancel_known: set[tuple[str, int]] = set()
        self.moved_there: set[str] = set()
        """Ids that were given another time in Redis, of which their rows may not know yet."""
        self.cancelled_there: set[str] = set()
        """Ids that were cancelled in Redis."""
        self.bad: list[str] = []
        self.locked: set[str] = set()
        """The rows that a transaction of the application has locked."""
        has_row_locks = harness.engine.dialect.name != "sqlite"
        # In MariaDB a stricter transaction also locks what lies between rows, also for inserts.
        reads = harness.engine.execution_options(isolation_level="READ COMMITTED")
        self.locking = reads.connect() if has_row_locks else None
        """The connection of that transaction."""

    # The server's past

    def remembered(self) -> tuple[Snapshot, Redis | None]:
        return snapshot(self.client), deepcopy(self.model.redis) if self.model else None

    def save(self) -> None:
        self.past = [*self.past, self.remembered()][-KEPT:]

    def lose(self) -> None:
        back = self.random.randrange(1, min(len(self.past), 12) + 1)
        self.past = self.past[: len(self.past) - back + 1]
        past, redis = self.past[-1]
        restore(self.client, past)
        if self.model and redis:
            self.model.redis = deepcopy(redis)
        self.link += 1

    def empty(self) -> None:
        self.client.flushdb()
        if self.model:
            self.model.redis = Redis()
        self.save()
        self.link += 1

    # The application

    def insert(self, *, is_far: bool = False) -> None:
        self.made += 1
        self._insert(f"t{self.made}", is_far=is_far)

    def insert_again(self) -> None:
        """A new task has the id of one whose row was deleted."""
        if self.deleted:
            self._insert(self.deleted.pop(self.random.randrange(len(self.deleted))))

    def _insert(self, id: str, *, is_far: bool = False) -> None:
        args = self._args()
        early = {"generation": 1} if "generation" in self.out else {}
        self.harness.insert(id, 5 * HOUR if is_far else 0, params=args, **early)
        if self.model:
            self.model.insert(id, self.harness.row(id).generation, args, is_far=is_far)

    def _args(self) -> str:
        return f"[{self.random.randrange(1, 4)}]"

    def wish(self, *wishes: str) -> None:
        """Change what is wanted of a task: these wishes, or one or two, in one transaction."""
        if not (rows := [row for row in self.rows() if row.id not in self.locked]):
            return
        open_rows = [row for row in rows if row.status == Status.WAITING]
        id = self.random.choice(self.random.choice((open_rows, rows)) or rows).id
        asked = wishes or self.random.sample(WISHES, self.random.choice((1, 1, 2)))
        args = self._args()
        with self.harness.engine.begin() as session:
            answers = [self._ask(session, wish, id, args) for wish in asked]
        generation = self.harness.row(id).generation
        for wish, answer in zip(asked, answers, strict=True):
            if self.model:
                assert self._modelled(self.model, wish, id, args, generation) == answer

    def _ask(self, session: Connection, wish: str, id: str, args: str) -> int:
        match wish:
            case "cancel":
                return int(self.ledger.cancel(session, id) is Change.CANCELLED)
            case "reschedule":
                return self.ledger.reschedule(session, id, NEAR)
            case "put off":
                return self.ledger.reschedule(session, id, FAR)
            case "erase":
                return self.ledger.erase(session, id)
        numbers = json.loads(args)
        self.ledger.make_task(session, "mail.send", numbers, 0, id=id, if_exists="replace")
        return 1

    def _modelled(self, model: Model, wish: str, id: str, args: str, generation: int) -> int:
        match wish:
            case "cancel":
                return model.want_cancel(id)
            case "reschedule":
                return model.move(id)
            case "put off":
                return model.move(id, is_far=True)
            case "erase":
                return model.erase(id, ERASED)
        model.replace(id, generation, args)
        return 1

    def touch(self) -> None:
        """Change a row that was relayed, and not its task."""
        if ids := [row.id for row in self.rows() if row.id in self._open() and row.due]:
            id = self.random.choice(ids)
            self.harness.change(id, ext_string="x")
            if self.model:
                self.model.touch(id)

    def _open(self) -> list[str]:
        return [
            row.id
            for row in self.rows()
            if row.status == 1 and row.wanted == "none" and row.id not in self.locked
        ]

    def lock(self) -> None:
        """A transaction that stays open locks one more row."""
        if self.locking is not None and (rows := self.rows()):
            id, task = self.random.choice(rows).id, self.harness.made.task.c
            row = select(task.id).where(task.ledger == self.harness.name, task.id == id)
            self.locking.execute(row.with_for_update())
            self.locked.add(id)
            self._tell_locked()

    def let_go(self) -> None:
        """It ends."""
        if self.locking is not None:
            self.locking.rollback()
            self.locked.clear()
            self._tell_locked()

    def _tell_locked(self) -> None:
        if self.model:
            self.model.locked = set(self.locked)

    def rows(self) -> list[Any]:
        return self.harness.all_rows()

    # The horizon

    def come_near(self) -> None:
        """Time passes for a task that is due later than the horizon."""
        if far := [row for row in self.rows() if is_far(row) and row.id not in self.locked]:
            self._bring_near(self.random.choice(far))

    def _bring_near(self, row: Any) -> None:
        task, passed = self.harness.made.task.c, 4 * HOUR
        with self.harness.engine.begin() as connection:
            connection.execute(
                update(self.harness.made.task)
                .where(task.ledger == self.harness.name, task.id == row.id)
                .values(written=task.written - passed, due=task.due - passed)
            )
        if self._of_ledger([row.id.encode()]) and self.client.zscore(f"{PREFIX}:pending", row.id):
            self._make_due(row.id)
        if self.model:
            self.model.come_near(row.id)

    def take_id(self) -> None:
        """A task that is not of the ledger gets the id of a row that is kept back."""
        free = [
            row.id for row in self.rows()
            if is_kept_back(row) and not self.client.exists(f"{PREFIX}:task:{row.id}")
        ]  # fmt: skip
        if free:
            id, when = self.random.choice(free), When(5 * HOUR, relative=True)
            task = NewTask(id, False, "return", b"other.task?[]", when, {})
            self.store.run(producing.make([task]))
            if self.model:
                self.model.redis.taken_ids.add(id)
            self.save()

    def free_id(self) -> None:
        """Such a task ends."""
        if foreign := self._foreign():
            id = self.random.choice(foreign)
            self.store.run(producing.cancel([id], keep=3600))
            if self.model:
                self.model.redis.taken_ids.remove(id)
            self.save()

    def _foreign(self) -> list[str]:
        ids = [id.decode() for id in self.client.zrange(f"{PREFIX}:pending", 0, -1)]
        return [id for id in ids if not self.client.hexists(f"{PREFIX}:task:{id}", "ledger")]

    def ask_again(self) -> None:
        """A minute is over."""
        if "ask" in self.out or self.locked:
            return
        self.harness.rows.ask_for_ids_again()
        if self.model:
            self.model.ask_again()

    def rebind(self) -> None:
        """`ledger rebuild`. What Redis held before that is of another ledger."""
        if self.locked:
            return
        self.harness.relay().rebind()
        if self.model:
            self.model.rebind()
        self.past = [self.remembered()]

    # The relays

    def relay(self, relay: Relay) -> Iterator[None]:
        model = self.model
        while True:
            yield
            yield from self._steps(relay.carry(), model.carry() if model else None)
            yield
            yield from self._steps(relay.bring_back(), model.bring_back() if model else None)

    def _steps(self, steps: BatchSteps[Any], modelled: Steps | None) -> Iterator[None]:
        while True:
            try:
                step = next(steps, "")
            except LedgerError as error:
                self.bad.append(str(error))
                return
            if step == "number taken":
                self.pages_under_way[id(steps)] = self.pages.taken
            if not step:
                self.pages_under_way.pop(id(steps), None)
            self._follow(step, modelled)
            self._learn()
            if step in {"carried", "forgotten", "sent"}:
                self._put_off_no_more()
                self.save()
            if not step:
                return
            yield

    def _put_off_no_more(self) -> None:
        """What is dirty, and was put off since its row is locked, is to be read again now."""
        dirty = f"{PREFIX}:dirty"
        for id in self.client.zrangebyscore(dirty, 6e15, "+inf"):
            self.client.zadd(dirty, {id: 1})

    def _follow(self, step: str, modelled: Steps | None) -> None:
        """Let the model take the same step."""
        if self.model is None or modelled is None:
            return
        if step == "number taken":
            self.model.page = self.pages.taken
        if step == "dirty read":
            found = self.client.zrange(f"{PREFIX}:dirty", 0, ledger_calls.MAX_STATES - 1)
            self.model.page = [id.decode() for id in found]
        assert next(modelled, "") == step

    def send_early(self) -> None:
        """A listener whose gate is open sends rows early, or goes on with that."""
        if self.sends and self.random.random() < 0.5:
            sending = self.sends.pop(self.random.randrange(len(self.sends)))
            for _ in sending:
                pass
            return
        gate, rows = self._gate(0), self.rows()
        if gate is None or not rows:
            return
        ids = {self.random.choice(rows[-5:]).id for _ in range(2)}
        latest = self.sender.latest
        is_known = latest is not None and self.sender.is_checked(*latest)
        least = max(gate, latest.checkpoint.number) if latest is not None and is_known else None
        steps = self.early_sends.send(sorted(ids), least=gate)
        modelled = self.model.send_early(sorted(ids), least) if self.model else None
        sending = self._steps(steps, modelled)
        next(sending, None)
        self.sends.append(sending)

    def hide(self) -> None:
        """The database fails over to a copy, which has a row later that was sent early."""
        under_way = {id for page in self.pages_under_way.values() for id in page}
        for row in self.rows():
            early = self.client.hexists(f"{PREFIX}:task:{row.id}", "early")
            if early and row.stamp == 0 and row.todo == 1 and row.id not in under_way | self.locked:
                self.hidden[row.id] = dict(row._mapping)
                del self.hidden[row.id]["planned"]
                self.harness.prune(row.id)
                if self.model:
                    self.model.hide(row.id)
                return

    def show(self) -> None:
        """The row is there again."""
        for id in list(self.hidden)[:1]:
            with self.harness.engine.begin() as connection:
                connection.execute(self.harness.made.task.insert().values(self.hidden.pop(id)))
            if self.model:
                self.model.show(id)

    def _awaits_its_row(self, run: Run) -> bool:
        """A listener does not find the row of a task: whether it puts the task off."""
        has_waited = self.random.random() < 0.3
        record = f"{PREFIX}:task:{run.id}"
        if has_waited and self.client.hexists(record, "early"):
            self.client.hset(record, "early", 1)
        verdict = self.store.run(ledger_calls.judge_early(run.id, run.token, "no row", SETTINGS))
        waits, over = ledger_calls.EarlyVerdict.WAITS, ledger_calls.EarlyVerdict.OVER
        if self.model:
            expected = self.model.awaits_its_row(run.id, has_waited=has_waited)
            assert {True: waits, None: over}.get(expected, 0) == verdict
        if verdict is over:  # what is left of it is no task of the ledger, and is forgotten at once
            self.client.delete(record)
            self.client.zrem(f"{PREFIX}:cancelled", run.id)
        return verdict is waits

    def _learn(self) -> None:
        """What the ledger knows: done is what was written back, cancelled what was relayed."""
        for row in self.rows():
            if row.status == Status.SUCCEEDED:
                self.done_known.add((row.id, row.generation))
            if row.wanted == DesiredState.CANCELLED.value and row.todo == SyncState.NOTHING:
                self.cancel_known.add((row.id, row.generation))

    # The listeners

    def claim(self, who: int) -> None:
        gate = self._gate(who)
        if gate is None:
            return
        far = self._let_time_pass()
        token = f"{self.random.getrandbits(60):x}"
        call = claiming.claim(token, SETTINGS, places=1, idle=True, gate=gate)
        tasks = self.store.run(call).tasks
        if self.model:
            self.model.claim([task.id for task in tasks], token, gate, far=far)
        for task in tasks:
            life, args = RowVersion.read(task.ledger) or RowVersion(0, 0), task.args.decode()
            self._start(Run(task.id, token, life, args, self.link), who)

    def _gate(self, who: int) -> int | None:
        if "gate" in self.out:
            return 0
        if who in self.checked and self.checked[who][0] == self.link:
            return self.checked[who][1]
        if "fence" not in self.out and self.fenced.get(who) != self.link:
            self.harness.rows.fence(self.store.run(ledger_calls.read_ledger()).number)
            if self.model:
                self.model.fence()
            self.fenced[who] = self.link
        known = self.store.run(ledger_calls.read_ledger())
        numbers = self.harness.rows.read()
        if numbers is None:
            return None
        if "mark" in self.out:
            numbers = numbers._replace(rebuilding=False)
        agrees = numbers.agrees_with(known) and (
            not numbers.rebuilding or self.harness.rows.lost_rows.is_held_up()
        )
        assert self.model is None or self.model.agrees() == agrees
        if not agrees:
            return None
        self.checked[who] = (self.link, known.number, known.unmarked)
        return known.number

    def _let_time_pass(self) -> list[str]:
        """What is due later, as what a rebuild put off by a lease, is due now; returns what is due
        after the horizon."""
        pending = f"{PREFIX}:pending"
        latest = now_ms() + round(HORIZON * 1000) if self.has_horizon else "+inf"
        for id in self.client.zrangebyscore(pending, "(2", latest):
            self._make_due(id.decode())
        return [id.decode() for id in self.client.zrangebyscore(pending, "(2", "+inf")]

    def _make_due(self, id: str) -> None:
        self._set_score("pending", id.encode())
        self.client.delete(self._key(id))

    def _key(self, id: str) -> str:
        return f"{id}:?{self.client.hget(f'{PREFIX}:task:{id}', 'call').decode()}"

    def _start(self, run: Run, who: int) -> None:
        row = self.harness.row(run.id)
        outcome = self._verdict(run, who)
        if outcome == "later" and self.has_horizon and "met" not in self.out:
            self.harness.rows.note_met([run.id])
            if self.model and run.id not in self.locked:
                self.model.note_met(run.id)
        changed = self.harness.row(run.id) if outcome == "later" and self.has_horizon else None
        if changed and run.id not in self.locked and is_kept_back(changed):
            self.bad.append(f"{run.id} is put off again and again until its row comes near")
        if outcome != "runs":
            return self._settle(run, "released" if outcome in {"later", "lost"} else outcome)
        self._look_at_start(run, row)
        self.running.append(run)
        self.save()
        return None

    def _verdict(self, run: Run, who: int | None = None) -> str:
        """What a listener is told by the row; of an attempt that is over, without `who`."""
        version, row = run.version, self.harness.rows.ask([run.id]).get(run.id)
        if "row" in self.out:
            return "runs"
        if row is None and self.sends_early and self._awaits_its_row(run):
            return "later"
        asks_of_losses = who is not None and not self.out & {"lost", "status"}
        if row and not asks_of_losses:
            row = row._replace(todo=SyncState.NOTHING)
        if row and "status" in self.out:
            is_done = (run.id, row.version.generation) in self.effects
            row = row._replace(status=row.status if is_done else Status.WAITING)
        if row and "wish" in self.out and version.generation == row.version.generation:
            version = row.version
        unmarked = self.checked[who][2] if who in self.checked and asks_of_losses else None
        return decide(version, row, unmarked)[0]

    def _look_at_start(self, run: Run, row: Any) -> None:
        life = (run.id, run.version.generation)
        self.starts.add(life)
        if life in self.done_known:
            self.bad.append(f"{run.id} started after it was known as done")
        if life in self.cancel_known:
            self.bad.append(f"{run.id} started after its cancel was relayed")
        if any(other.id == run.id and other.link == self.link for other in self.running):
            self.bad.append(f"{run.id} runs twice at once")
        if row and row.params != run.args:
            self.bad.append(f"{run.id} runs with {run.args}, its row has {row.params}")
        if row and self.model and "status" not in self.out and self.model.is_lost(run.id):
            self.bad.append(f"{run.id} runs although Redis has lost what its row knows")
        is_over = row and (
            row.status != Status.WAITING or row.wanted == DesiredState.CANCELLED.value
        )
        if is_over and "status" not in self.out:
            self.bad.append(f"{run.id} runs although its row has ended")
        if row and row.revision != run.version.revision:
            self.bad.append(f"{run.id} runs although its row wants something else")
        if row and self.has_horizon and is_far(row) and row.id not in self.moved_there:
            self.bad.append(f"{run.id} runs hours before its time")

    def _settle(self, run: Run, outcome: str) -> None:
        self.store.run(claiming.settle([Settlement(run.id, run.token, outcome)], SETTINGS))
        if self.model:
            state = "pending" if outcome in {"released", "retry"} else outcome
            self.model.settle(run.id, run.token, state)
        self.save()

    def settle(self) -> None:
        if self.running:
            self._settle(self._one_running(), "succeeded")

    def complete(self) -> None:
        """A handler commits what it did, if it may; one that may not dies."""
        if not self.running:
            return
        run = self.random.choice(self.running)
        if run.id in self.locked:
            return
        is_let = self._complete(run)
        if self.model:
            assert self.model.complete(run.id, *run.version) == is_let
        if not is_let:
            self.running.remove(run)
        elif (run.id, run.version.generation) in self.effects:
            self.bad.append(f"{run.id} had its effect twice")
        else:
            self.effects.add((run.id, run.version.generation))

    def _complete(self, run: Run) -> bool:
        harness = self.harness
        with harness.engine.begin() as connection:
            try:
                complete(
                    connection, harness.made, ledger=harness.name, id=run.id, attempt=1,
                    generation=run.version.generation, revision=run.version.revision,
                )  # fmt: skip
            except CompletionRefused:
                return False
        return True

    def fail(self) -> None:
        """A handler raises, perhaps after it has completed its task: its row is asked first."""
        if self.running:
            run = self._one_running()
            outcome = "runs" if "completed" in self.out else self._verdict(run)
            if outcome == "runs":
                outcome = self.random.choice(("failed", "retry"))
            self._settle(run, "released" if outcome in {"later", "lost"} else outcome)

    def kill(self) -> None:
        if self.running:
            self._one_running()

    def _one_running(self) -> Run:
        return self.running.pop(self.random.randrange(len(self.running)))

    def lapse(self) -> None:
        """The lease of one whose handler was killed is over; the others beat."""
        self._beat()
        alive = {run.token.encode() for run in self.running}
        for id in self.client.zrange(f"{PREFIX}:running", 0, -1):
            record = f"{PREFIX}:task:{id.decode()}"
            if self.client.hget(record, "token") not in alive:
                self.client.hdel(record, "lapses")
                self._set_score("running", id)
        if self.model:
            self.model.lapse({run.token for run in self.running})
        self._sweep()

    def forget(self) -> None:
        """The time is over for which finished tasks are kept."""
        self._beat()
        for state in FINISHED:
            for id in self.client.zrange(f"{PREFIX}:{state}", 0, -1):
                self._set_score(state, id)
        if self.model:
            self.model.forget()
        self._sweep()

    # Who uses Redis alone

    def use_redis(self) -> None:
        """A call of a Bridge, or a raw command, about any task that is there."""
        places = {
            state: self._of_ledger(self.client.zrange(f"{PREFIX}:{state}", 0, -1))
            for state in ("pending", "running", *FINISHED)
        }
        if states := [state for state, ids in places.items() if ids]:
            state = self.random.choice(states)
            id = self.random.choice(places[state]).decode()
            acts = [self._set_timer, self._run_now] if state in FINISHED else [
                self._set_timer, self._reschedule, self._cancel, self._delete
            ]  # fmt: skip
            self.moved_there.add(id)
            self.random.choice(acts)(id, state)
            self.save()

    def _of_ledger(self, ids: list[bytes]) -> list[bytes]:
        if not self.has_horizon:
            return ids
        return [id for id in ids if self.client.hexists(f"{PREFIX}:task:{id.decode()}", "ledger")]

    def _run_now(self, id: str, _: str) -> None:
        if self.store.run(producing.run_now(id)) is Change.DUE_NOW and self.model:
            self.model.revive(id)

    def _reschedule(self, id: str, _: str) -> None:
        change = self.store.run(producing.reschedule(id, When(HOUR, relative=True)))
        if self.model and change is not Change.FINISHED:  # what is to follow was erased
            self.model.move_there(id)

    def _cancel(self, id: str, _: str) -> None:
        self.store.run(producing.cancel([id], keep=3600))
        self.cancelled_there.add(id)
        if self.model:
            self.model.cancel_there(id)

    def _set_timer(self, id: str, _: str) -> None:
        key = self._key(id)
        if ERASED in key or self.client.hexists(f"{PREFIX}:task:{id}", "next"):
            return
        self.client.set(key, 0, px=HOUR)
        self._hear(id, key, EventKind.LIVE)
        if self.model:
            self.model.set_timer(id)

    def _delete(self, id: str, state: str) -> None:
        """A raw DEL of a timer that runs."""
        if state == "pending" and self.client.delete(self._key(id)):
            self._hear(id, self._key(id), EventKind.DELETED)
            self.cancelled_there.add(id)
            if self.model:
                self.model.cancel_there(id)

    def _hear(self, id: str, key: str, heard: EventKind) -> None:
        hint = reconciling.KeyEvent(key.encode(), id, key.partition(":?")[2].encode(), heard)
        self.store.run(reconciling.adopt([hint], SETTINGS))

    def _set_score(self, state: str, id: bytes) -> None:
        self.client.execute_command("ZADD", f"{PREFIX}:{state}", 1, id)

    def _beat(self) -> None:
        """A listener beats; after a silence that gives all who run a lease more."""
        self.store.run(claiming.heartbeat("listener", SETTINGS.lease, [], code="0a"))

    def _sweep(self) -> None:
        self.store.run(reconciling.sweep(SETTINGS))
        self.save()

    def prune(self) -> None:
        ids = [
            row.id
            for row in self.rows()
            if row.status != 1 and row.todo == SyncState.NOTHING and row.id not in self.locked
        ]
        if ids:
            id = self.random.choice(ids)
            self.harness.prune(id)
            self.deleted.append(id)
            if self.model:
                self.model.prune(id)

    def stall(self) -> None:
        self.relays.reverse()

    # All together

    def _acts(self) -> list[tuple[Callable[[], object], float]]:
        acts: list[tuple[Callable[[], object], float]] = [
            (self.insert, 3), (lambda: self.wish("cancel"), 1),
            (lambda: next(self.relays[0]), 12), (lambda: next(self.relays[1]), 4),
            (lambda: self.claim(0), 4), (lambda: self.claim(1), 4),
            (self.settle, 5), (self.lapse, 2), (self.forget, 2), (self.prune, 1),
            (self.lose, 0.5), (self.empty, 0.2), (self.kill, 0.7), (self.stall, 0.5),
        ]  # fmt: skip
        if self.locking is not None:
            acts += [(self.lock, 1.5), (self.let_go, 0.6)]
        if "status" in self.out:
            return acts
        return [
            *acts,
            (self.wish, 2), (self.use_redis, 1), (self.touch, 0.5), (self.insert_again, 0.5),
            (self.complete, 1), (self.fail, 1),
        ]  # fmt: skip

    def _calm_acts(self) -> list[tuple[Callable[[], object], float]]:
        few = sum(row.status == Status.WAITING for row in self.rows()) < FEW
        return [
            (self.insert, 6 if few else 0), (self.wish, 5), (self.use_redis, 3),
            (lambda: next(self.relays[0]), 12), (lambda: next(self.relays[1]), 4),
            (lambda: self.claim(0), 4), (lambda: self.claim(1), 4), (self.settle, 3),
            (self.fail, 1), (self.complete, 2), (self.stall, 0.5),
        ]  # fmt: skip

    def _acts_at_the_horizon(self) -> list[tuple[Callable[[], object], float]]:
        return [
            (lambda: self.insert(is_far=True), 3), (lambda: self.wish("put off"), 2),
            (self.come_near, 2), (self.take_id, 0.7), (self.free_id, 0.7), (self.ask_again, 0.7),
            (self.rebind, 0.2),
        ]  # fmt: skip

    def step(self) -> None:
        acts = self._calm_acts() if self.is_calm else self._acts()
        if self.sends_early:
            acts = [*acts, (self.send_early, 12), (self.hide, 1), (self.show, 1)]
        if self.has_horizon:
            acts += self._acts_at_the_horizon()
        [act] = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])
        act()

    def quiet(self, rounds: int = 20) -> None:
        self.let_go()
        while self.hidden:
            self.show()
        rows = self.rows()
        for _ in range(rounds):
            self._let_years_pass()
            for _ in range(14):
                next(self.relays[0])
                next(self.relays[1])
            self.compare()
            for _ in range(4):
                self.claim(0)
                self.claim(1)
            while self.running:
                self.settle()
            self.lapse()
            rows = self.rows()
            is_dirty = self.client.exists(f"{PREFIX}:dirty")
            if not is_dirty and all(
                row.status != 1 and row.todo == SyncState.NOTHING for row in rows
            ):
                break
        for row in rows:
            if row.status == Status.WAITING:
                self.bad.append(f"{row.id} never ended")
            if row.status == Status.SUCCEEDED and (row.id, row.generation) not in self.starts:
                self.bad.append(f"{row.id} done, but never ran")
            is_asked = row.wanted == DesiredState.CANCELLED.value or row.id in self.cancelled_there
            if row.status == Status.CANCELLED and not is_asked:
                self.bad.append(f"{row.id} cancelled by nobody")
            self._look_at_rest(row)

    def _let_years_pass(self) -> None:
        """Nothing is far any more, and no other task has an id of the ledger."""
        if self.has_horizon:
            for row in self.rows():
                if is_far(row):
                    self._bring_near(row)
            while self._foreign():
                self.free_id()
            self.ask_again()

    def _look_at_rest(self, row: Any) -> None:
        """Row and record agree, unless the record is forgotten."""
        record = self.client.hgetall(f"{PREFIX}:task:{row.id}")
        if not record or b"ledger" not in record:
            return
        state, args = record.get(b"state", b"pending"), record[b"call"].partition(b"?")[2]
        is_same = (
            row.status == STATUS.get(state.decode(), 1),
            RowVersion.read(record[b"ledger"]) == (row.generation, row.revision),
            args.decode() == row.params,
        )
        if not all(is_same):
            self.bad.append(f"{row.id}: its row has {row}, its record {record}")

    def live(self, steps: int) -> list[str]:
        """Let so many things happen, then wait until all is quiet; returns what went wrong."""
        try:
            with suppress(StopIteration):
                for _ in range(steps):
                    self.step()
                    self.compare()
                    if self.bad:
                        return self.bad
                self.quiet()
            return self.bad
        finally:
            if self.locking is not None:
                self.locking.close()

    # The model

    def _look_at_what_is_kept_back(self) -> None:
        """Redis does not have it, unless a batch was cut off before it was put off."""
        for row in self.rows():
            version = self.client.hget(f"{PREFIX}:task:{row.id}", "ledger")
            if is_kept_back(row) and version == f"{row.generation} {row.revision}".encode():
                self.bad.append(f"{row.id} is in Redis, although it is kept back")

    def compare(self) -> None:
        """Fail unless rows, records and numbers are what the model says."""
        if self.has_horizon:
            self._look_at_what_is_kept_back()
        if (model := self.model) is None:
            return
        if self.has_horizon:
            kept_back = {row.id for row in self.rows() if is_kept_back(row)}
            assert kept_back == {id for id, row in model.rows.items() if row.is_kept_back}
        rows = {
            row.id: (row.generation, row.revision, row.wanted == "cancelled", row.status, row.todo,
                     row.stamp, row.params, row.due is None) for row in self.rows()
        }  # fmt: skip
        assert rows == {
            id: (
                row.generation,
                row.revision,
                row.is_cancelled,
                row.status,
                row.todo,
                row.stamp,
                row.call,
                row.is_moved,
            )
            for id, row in model.rows.items()
        }
        assert self._records() == {
            id: (
                f"{record.generation} {record.revision}",
                record.state,
                record.call,
                record.is_early,
            )
            for id, record in model.redis.records.items()
        }
        dirty = self.client.zrange(f"{PREFIX}:dirty", 0, -1)
        assert {id.decode() for id in dirty} == model.redis.dirty.keys()
        numbers = self.harness.rows.read()
        if numbers:
            known = self.store.run(ledger_calls.read_ledger())
            assert (numbers.number, numbers.stamp) == (model.taken, model.stamp)
            assert (known.number, bool(known.nonce)) == (model.redis.number, model.redis.is_bound)
            assert known.unmarked == (model.redis.unmarked and Lost(*model.redis.unmarked))

    def _records(self) -> dict[str, tuple[str, str, str, bool]]:
        start = f"{PREFIX}:task:"
        names = [name.decode() for name in self.client.keys(f"{start}*")]
        with self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hmget(name, "ledger", "state", "call", "early")
            found = pipe.execute()
        return {
            name.removeprefix(start): (
                life.decode(),
                (state or b"pending").decode(),
                call.decode().partition("?")[2],
                early is not None,
            )
            for name, (life, state, call, early) in zip(names, found, strict=True)
            if life is not None  # it is not of the ledger
        }


def now_ms() -> int:
    """The time of both, which are on this machine."""
    return time.time_ns() // 1_000_000


def is_far(row: Any) -> bool:
    """Whether a row asks for a time after the horizon."""
    if row.status != Status.WAITING:
        return False
    planned = row.written + row.delay_ms if row.due is None else row.due
    return bool(planned > now_ms() + HORIZON * 1000)


def is_kept_back(row: Any) -> bool:
    """Whether the relay leaves a row alone, by the column that SQL computes."""
    return bool(row.todo == SyncState.RELAY and row.planned > now_ms() + HORIZON * 1000)
