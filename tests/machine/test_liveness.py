"""No lane stands still while somebody waits in it and it has room: after each step on the way.

Listeners claim, end what they run, fall silent with it, and time passes, in any order. A listener
that is killed never settles its claims: their leases lapse. Tasks are in two and three lanes, in
which they meet others.
"""

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import pytest
import redis
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store import script_loader
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, fleet, producing, reconciling
from expirebridge.task.calls.claiming import Settlement, Walk
from tests.kit.steps import PREFIX, new, server_ms
from tests.machine.lane_plans import STEP, Plan, few_at_once, plans
from tests.machine.limits_machine import Lanes
from tests.machine.world import age

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "10"))
STEPS = 40
SETTINGS = Settings(lease=600)
LISTENERS = {"one": "aa", "two": "aa", "three": "bb"}
"""Each with its code; if the fleet has one code, that of the first."""
MANY_LANES: list[tuple[str, ...]] = [
    ("rate", "each", "all"), ("line", "each", "all"), ("line", "rate", "all"),
]  # fmt: skip


@st.composite
def wide_plans(draw: st.DrawFn) -> Plan:
    """A plan in which at least one function has three lanes, which it shares with others."""
    plan = draw(plans())
    first, *others = plan.handlers
    return replace(plan, handlers=[(first[0], draw(st.sampled_from(MANY_LANES))), *others])


@dataclass
class Life:
    """A database, and the listeners that use it."""

    plan: Plan
    client: redis.Redis
    store: Store
    drawn: random.Random
    running: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """What each listener runs: ids, and the tokens of their claims."""
    number: int = 0

    def begin(self) -> None:
        self.client.flushall()
        self.running = {name: [] for name in LISTENERS}
        functions = dict.fromkeys([func for func, _ in self.plan.handlers], "1")
        for code in {self.code_of(name) for name in LISTENERS}:
            self.store.run(fleet.declare(code, functions))
        self.beat()
        self.store.run(declare_limits("dd", self.plan.declaration()))
        self.make()

    def code_of(self, listener: str) -> str:
        return LISTENERS[listener] if self.plan.codes > 1 else "aa"

    def beat(self) -> None:
        for name, held in self.running.items():
            self.store.run(claiming.heartbeat(name, 600, held, code=self.code_of(name)))

    # What may happen

    def make(self) -> None:
        due = server_ms(self.client) - 60_000
        for place, argument in self.plan.tasks[:12]:
            self.number += 1
            call = f'{self.plan.handlers[place][0]}?["{argument}"]'.encode()
            task = new(f"t{self.number:04}", due + self.number, call=call, relative=False)
            self.store.run(producing.make([task]))

    def claim(self, places: int = 0) -> None:
        name = self.drawn.choice([*LISTENERS])
        self.number += 1
        token = f"token-{self.number}"
        places = places or self.drawn.choice([1, 2, 100])
        if self.plan.codes > 1:
            walks = [Walk(b"-inf", b"", b"+inf", 1)]
            call = claiming.claim_known(
                token, SETTINGS, places=places, idle=True, limits="dd", code=self.code_of(name),
                walks=walks,
            )  # fmt: skip
        else:
            call = claiming.claim(token, SETTINGS, places=places, idle=True, limits="dd")
        self.running[name] += [(task.id, token) for task in self.store.run(call).tasks]

    def settle(self) -> None:
        held = self.running[self.drawn.choice([*LISTENERS])]
        self.drawn.shuffle(held)
        over = [held.pop() for _ in range(self.drawn.randint(0, len(held)))]
        outcomes = ["succeeded", "succeeded", "retry", "snoozed", "released", "failed"]
        ended = [
            Settlement(id, token, self.drawn.choice(outcomes), self.drawn.choice([0, 60]))
            for id, token in over
        ]
        if ended:
            self.store.run(claiming.settle(ended, SETTINGS, claims=100))

    def kill(self) -> None:
        """A listener falls silent; after its leases, another sweep finds what it ran."""
        self.running[self.drawn.choice([*LISTENERS])] = []
        self.beat()
        age(self.client, SETTINGS.lease * 0.6)
        self.beat()
        age(self.client, SETTINGS.lease * 0.6)
        self.beat()
        self.sweep()

    def miss(self) -> None:
        """Nobody takes what was granted, for a lease."""
        age(self.client, SETTINGS.lease * 0.6)
        self.beat()
        age(self.client, SETTINGS.lease * 0.6)
        self.beat()
        self.sweep()

    def change(self) -> None:
        """A producer changes one that waits, or is about to run."""
        ids = [*self._ids("waiting"), *self._ids("pending")]
        if not ids:
            return
        id = self.drawn.choice(ids)
        match self.drawn.choice(["cancel", "pause", "put off", "run now"]):
            case "cancel":
                self.store.run(producing.cancel([id], keep=60))
            case "pause":
                self.store.run(producing.pause([id]))
            case "put off":
                self.store.run(producing.put_off([id], 60))
            case "run now":
                self.store.run(producing.run_now(id))

    def sweep(self) -> None:
        while True:
            swept = self.store.run(reconciling.sweep(SETTINGS))
            assert swept.mended == 0
            if not swept.more:
                return

    def pass_time(self) -> None:
        age(self.client, self.drawn.choice([STEP, 3 * STEP, 90]))
        self.beat()

    def step(self) -> str:
        steps: list[Callable[[], None]] = [
            self.make, self.claim, self.claim, self.claim, self.claim, self.settle, self.settle,
            self.kill, self.miss, self.change, self.sweep, self.pass_time, self.pass_time,
        ]  # fmt: skip
        step = self.drawn.choice(steps)
        step()
        return step.__name__

    def _ids(self, state: str) -> list[str]:
        ids: Iterable[bytes] = self.client.zrange(f"{PREFIX}:{state}", 0, -1)  # type: ignore[assignment]
        return [id.decode() for id in ids]

    # What is true

    def check(self) -> None:
        """Fail if a lane has room although a task waits in it, unless the next claim serves it."""
        found = Lanes(self.client)
        left: Iterable[bytes] = self.client.smembers(f"{PREFIX}:unserved")  # type: ignore[assignment]
        unserved = {lane.decode() for lane in left}
        for lane in found.queues.keys() - unserved:
            assert not self.has_room(lane, found), lane

    def has_room(self, lane: str, found: Lanes) -> bool:
        """True if the first that waits in a lane need not: of a rate one is always the next."""
        name = lane.partition("=")[0]
        [kind] = [kind for kind, limit in self.plan.limits.items() if limit == name]
        taken = len(found.lanes.get(lane, ()))
        return taken < {"line": 1, "rate": 1, **self.plan.most}[kind]

    def end(self) -> None:
        """All that is left runs, and nothing is left of its lanes."""
        for _ in range(400):
            self.claim(places=100)
            self.check()
            for held in self.running.values():
                over = [Settlement(id, token, "succeeded") for id, token in held]
                held.clear()
                if over:
                    self.store.run(claiming.settle(over, SETTINGS))
                self.check()
            if not (self._ids("pending") or self._ids("waiting") or self._ids("running")):
                break
            age(self.client, 90)
            for id in self._ids("paused"):
                self.store.run(producing.resume([id]))
            self.beat()
            self.sweep()
        else:
            raise AssertionError(f"these never end: {Lanes(self.client).records}")
        for _ in range(3):
            age(self.client, 3600)
            self.sweep()
        assert Lanes(self.client).leftovers() == []


@pytest.mark.timeout(3600)
def test_no_lane_stands_still(client: redis.Redis, store: Store) -> None:
    @settings(
        max_examples=EXAMPLES, deadline=None, report_multiple_bugs=False, print_blob=True,
        phases={Phase.generate} | ({Phase.shrink} if EXAMPLES >= 1000 else set()),
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(plan=wide_plans(), seed=st.integers(0, 2**32))
    def live(plan: Plan, seed: int) -> None:
        life = Life(plan, client, store, random.Random(seed))  # noqa: S311 - to be repeated
        note(f"{plan}")
        life.begin()
        life.check()
        for _ in range(STEPS):
            note(life.step())
            life.check()
        life.end()

    with script_loader.using(few_at_once()):
        live()
