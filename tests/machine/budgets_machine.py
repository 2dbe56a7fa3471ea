"""Tasks with several rates and budgets, in any order of operations, and what is always true."""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from expirebridge import Change, State
from expirebridge.connection import clients
from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, editing, fleet, producing, reconciling
from expirebridge.task.calls.call import Command, When
from expirebridge.task.calls.claiming import Settled, Settlement
from expirebridge.task.operations.editing import EDITABLE
from tests.kit.steps import PREFIX, server_ms
from tests.machine.limits_machine import Lanes, is_ordered
from tests.machine.world import age

SECOND, MINUTE, HOUR, DAY = 1, 60, 3600, 86400
SETTINGS = Settings(lease=150, keep_succeeded=600, keep_failed=1200)
CODE = "aa"
DEFAULT = 3
"""What a task costs that does not say it."""

ARGUMENTS = {"key": 0, "cost": 1, "who": 2}
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "m.ask": ("key#day", "key#starts", "tokens", "each", "all"),
    "m.chat": ("key#day", "tokens", "pace"),
    "m.count": ("tokens", "all"),
    "m.mail": ("key#starts", "pace"),
    "m.post": ("pace",),
    "m.step": ("line", "key#day", "pace", "each"),
    "m.free": ("all",),
}
"""By function its limits, in the order in which all handlers take them."""
BUDGETS = {"key#day", "tokens"}
RATES = (*BUDGETS, "key#starts", "pace")
PER = {"key#day": "key", "key#starts": "key", "each": "who", "line": "who"}

COSTS = ["0", "1", "2", "5", "5", "11", "1000000", '"-"', "null", None]
"""As JSON; None: the argument is not given."""
IDS = tuple("abcdefgh")
OPERATIONS = (
    "cancel", "pause", "resume", "put off", "bring forward", "reschedule", "run_now", "beat",
)  # fmt: skip
HOLDS = ("func m.chat", "func m.post", "all")
MOST_RESERVED = 20

ids = st.sampled_from(IDS)
delays = st.sampled_from([0, 0, 0, MINUTE])
outcomes = st.sampled_from(
    ["succeeded", "succeeded", "failed", "retry", "snoozed", "released", "unknown", "busy"]
)


def _call(func: str, key: str, cost: str | None, who: str) -> str:
    if cost is None:
        return f'{func}?{{"key":"{key}","who":"{who}"}}'
    return f'{func}?["{key}",{cost},"{who}"]'


calls = st.builds(
    _call, st.sampled_from(list(FUNCTIONS)), st.sampled_from("xxy"), st.sampled_from(COSTS),
    st.sampled_from("pq"),
)  # fmt: skip


class Pace(NamedTuple):
    """The numbers of a rate, or of a budget."""

    amount: int
    every: int
    """Seconds."""
    burst: int | None
    is_budget: bool

    @property
    def most(self) -> int:
        """What may be spent at once."""
        return self.burst or (self.amount if self.is_budget else 1)

    def takes(self, cost: int | None) -> int:
        """The microseconds that it takes; None: nobody can read what it costs."""
        if not self.is_budget:
            return math.ceil(self.every * 1_000_000 / self.amount)
        return self._microseconds(min(self.most if cost is None else cost, self.most))

    def spent(self, amount: int) -> int:
        """The microseconds of what was spent beyond the cost."""
        return self._microseconds(amount)

    def _microseconds(self, amount: int) -> int:
        return -(-amount * self.every * 1_000_000 // self.amount)

    @property
    def span(self) -> int:
        return self._microseconds(self.most) if self.is_budget else self.most * self.takes(None)

    def declared(self) -> dict[str, object]:
        words: dict[str, object] = {"starts": self.amount, "every": self.every * 1_000_000}
        if self.burst is not None:
            words["burst"] = self.burst
        return words | ({"of": "cost"} if self.is_budget else {})


class Numbers(NamedTuple):
    """The numbers of all limits; None: that rate was removed."""

    day: Pace
    starts: Pace
    tokens: Pace | None
    pace: Pace
    each: int
    all: int

    def pace_of(self, lane: str) -> Pace | None:
        """The numbers of a rate by its lane; None for a limit, and what was removed."""
        name = lane.partition("=")[0]
        paces = {
            "key#day": self.day, "key#starts": self.starts, "tokens": self.tokens,
            "pace": self.pace,
        }  # fmt: skip
        return paces.get(name)

    def most(self, lane: str) -> int:
        """The number of slots of a limit."""
        return {"each": self.each, "all": self.all, "line": 1}[lane.partition("=")[0]]

    def declaration(self) -> list[tuple[str, bytes]]:
        """The hash `limits` of handlers with these."""
        limits: dict[str, object] = {
            "each": {"most": self.each}, "all": {"most": self.all},
            "line": {"most": 1, "ordered": True},
        }  # fmt: skip
        for name in RATES:
            pace = self.pace_of(name)
            if pace is not None:
                limits[name] = pace.declared()
        fields: dict[str, object] = {f"l {name}": numbers for name, numbers in limits.items()}
        for func, names in FUNCTIONS.items():
            fields[f"f {func}"] = [_entry(name) for name in names if name in limits]
        return [(name, json.dumps(value).encode()) for name, value in fields.items()]


def _entry(name: str) -> list[object]:
    per = PER.get(name)
    own = [ARGUMENTS[per], per, None] if per else [None] * 3
    if name in BUDGETS:
        return [name, *own, *[None] * 3, ARGUMENTS["cost"], "cost", DEFAULT]
    return [name, *own] if per else [name]


def _pace(
    amounts: Iterable[int], every: int, bursts: Iterable[int | None], *, is_budget: bool
) -> Any:
    return st.builds(
        Pace, st.sampled_from([*amounts]), st.just(every), st.sampled_from([*bursts]),
        st.just(is_budget),
    )  # fmt: skip


numbers = st.builds(
    Numbers,
    day=_pace([10, 7], HOUR, [None, 20], is_budget=True),
    starts=_pace([1, 2], MINUTE, [1, 2], is_budget=False),
    tokens=st.one_of(*[_pace([10, 30], MINUTE, [None, 6], is_budget=True)] * 3, st.none()),
    pace=_pace([1, 3], 10, [1, 3], is_budget=False),
    each=st.integers(1, 2),
    all=st.integers(1, 3),
)


def limits_in(call: str, numbers: Numbers) -> list[tuple[str, int | None]]:
    """The lanes of a task in order; of a rate with the microseconds that the task takes."""
    func, _, text = call.partition("?")
    found = json.loads(text)
    given = found if isinstance(found, dict) else dict(zip(ARGUMENTS, found, strict=False))
    cost = given.get("cost", DEFAULT)
    lanes: list[tuple[str, int | None]] = []
    for name in FUNCTIONS[func]:
        lane = f"{name}={given[PER[name]]}" if name in PER else name
        if name not in RATES:
            lanes.append((lane, None))
        elif (pace := numbers.pace_of(name)) is not None:
            lanes.append((lane, pace.takes(cost if isinstance(cost, int) else None)))
    return lanes


def rates_in(call: str, numbers: Numbers) -> dict[str, int]:
    """The lanes of the rates of a task, with the microseconds that it takes."""
    return {lane: takes for lane, takes in limits_in(call, numbers) if takes is not None}


def turns_of(record: dict[str, str]) -> dict[str, str]:
    """By lane the turn that a task has had: what it has paid, or `-`."""
    lines = [line.partition(" ") for line in record.get("turn", "").split("\n") if line]
    return {lane: paid for paid, _, lane in lines}


class Moment(Lanes):
    """What a database holds of tasks, lanes and rates."""

    @property
    def us(self) -> float:
        return self.now * 1e6

    def score(self, lane: str) -> float:
        return self.sets["rates"].get(lane, 0.0)

    def rests_until(self, lane: str) -> float:
        """Until when nothing starts in a lane; 0 if it does not rest."""
        return self.score(f"rest {lane}")

    def arrival(self, lane: str, pace: Pace) -> float:
        """When all that the lane has given is made good."""
        return max(self.score(lane), self.after_rest(lane, pace))

    def after_rest(self, lane: str, pace: Pace) -> float:
        """The arrival that follows from a rest: nothing of a burst is left then."""
        until = self.rests_until(lane)
        return until + pace.span - pace.takes(1) if until else 0.0

    def last_slot(self, id: str) -> str | None:
        slots = self.slots(id)
        return slots[-1] if slots else None

    def check_records(self) -> None:
        """Fail unless records, state sets, lanes and queues agree."""
        for id, record in self.records.items():
            places = [state for state in State if id in self.sets[state]]
            assert places == [self.state(id)], id
            slots = self.slots(id)
            assert len(set(slots)) == len(slots), id
            reserved = [lane for lane in slots if lane.partition("=")[0] in RATES]
            assert not reserved or self.state(id) in {"pending", "waiting"}, id
            assert record.get("queue") not in slots, id
        waiting = {id: self.records[id]["queue"] for id in self.in_state("waiting")}
        assert {id for id, record in self.records.items() if "queue" in record} == {*waiting}
        self._check_members(waiting)
        granted = {id for id in self.in_state("pending") if self.slots(id)}
        kept = {id for id in granted if any(map(is_ordered, self.slots(id)))}
        assert granted - kept <= {*self.sets["grants"]} <= granted

    def check_progress(self, numbers: Numbers) -> None:
        """Fail if a lane stands still although somebody waits in it."""
        for lane, queue in self.queues.items():
            members = self.lanes.get(lane, set())
            if lane.startswith("hold "):
                assert lane.removeprefix("hold ") in self.holds, lane
            elif lane.partition("=")[0] in RATES:
                pace = numbers.pace_of(lane)
                assert pace is not None, (lane, "it was removed")
                granted = [
                    id for id in members
                    if self.state(id) == "pending" and self.last_slot(id) == lane
                ]  # fmt: skip
                is_full = pace.is_budget and len(members) >= MOST_RESERVED
                assert granted or is_full, (lane, queue)
            else:
                assert len(members) >= numbers.most(lane), (lane, queue)


@dataclass
class Charge:
    """What was charged in a lane and has not been taken back."""

    at: float
    """When, in microseconds that have passed, also in the times that were aged."""
    takes: int
    is_start: bool
    by: tuple[str, str] | None = None
    """The id and token of an attempt that began."""


@dataclass
class Ledger:
    """What was charged in a lane."""

    charges: list[Charge] = field(default_factory=list)
    """Since its numbers were changed."""
    latest: list[tuple[float, dict[tuple[str, str], int]]] = field(default_factory=list)
    """The arrivals that charges have brought, in time that has passed; and by which attempts, with
    the microseconds that each was charged."""

    def note(self, arrival: float, by: tuple[str, str] | None, takes: int = 0) -> None:
        """Note what the last charge has brought."""
        if not self.latest or self.latest[-1][0] != arrival:
            self.latest.append((arrival, {}))
        if by:
            self.latest[-1][1][by] = takes

    def check_windows(self, span: int) -> None:
        """Fail if more was charged than the rate allows, from any charge to any start."""
        for last, start in enumerate(self.charges):
            total = 0
            for first in reversed(self.charges[: last + 1]):
                total += first.takes
                if start.is_start:
                    assert total <= span + start.at - first.at + 1, self.charges


class BudgetsMachine(RuleBasedStateMachine):
    """One database whose handlers have several rates and budgets."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(self.url)
        self.client.flushall()
        self.store = Store(clients.producer_client(self.url), prefix=PREFIX)
        self.numbers: Numbers
        self.runs: list[tuple[str, str]] = []
        self.tokens = 0
        self.is_served = True
        self.found = Moment(self.client)
        """All as it was after the last step."""
        self.clock = 0
        """Microseconds that were aged."""
        self.ledgers: dict[str, Ledger] = defaultdict(Ledger)
        self.at_risk: dict[str, set[str]] = defaultdict(set)
        """By lane, those whose reservation may have been used up since: by hand, or by spending."""

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self._run_to_the_end()
        finally:
            self.store.close()
            self.client.close()

    @initialize(numbers=numbers, some=st.lists(calls, min_size=4, max_size=len(IDS)))
    def begin(self, numbers: Numbers, some: list[str]) -> None:
        self.store.run(fleet.declare(CODE, dict.fromkeys(FUNCTIONS, "1")))
        self._beat()
        self.change_limits(numbers)
        self._sweep()
        self.make_some(some)
        self.claim(100)

    @invariant()
    def agrees(self) -> None:
        found = Moment(self.client)
        found.check_records()
        if self.is_served:
            found.check_progress(self.numbers)
        for lane, members in self.at_risk.items():
            self.at_risk[lane] = members & found.lanes.get(lane, set())
        self.found = found

    def _lanes(self) -> set[str]:
        """The lanes of rates that have been charged, or are known to the server."""
        named = {*self.found.sets["rates"], *self.ledgers}
        return {lane for lane in named if lane.partition("=")[0] in RATES}

    def _risk(self, lanes: Iterable[str]) -> None:
        """From now on those that have reserved something there may find that it is used up."""
        for lane in lanes:
            self.at_risk[lane] |= self.found.lanes.get(lane, set())

    def _check_arrival(self, lane: str, after: Moment, *, least: float, most: float) -> None:
        """Fail unless a lane's arrival is between two values, both in the server's time."""
        pace = self.numbers.pace_of(lane)
        assert pace is not None
        arrival = max(after.arrival(lane, pace), after.us)
        found = (lane, least, arrival, most, self.found.us, after.us)
        assert max(least, self.found.us) - 1 <= arrival, ("was charged too little", found)
        assert arrival <= max(most, after.us) + 1, ("was charged too much", found)

    def _check_unchanged(self, lanes: Iterable[str], after: Moment) -> None:
        """Fail if a lane has been charged, or was given something back."""
        for lane in lanes:
            pace = self.numbers.pace_of(lane)
            if pace is None:
                continue
            # A rate whose numbers were changed may have been further ahead than its burst.
            least = max(
                min(self.found.score(lane), self.found.us + pace.span),
                self.found.after_rest(lane, pace),
            )
            self._check_arrival(lane, after, least=least, most=self.found.arrival(lane, pace))

    # Producers

    @rule(
        id=ids, call=calls, delay=delays,
        if_exists=st.sampled_from(["reject", "keep", "replace", "extend"]),
    )  # fmt: skip
    def make(self, id: str, call: str, delay: int, if_exists: str) -> None:
        new = producing.NewTask(
            id=id, has_random_id=False, if_exists=if_exists, call=call.encode(),
            when=When(delay * 1000, relative=True), fields={"ttl": MINUTE * 1000},
        )  # fmt: skip
        self.store.run(producing.make([new]))
        self._check_unchanged(self._lanes(), Moment(self.client))

    @rule(some=st.lists(calls, min_size=1, max_size=len(IDS)))
    def make_some(self, some: list[str]) -> None:
        """Make several that are due now."""
        for id, call in zip(IDS, some, strict=False):
            self.make(id, call, 0, "reject")

    @rule(id=ids, operation=st.sampled_from(OPERATIONS))
    def change(self, id: str, operation: str) -> None:
        def to(delay: int) -> When:
            return When(server_ms(self.client) + delay * 1000, relative=False)

        commands: dict[str, Callable[[], Command[Any]]] = {
            "cancel": lambda: producing.cancel([id], keep=SETTINGS.keep_succeeded),
            "pause": lambda: producing.pause([id]),
            "resume": lambda: producing.resume([id]),
            "put off": lambda: producing.put_off([id], MINUTE),
            "bring forward": lambda: producing.reschedule(id, to(-MINUTE)),
            "reschedule": lambda: producing.reschedule(id, to(MINUTE)),
            "run_now": lambda: producing.run_now(id),
            "beat": lambda: producing.beat(id),
        }
        # What was granted a start in the future, and is due now, takes it from others.
        if operation in {"run_now", "bring forward"} and id in self.found.records:
            self._risk(self.found.slots(id))
        self.store.run(commands[operation]())
        self._check_unchanged(self._lanes(), Moment(self.client))

    @rule(id=ids, call=calls)
    def edit_arguments(self, id: str, call: str) -> None:
        found = self.store.run(editing.read_task(id))
        if found is not None and found.task.state in EDITABLE:
            args = call.partition("?")[2].encode()
            assert self.store.run(editing.edit(id, found, args)) is Change.EDITED
        self._check_unchanged(self._lanes(), Moment(self.client))

    @rule(hold=st.sampled_from(HOLDS))
    def hold_or_release(self, hold: str) -> None:
        if self.client.hdel(f"{PREFIX}:holds", hold):
            self.is_served = False
        else:
            self.client.hset(f"{PREFIX}:holds", hold, "by hand")

    # Listeners

    @rule(numbers=numbers)
    def change_limits(self, numbers: Numbers) -> None:
        self.store.run(declare_limits("dd", numbers.declaration()))
        self.numbers, self.is_served = numbers, False
        for ledger in self.ledgers.values():
            ledger.charges.clear()
        self._risk([*self.found.lanes])

    def _beat(self) -> None:
        self.store.run(claiming.heartbeat("one", SETTINGS.lease, self.runs, code=CODE))

    @rule(places=st.sampled_from([1, 2, 100, 100]))
    def claim(self, places: int) -> None:
        self._claim(places)

    def _claim(self, places: int) -> claiming.Claim:
        before = self.found = Moment(self.client)
        self.tokens += 1
        token = f"token-{self.tokens}"
        claimed = self.store.run(
            claiming.claim(token, SETTINGS, places=places, idle=True, limits="dd")
        )
        assert claimed.refusal is None
        after = Moment(self.client)
        self.runs += [(task.id, token) for task in claimed.tasks]
        self._check_charges(claimed, token, before, after)
        started = {task.id for task in claimed.tasks}
        for id in sorted(before.records.keys() & after.records.keys() - started):
            if after.state(id) == "waiting" and before.state(id) == "pending":
                self._check_parked(id, before, after)
        for task in claimed.tasks:
            for lane in after.slots(task.id):
                assert len(after.lanes[lane]) <= self.numbers.most(lane), (task.id, lane)
        self._check_next(claimed, after)
        return claimed

    def _check_charges(
        self, claimed: claiming.Claim, token: str, before: Moment, after: Moment
    ) -> None:
        """Fail unless each that began was charged once for all of its rates, and turns were."""
        least: dict[str, int] = defaultdict(int)
        most: dict[str, int] = defaultdict(int)
        arrivals: dict[str, list[tuple[float, tuple[str, str] | None, int]]] = defaultdict(list)
        for task in claimed.tasks:
            rates = rates_in(before.records[task.id]["call"], self.numbers)
            turns = turns_of(before.records[task.id])
            charged = _charged(after.records[task.id]) if rates else {}
            assert {lane: takes for lane, (_, takes) in charged.items()} == rates, task.id
            for lane, takes in rates.items():
                pace = self.numbers.pace_of(lane)
                assert pace is not None
                assert before.rests_until(lane) <= claimed.now_us, (task.id, lane, "rests")
                most[lane] += takes
                # One that has paid, and none was charged since, is not charged again.
                if turns.get(lane) != f"{before.score(lane):.0f}":
                    least[lane] += takes
                at = claimed.now_us + self.clock
                self.ledgers[lane].charges.append(Charge(at, takes, True, (task.id, token)))
                arrivals[lane].append((charged[lane][0] + self.clock, (task.id, token), takes))
            if turns:
                self._risk(rates)
        for id, record in after.records.items():
            rates = rates_in(record["call"], self.numbers)
            had = turns_of(before.records.get(id, {}))
            for lane, paid in turns_of(record).items():
                if paid not in {had.get(lane), "-"}:
                    least[lane] += rates[lane]
                    most[lane] += rates[lane]
                    arrivals[lane].append((float(paid) + self.clock, None, 0))
                if lane not in had:
                    self._risk([lane])
        for lane in self._lanes():
            pace = self.numbers.pace_of(lane)
            if pace is None:
                continue
            # Of a raised rate the arrival may have been too far ahead.
            score = min(before.score(lane), claimed.now_us + pace.span)
            free = max(score, before.after_rest(lane, pace), claimed.now_us)
            self._check_arrival(
                lane, after, least=free + least[lane],
                most=max(before.arrival(lane, pace), claimed.now_us) + most[lane],
            )  # fmt: skip
            for arrival, by, takes in sorted(arrivals[lane], key=lambda one: one[0]):
                self.ledgers[lane].note(arrival, by, takes)
            self.ledgers[lane].check_windows(pace.span)

    def _check_parked(self, id: str, before: Moment, after: Moment) -> None:
        """Fail unless a task that waits keeps what it has in the rates before."""
        queue, slots = after.records[id]["queue"], after.slots(id)
        lanes = limits_in(after.records[id]["call"], self.numbers)
        names = [lane for lane, _ in lanes]
        if queue not in names:
            assert queue.startswith("hold "), (id, queue)
            return
        rates = [lane for lane, takes in lanes[: names.index(queue)] if takes is not None]
        pace = self.numbers.pace_of(queue)
        if pace is None:
            # It has had its turn there: nobody takes its place while it waits for a slot.
            assert {*rates} <= {*turns_of(after.records[id])}, (id, "lost its turn")
            assert not {*rates} & {*slots}, id
        else:
            rests = after.rests_until(queue) > after.us + pace.span - 1e5
            assert rests or {*rates} <= {*slots}, (id, "lost its reservations")
            if self.is_served and queue in before.slots(id):
                assert id in self.at_risk[queue], (id, queue, "its reservation was used up")

    def _check_next(self, claimed: claiming.Claim, after: Moment) -> None:
        """Fail if the listener would sleep beyond what is due next."""
        pending = after.sets["pending"]
        if pending and not claimed.alone:
            assert claimed.next_due is not None
            # One that is due already was left since there was no place for it.
            assert claimed.next_due <= max(min(pending.values()), after.now * 1000) + 1

    @rule()
    def wait_for_the_next(self) -> None:
        """What was granted a start begins then, or waits in a later lane."""
        self._sweep()
        self._claim_all()
        granted = [
            at for id, at in self.found.sets["pending"].items()
            if id in self.found.sets["grants"] and at > self.found.now * 1000
        ]  # fmt: skip
        if granted:
            self.pass_time(max(math.ceil(min(granted) / 1000 - self.found.now), 0) + 1)
            self._claim_all()

    def _claim_all(self) -> None:
        """Claim until no task is due that could be claimed."""
        due = list[str]()
        for _ in range(50):
            self._claim(100)
            self.agrees()
            due = [
                id for id, at in self.found.sets["pending"].items() if at <= self.found.now * 1000
            ]
            if not due:
                return
        raise AssertionError(f"these are due, and no claim takes them: {due}")

    @precondition(lambda self: self.runs)
    @rule(
        back=st.integers(0, 4), outcome=outcomes, delay=delays,
        spent=st.dictionaries(st.sampled_from(sorted(BUDGETS)), st.sampled_from([0, 1, 4, 30])),
        is_uncharged=st.booleans(), busy=st.sets(st.sampled_from(RATES), max_size=2),
    )  # fmt: skip
    def settle(
        self, back: int, outcome: str, delay: int, spent: dict[str, int],
        is_uncharged: bool, busy: set[str],
    ) -> None:  # fmt: skip
        id, token = self.runs.pop(-1 - back % len(self.runs))
        resting = sorted(busy) if outcome == "busy" else []
        words = [*resting, *(f"{name}+{amount}" for name, amount in spent.items())]
        if is_uncharged and outcome == "snoozed":
            words.insert(0, "!")
        self._settle(id, token, outcome, delay, words)

    @precondition(lambda self: self.runs)
    @rule(back=st.integers(0, 4), delay=delays)
    def decline(self, back: int, delay: int) -> None:
        """An attempt that did no work is not to be charged."""
        id, token = self.runs.pop(-1 - back % len(self.runs))
        self._settle(id, token, "snoozed", delay, ["!"])

    def _settle(self, id: str, token: str, outcome: str, delay: int, words: list[str]) -> None:
        before = self.found = Moment(self.client)
        record = before.records.get(id)
        settlement = Settlement(id, token, outcome, delay, "", ",".join(words))
        [result] = self.store.run(claiming.settle([settlement], SETTINGS))
        after = Moment(self.client)
        is_current = (
            record is not None and before.state(id) == "running" and record["token"] == token
        )
        counts = is_current or (result is Settled.REFUSED and record is not None)
        lanes = rates_in(record["call"], self.numbers) if record and counts else {}
        named = {lane.partition("=")[0]: lane for lane in lanes}
        spent = {
            named[name]: int(amount)
            for name, plus, amount in (word.partition("+") for word in words)
            if plus and name in named
        }
        is_given_back = "!" in words and is_current
        for lane in self._lanes() | {*lanes}:
            pace = self.numbers.pace_of(lane)
            if pace is None:
                continue
            start = before.score(lane)
            if is_given_back:
                start = self._taken_back(lane, id, token, before)
                if start != before.score(lane):
                    self._risk([lane])
            most = max(start, before.after_rest(lane, pace))
            least = max(min(start, before.us + pace.span), before.after_rest(lane, pace))
            if lane in spent:
                takes = pace.spent(spent[lane])
                at = after.us + self.clock
                self.ledgers[lane].charges.append(Charge(at, takes, False))
                least, most = max(least, before.us) + takes, max(most, after.us) + takes
                self._risk([lane])
            if lane in {named.get(word) for word in words} and is_current:
                self._risk([lane])
                rests_until = after.us + delay * 1e6 + pace.span
                most = max(most, rests_until) + (pace.spent(spent[lane]) if lane in spent else 0)
            self._check_arrival(lane, after, least=least, most=most)
            if lane in spent and after.score(lane) != start:
                self.ledgers[lane].note(after.score(lane) + self.clock, None)
        # What is sent again, since the reply was lost, is not charged again.
        self.found = after
        [again] = self.store.run(claiming.settle([settlement], SETTINGS))
        assert again is not Settled.DONE or result is not Settled.REFUSED
        self._check_unchanged(self._lanes(), Moment(self.client))

    def _taken_back(self, lane: str, id: str, token: str, before: Moment) -> float:
        """The arrival of a lane once the charge of an attempt that did no work is taken back."""
        ledger = self.ledgers[lane]
        arrival, by = ledger.latest[-1] if ledger.latest else (0.0, {})
        if (id, token) not in by or before.score(lane) + self.clock != arrival:
            return before.score(lane)
        takes = by.pop((id, token))
        if takes:
            ledger.latest.pop()
        ledger.charges = [each for each in ledger.charges if each.by != (id, token)]
        return before.score(lane) - takes

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(1, 5))
    def settle_many(self, number: int) -> None:
        """Several succeed at once."""
        over, self.runs = self.runs[:number], self.runs[number:]
        settlements = [Settlement(id, token, "succeeded") for id, token in over]
        self.store.run(claiming.settle(settlements, SETTINGS))
        self._check_unchanged(self._lanes(), Moment(self.client))

    @rule(id=ids, ends=st.sampled_from(["running", "grants"]))
    def run_out(self, id: str, ends: str) -> None:
        """A listener was killed, or no listener took a grant."""
        self._beat()
        self.client.zadd(f"{PREFIX}:{ends}", {id: 0}, xx=True)
        self._sweep()

    @rule()
    def sweep(self) -> None:
        self._sweep()

    def _sweep(self) -> None:
        more = True
        while more:
            swept = self.store.run(reconciling.sweep(SETTINGS))
            assert swept.mended == 0
            more = swept.more
        self.is_served = True
        self._check_unchanged(self._lanes(), Moment(self.client))

    @rule(seconds=st.sampled_from([SECOND, SECOND, 10, MINUTE, HOUR]))
    def pass_time(self, seconds: int) -> None:
        age(self.client, seconds)
        self.clock += seconds * 1_000_000
        self._beat()
        self.found = Moment(self.client)

    # The end

    def _run_to_the_end(self) -> None:
        """Once nothing is held, all run, and nothing is left of their lanes."""
        self.client.delete(f"{PREFIX}:holds")
        self._sweep()
        for _ in range(60):
            self.agrees()
            if not self.found.in_state("pending", "paused", "running", "waiting"):
                break
            for id in self.found.in_state("paused"):
                self.store.run(producing.resume([id]))
            running = self.found.in_state("running")
            self.runs = [(id, self.found.records[id]["token"]) for id in running]
            if self.runs:
                self.settle_many(len(self.runs))
            self._sweep()
            self.agrees()
            self._claim_all()
            self.pass_time(DAY)
        else:
            raise AssertionError(f"these never end: {self.found.records}")
        for _ in range(3):
            self.pass_time(30 * DAY)
            self._sweep()
        assert Lanes(self.client).leftovers() == []


def _charged(record: dict[str, str]) -> dict[str, tuple[float, int]]:
    """By lane the arrival and the microseconds that an attempt was charged."""
    _, *charges = record["charged"].split("\n")
    lines = [line.split(" ", 2) for line in charges]
    return {lane: (float(arrival), int(takes)) for arrival, takes, lane in lines}


def machine_for(url: str) -> type[BudgetsMachine]:
    """The machine on one server."""
    return type("BudgetsMachineOn", (BudgetsMachine,), {"url": url})
