"""Tasks with limits, in any order of operations, and what is always true of their lanes."""

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from expirebridge import Change, State
from expirebridge.connection import clients
from expirebridge.limits.calls import declare_limits, set_limit
from expirebridge.limits.hold_calls import release_hold
from expirebridge.limits.replies import SetLimit
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.task_records import ClaimedTask
from expirebridge.task.calls import claiming, editing, fleet, producing, reconciling
from expirebridge.task.calls.call import Argument, Command, When
from expirebridge.task.calls.claiming import Settlement, Walk
from expirebridge.task.calls.reconciling import EventKind
from expirebridge.task.keys import TriggerKey, parse_key
from expirebridge.task.operations.editing import EDITABLE
from tests.kit.snapshot import fields_of, read_keys, scores_of
from tests.kit.steps import PREFIX, server_ms
from tests.machine.world import age

MINUTE, HOUR = 60, 3600
SETTINGS = Settings(lease=150, keep_succeeded=600, keep_failed=1200)
MINE, OTHER = "aa", "bb"
"""Two codes: the first has all functions, the second only some."""

IDS = ("a", "b", "c", "d", "e", "f")
CALLS = (
    'sms.send?["x"]', 'sms.send?["x"]', 'sms.send?["y"]', "post.send?[1]", "call.make?[1]",
    'step.run?["x"]', 'step.run?["x"]',
)  # fmt: skip
RATED = {"post.send", "call.make"}
"""The functions that have the rate."""
OPERATIONS = (
    "cancel", "pause", "resume", "put off", "put off a little", "bring forward", "reschedule",
    "run_now", "beat",
)  # fmt: skip
HOLDS = ("func sms.send", "func step.run", "tag vip", "all")
SET = (("all", None), ("each", None), ("each", "x"))
"""Limits, and values of them, whose number is set at run time."""
WAIT = 600
"""Seconds that a task waits for a slot of `all` at most."""

ids = st.sampled_from(IDS)
calls = st.sampled_from(CALLS)
delays = st.sampled_from([0, 0, 0, MINUTE])
outcomes = st.sampled_from(
    ["succeeded", "succeeded", "failed", "retry", "snoozed", "released", "unknown", "busy"]
)


def is_ordered(lane: str) -> bool:
    """True for a lane in which one that has begun keeps its slot until it ends."""
    return lane.startswith("line=")


class Numbers(NamedTuple):
    """The numbers of the limits; None: that limit was removed."""

    each: int | None
    all: int
    interval: int
    """Seconds between two starts of the rate."""
    burst: int
    own: tuple[tuple[str, int], ...] = ()
    """Those that were set, by limit and lane, which count instead."""

    def declaration(self, *, is_fair: bool) -> list[tuple[str, bytes]]:
        """The hash `limits` of handlers with these; who waits for `all` may take turns."""
        all = ["all", None, None, None, 0, "to", None] if is_fair else ["all"]
        each = [["each", 0, "to", None]] if self.each is not None else []
        rate = {"starts": 1, "every": self.interval * 1_000_000, "burst": self.burst}
        fields: dict[str, object] = {
            "f sms.send": [*each, all], "f post.send": [["pace"], all],
            "f call.make": [["pace"]], "f step.run": [["line", 0, "to", None], all],
            "l all": {"most": self.all, "wait": WAIT * 1000, "fair": is_fair}, "l pace": rate,
            "l line": {"most": 1, "ordered": True},
        }  # fmt: skip
        if self.each is not None:
            fields["l each"] = {"most": self.each}
        return [(name, json.dumps(value).encode()) for name, value in fields.items()]

    def most(self, lane: str) -> float:
        """The number of slots in a lane that is not one of the rate."""
        own = dict(self.own)
        if lane == "all":
            return own.get(lane, self.all)
        if is_ordered(lane):
            return 1
        return math.inf if self.each is None else own.get(lane, own.get("each", self.each))


numbers = st.builds(
    Numbers, st.sampled_from([1, 1, 2, None]), st.integers(1, 3),
    st.sampled_from([MINUTE, HOUR]), st.integers(1, 2),
)  # fmt: skip


class Lanes:
    """What a database holds of tasks and lanes, read at one moment."""

    def __init__(self, client: redis.Redis) -> None:
        self.now, keys = read_keys(client)
        self.sets: dict[str, dict[str, float]] = defaultdict(dict)
        self.lanes: dict[str, set[str]] = {}
        self.queues: dict[str, dict[str, float]] = {}
        self.tenants: dict[str, dict[str, set[str]]] = defaultdict(dict)
        """For each lane that is fair: the tenants who wait, and the ids of each."""
        self.turns: dict[str, set[str]] = {}
        self.records: dict[str, dict[str, str]] = {}
        self.holds: set[str] = set()
        self.keys = set(keys)
        for name, (kind, content) in keys.items():
            part, _, rest = name.removeprefix(f"{PREFIX}:").partition(":")
            if part == "task":
                self.records[rest] = fields_of(content)
            elif part == "lane":
                self.lanes[rest] = {id.decode() for id in content}
            elif part == "queue" and "\t" in rest:
                lane, _, tenant = rest.partition("\t")
                self.tenants[lane][tenant] = {*scores_of(content)}
            elif part == "turns":
                self.turns[rest] = {*scores_of(content)}
            elif part == "queue":
                self.queues[rest] = scores_of(content)
            elif part == "holds":
                self.holds = set(fields_of(content))
            elif kind == "zset":
                self.sets[part] = scores_of(content)

    def state(self, id: str) -> str:
        return self.records[id].get("state", State.PENDING)

    def slots(self, id: str) -> list[str]:
        return self.records[id].get("slots", "").split()

    def in_state(self, *states: str) -> list[str]:
        return [id for id in sorted(self.records) if self.state(id) in states]

    def check(self, numbers: Numbers, *, is_served: bool, edited: set[str]) -> None:
        """Fail unless records, state sets, lanes and queues agree, and no free slot is left.

        A hold that was released, and a limit that was raised, are served by the next sweep: before
        that, `is_served` is false. One of those `edited` may have begun in another lane.
        """
        for id in self.records:
            places = [state for state in State if id in self.sets[state]]
            assert places == [self.state(id)], id
            assert len(set(self.slots(id))) == len(self.slots(id)), id
            if not all(map(is_ordered, self.slots(id))):
                assert self.state(id) in {"pending", "running", "waiting"}, id
            elif self.slots(id):
                assert not State(self.state(id)).finished, id
            record = self.records[id]
            has_begun = "started" in record and not State(self.state(id)).finished
            if has_begun and record["call"].startswith("step.run?") and id not in edited:
                assert any(map(is_ordered, self.slots(id))), id
        waiting = {id: self.records[id]["queue"] for id in self.in_state("waiting")}
        assert {id for id, record in self.records.items() if "queue" in record} == {*waiting}
        assert all(score <= self.now * 1000 for score in self.sets["waiting"].values())
        self._check_members(waiting)
        self._check_indexes(waiting)
        if is_served:
            assert [lane for lane in self.queues if self.is_open(lane, numbers)] == []

    def _check_members(self, waiting: dict[str, str]) -> None:
        lanes, queues = defaultdict(set), defaultdict(set)
        for id in self.records:
            for lane in self.slots(id):
                lanes[lane].add(id)
        for id, lane in waiting.items():
            queues[lane].add(id)
        assert self.lanes == lanes
        assert {lane: {*queue} for lane, queue in self.queues.items()} == queues

    def _check_indexes(self, waiting: dict[str, str]) -> None:
        granted = {id for id in self.in_state("pending") if self.slots(id)}
        kept = {id for id in granted if any(map(is_ordered, self.slots(id)))}
        assert granted - kept <= {*self.sets["grants"]} <= granted
        assert {*self.sets["waits"]} == {id for id, lane in waiting.items() if lane == "all"}
        load = {
            lane: len(self.lanes.get(lane, ())) + len(self.queues.get(lane, ()))
            for lane in {*self.lanes, *self.queues}
        }
        held = {lane for lane in load if lane.startswith("hold ")}
        assert self.sets["held"] == {lane: load[lane] for lane in held}
        assert self.sets["lanes"] == {lane: load[lane] for lane in load.keys() - held}

    def check_turns(self) -> None:
        """Fail unless each that waits for `all` is in the queue of its tenant."""
        tenants = self.tenants["all"]
        assert self.turns.get("all", set()) == {*tenants}
        those = [id for ids in tenants.values() for id in ids]
        assert sorted(those) == sorted(self.queues.get("all", ()))

    def is_open(self, lane: str, numbers: Numbers) -> bool:
        """True if the first that waits in a lane need not."""
        if lane.startswith("hold "):
            return lane.removeprefix("hold ") not in self.holds
        taken = len(self.lanes.get(lane, ()))
        return taken == 0 if lane == "pace" else taken < numbers.most(lane)

    def leftovers(self) -> list[str]:
        """The keys of lanes, queues and waiting tasks."""
        names = {
            "lane", "queue", "lanes", "held", "waiting", "grants", "waits", "rates", "turns",
            "shares",
        }  # fmt: skip
        parts = {name: name.split(":")[1] for name in self.keys if name.startswith(f"{PREFIX}:")}
        return [name for name, part in parts.items() if part in names]


class LimitsMachine(RuleBasedStateMachine):
    """One database whose handlers have limits."""

    url: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.client = redis.Redis.from_url(self.url)
        self.client.flushall()
        self.store = Store(clients.producer_client(self.url), prefix=PREFIX)
        self.numbers = Numbers(1, 2, HOUR, 1)
        self.codes = [MINE]
        self.runs: list[tuple[str, str]] = []
        self.tokens = 0
        self.is_served = True
        self.is_fair = False
        self.found = Lanes(self.client)
        """All as it was after the last step."""
        self.clock = 0.0
        self.edited: set[str] = set()
        """Tasks that have not run since their arguments were changed."""
        self.starts: list[float] = []
        """When tasks of the rate started, since its numbers were changed."""

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self._run_to_the_end()
        finally:
            self.store.close()
            self.client.close()

    @initialize(
        numbers=numbers, two_codes=st.booleans(), is_fair=st.booleans(),
        some=st.lists(calls, min_size=3, max_size=len(IDS)),
    )  # fmt: skip
    def begin(self, numbers: Numbers, two_codes: bool, is_fair: bool, some: list[str]) -> None:
        self.is_fair = is_fair
        functions = {
            MINE: ("sms.send", "post.send", "call.make", "step.run"),
            OTHER: ("sms.send", "step.run"),
        }  # fmt: skip
        self.codes = [MINE, OTHER] if two_codes else [MINE]
        for code in self.codes:
            self.store.run(fleet.declare(code, dict.fromkeys(functions[code], "1")))
        self._beat()
        self.change_limits(numbers)
        self._sweep()
        self.make_some(some, is_vip=False)
        self.claim(MINE, 100)

    @invariant()
    def agrees(self) -> None:
        found = Lanes(self.client)
        self.edited -= {*found.in_state("running")}
        found.check(self.numbers, is_served=self.is_served, edited=self.edited)
        if self.is_fair:
            found.check_turns()
        for lane, members in found.lanes.items():
            if lane != "pace" and members - self.found.lanes.get(lane, set()):
                assert len(members) <= self.numbers.most(lane), lane
        self.found = found
        for first, start in enumerate(self.starts):
            for number, other in enumerate(self.starts[first:]):
                # The seconds that really pass are far less than an interval.
                most = self.numbers.burst + (other - start) / self.numbers.interval
                assert number + 1 <= most + 0.2

    # Producers

    @rule(
        id=ids, call=calls, delay=delays, is_vip=st.booleans(),
        if_exists=st.sampled_from(["reject", "keep", "replace", "extend"]),
    )  # fmt: skip
    def make(self, id: str, call: str, delay: int, is_vip: bool, if_exists: str) -> None:
        self._make(id, call, delay, {"tags": "vip"} if is_vip else {}, if_exists)

    def _make(
        self, id: str, call: str, delay: int, fields: dict[str, Argument], if_exists: str
    ) -> None:
        fields["ttl"] = MINUTE * 1000
        new = producing.NewTask(
            id=id, has_random_id=False, if_exists=if_exists, call=call.encode(),
            when=When(delay * 1000, relative=True), fields=fields,
        )  # fmt: skip
        self.store.run(producing.make([new]))

    @rule(some=st.lists(calls, min_size=1, max_size=len(IDS)), is_vip=st.booleans())
    def make_some(self, some: list[str], is_vip: bool) -> None:
        """Make several that are due now."""
        for id, call in zip(IDS, some, strict=False):
            self.make(id, call, 0, is_vip, "reject")

    @rule(id=ids, operation=st.sampled_from(OPERATIONS))
    def change(self, id: str, operation: str) -> None:
        def to(delay: int) -> When:
            return When(server_ms(self.client) + delay * 1000, relative=False)

        commands: dict[str, Callable[[], Command[Any]]] = {
            "cancel": lambda: producing.cancel([id], keep=SETTINGS.keep_succeeded),
            "pause": lambda: producing.pause([id]),
            "resume": lambda: producing.resume([id]),
            "put off": lambda: producing.put_off([id], MINUTE),
            "put off a little": lambda: producing.put_off([id], 0.001),
            "bring forward": lambda: producing.reschedule(id, to(-MINUTE)),
            "reschedule": lambda: producing.reschedule(id, to(MINUTE)),
            "run_now": lambda: producing.run_now(id),
            "beat": lambda: producing.beat(id),
        }
        self.store.run(commands[operation]())

    @rule(id=ids, to=st.sampled_from(["x", "y"]))
    def edit_arguments(self, id: str, to: str) -> None:
        found = self.store.run(editing.read_task(id))
        if found is not None and found.task.state in EDITABLE:
            self.edited.add(id)
            assert self.store.run(editing.edit(id, found, f'["{to}"]'.encode())) is Change.EDITED

    # Other clients, with plain commands

    @rule(id=ids, call=calls, edit=st.sampled_from(["SET PX", "SET", "EXPIRE", "PERSIST", "DEL"]))
    def edit(self, id: str, call: str, edit: str) -> None:
        name = f"{id}:?{call}"
        commands: dict[str, Callable[[], object]] = {
            "SET PX": lambda: self.client.set(name, "", px=MINUTE * 1000),
            "SET": lambda: self.client.set(name, ""),
            "EXPIRE": lambda: self.client.expire(name, 2 * MINUTE),
            "PERSIST": lambda: self.client.persist(name),
            "DEL": lambda: self.client.delete(name),
        }
        commands[edit]()

    @rule(id=ids, call=calls, heard=st.sampled_from(EventKind))
    def hear(self, id: str, call: str, heard: EventKind) -> None:
        name = f"{id}:?{call}".encode()
        if self.store.run(reconciling.find_unexplained([name], heard)):
            key = parse_key(name)
            assert isinstance(key, TriggerKey)
            hint = reconciling.KeyEvent.of(key, name, heard)
            self.store.run(reconciling.adopt([hint], SETTINGS))

    @rule()
    def scan(self) -> None:
        assert self.store.run(reconciling.scan("0", 1000, SETTINGS)).repaired == []

    @rule(hold=st.sampled_from(HOLDS))
    def hold_or_release(self, hold: str) -> None:
        if self.client.hdel(f"{PREFIX}:holds", hold):
            self.is_served = False
        else:
            self.client.hset(f"{PREFIX}:holds", hold, "by hand")

    @rule(hold=st.sampled_from(HOLDS))
    def release_over_a_time(self, hold: str) -> None:
        self.store.run(release_hold(hold, spread=MINUTE))

    # Listeners

    @rule(numbers=numbers)
    def change_limits(self, numbers: Numbers) -> None:
        self.store.run(declare_limits("dd", numbers.declaration(is_fair=self.is_fair)))
        self.numbers = numbers._replace(own=self.numbers.own)
        self.is_served, self.starts = False, []

    @rule(
        which=st.sampled_from(SET), number=st.sampled_from([None, 1, 2, 3]), by_hand=st.booleans()
    )
    def set_number(self, which: tuple[str, str | None], number: int | None, by_hand: bool) -> None:
        """Set a number instead of the declared one, as a command does or as any client may."""
        limit, value = which
        own = dict(self.numbers.own)
        if by_hand:
            key, field = f"{PREFIX}:numbers", limit if value is None else f"{limit} {value}"
            if number is None:
                self.client.hdel(key, field)
            else:
                self.client.hset(key, field, number)
        elif self.store.run(set_limit(limit, value, number)) is not SetLimit.DONE:
            assert limit == "each"
            assert self.numbers.each is None
            return
        lane = limit if value is None else f"{limit}={value}"
        own.pop(lane, None)
        if number is not None:
            own[lane] = number
        self.numbers, self.is_served = self.numbers._replace(own=tuple(own.items())), False

    @rule(numbers=numbers, some=st.lists(calls, min_size=1, max_size=len(IDS)))
    def change_limits_and_claim(self, numbers: Numbers, some: list[str]) -> None:
        """Tasks come between a change of limits and the sweep that serves who waits."""
        self.change_limits(numbers)
        self.make_some(some, is_vip=False)
        self.claim(MINE, 100)

    def _beat(self) -> None:
        for code in self.codes:
            held = self.runs if code == MINE else []
            self.store.run(claiming.heartbeat(f"of {code}", SETTINGS.lease, held, code=code))

    @rule(places=st.sampled_from([1, 2, 100]))
    def claim_any(self, places: int) -> None:
        self.claim(MINE, places)

    @rule(code=st.sampled_from([MINE, OTHER]), places=st.sampled_from([1, 2, 100]))
    def claim(self, code: str, places: int) -> None:
        self.tokens += 1
        token = f"token-{self.tokens}"
        if len(self.codes) > 1:
            whole = [Walk(b"-inf", b"", b"+inf", 1)]
            claimed = self.store.run(
                claiming.claim_known(
                    token, SETTINGS, places=places, idle=True, limits="dd", code=code, walks=whole
                )
            )
        else:
            claimed = self.store.run(
                claiming.claim(token, SETTINGS, places=places, idle=True, limits="dd")
            )
        assert claimed.refusal is None
        self.runs += [(task.id, token) for task in claimed.tasks]
        self.starts += [self.clock for task in claimed.tasks if task.func in RATED]
        after = Lanes(self.client)
        for task in claimed.tasks:
            for lane in after.slots(task.id):
                assert len(after.lanes[lane]) <= self.numbers.most(lane), (task.id, lane)
        self._check_that_none_was_overtaken(claimed.tasks, after)

    def _check_that_none_was_overtaken(self, tasks: Iterable[ClaimedTask], after: Lanes) -> None:
        """Where others wait, only those run who were granted their slots before."""
        for task in tasks:
            for lane in [*after.slots(task.id), *(["pace"] if task.func in RATED else [])]:
                turn = self.found.records.get(task.id, {}).get("turn", "")
                if self.found.queues.get(lane) and not turn.endswith(f" {lane}"):
                    assert task.id in self.found.lanes[lane], (task.id, lane)

    @precondition(lambda self: self.runs)
    @rule(back=st.integers(0, 4), outcome=outcomes, delay=delays)
    def settle(self, back: int, outcome: str, delay: int) -> None:
        id, token = self.runs.pop(-1 - back % len(self.runs))
        self.store.run(
            claiming.settle([Settlement(id, token, outcome, delay, "", "pace")], SETTINGS)
        )

    @precondition(lambda self: self.runs)
    @rule(number=st.integers(1, 5))
    def settle_many(self, number: int) -> None:
        """Several succeed at once."""
        over, self.runs = self.runs[:number], self.runs[number:]
        settlements = [Settlement(id, token, "succeeded") for id, token in over]
        self.store.run(claiming.settle(settlements, SETTINGS))

    @rule(id=ids, ends=st.sampled_from(["running", "grants", "waits"]))
    def run_out(self, id: str, ends: str) -> None:
        """A lease ends, a grant that no listener took, or the longest wait."""
        self._beat()
        if self.client.zadd(f"{PREFIX}:{ends}", {id: 0}, xx=True, ch=True) and ends == "waits":
            self.client.hset(f"{PREFIX}:task:{id}", "parked", 0)
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

    @rule(seconds=st.sampled_from([MINUTE, MINUTE, HOUR]))
    def pass_time(self, seconds: int) -> None:
        age(self.client, seconds)
        self.clock += seconds
        self._beat()

    # The end

    def _run_to_the_end(self) -> None:
        """Once nothing is held, all run, and nothing is left of their lanes."""
        self.client.delete(f"{PREFIX}:holds")
        for _ in range(60):
            found = Lanes(self.client)
            if not found.in_state("pending", "paused", "running", "waiting"):
                break
            for id in found.in_state("paused"):
                self.store.run(producing.resume([id]))
            self.runs = [(id, found.records[id]["token"]) for id in found.in_state("running")]
            self.settle_many(len(self.runs))
            self._sweep()
            self.agrees()
            self.claim(MINE, 100)
            self.agrees()
            self.pass_time(HOUR)
        else:
            raise AssertionError(f"these never end: {Lanes(self.client).records}")
        for _ in range(3):
            age(self.client, HOUR)
            self._sweep()
        assert Lanes(self.client).leftovers() == []


def machine_for(url: str) -> type[LimitsMachine]:
    """The machine on one server."""
    return type("LimitsMachineOn", (LimitsMachine,), {"url": url})
