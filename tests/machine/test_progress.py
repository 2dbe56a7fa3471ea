"""Handlers whose lanes overlap: none has room while somebody waits in it, and all end in time.

The names of functions and limits are drawn: no order in which the server keeps them may matter.
"""

import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest
import redis
from hypothesis import HealthCheck, Phase, event, given, note, settings

from expirebridge.limits.calls import declare_limits
from expirebridge.settings import Settings
from expirebridge.store import script_loader
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming, producing
from expirebridge.task.calls.claiming import Settlement, Walk
from tests.kit.steps import PREFIX, new, server_ms
from tests.machine.lane_plans import STEP, Plan, few_at_once, plans
from tests.machine.limits_machine import Lanes
from tests.machine.world import age

EXAMPLES = int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "10"))
SETTINGS = Settings(lease=3600)


@dataclass
class Run:
    """A listener that claims all that it may, and runs it for so many steps."""

    plan: Plan
    client: redis.Redis
    store: Store
    running: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By id: the token of its claim, and how many steps are left."""
    ended_at: dict[str, int] = field(default_factory=dict)
    tokens: int = 0

    def begin(self) -> None:
        self.client.flushall()
        for code in ("aa", "bb")[: self.plan.codes]:
            self.store.run(claiming.heartbeat(f"of {code}", 3600, [], code=code))
        self.store.run(declare_limits("dd", self.plan.declaration()))
        due = server_ms(self.client) - 60_000
        for number, (place, argument) in enumerate(self.plan.tasks):
            call = f'{self.plan.handlers[place][0]}?["{argument}"]'.encode()
            task = new(f"{place}-{number}", due + number, call=call, relative=False)
            self.store.run(producing.make([task]))

    def step(self, now: int) -> None:
        """End what has run long enough, and claim until nothing is left to claim."""
        over = [id for id, (_, left) in self.running.items() if left <= 1]
        ended = [Settlement(id, self.running.pop(id)[0], "succeeded") for id in over]
        self.running = {id: (token, left - 1) for id, (token, left) in self.running.items()}
        self.ended_at |= dict.fromkeys(over, now)
        if ended:
            self.store.run(claiming.settle(ended, SETTINGS, claims=100))
        while self._claim():
            pass

    def _claim(self) -> bool:
        """True if it is worth while to claim again."""
        self.tokens += 1
        token = f"token-{self.tokens}"
        if self.plan.codes > 1:
            call = claiming.claim_known(
                token, SETTINGS, places=100, idle=True, limits="dd", code="aa",
                walks=[Walk(b"-inf", b"", b"+inf", 1)],
            )  # fmt: skip
        else:
            call = claiming.claim(token, SETTINGS, places=100, idle=True, limits="dd")
        claim = self.store.run(call)
        for task in claim.tasks:
            self.running[task.id] = (token, self.plan.durations[int(task.id[0])])
        is_due = claim.next_due is not None and claim.next_due * 1000 <= claim.now_us
        found = self.client.zcount(f"{PREFIX}:pending", "-inf", claim.now_us // 1000)
        return bool(claim.tasks or claim.parked or is_due or found)

    def check(self) -> None:
        """Fail if a lane has room although a task waits in it."""
        found = Lanes(self.client)
        for lane in found.queues:
            name = lane.partition("=")[0]
            [kind] = [kind for kind, limit in self.plan.limits.items() if limit == name]
            taken = len(found.lanes.get(lane, ()))
            if kind == "rate":
                assert taken > 0 or found.sets["rates"][lane] > found.now * 1e6, lane
            else:
                assert taken >= (1 if kind == "line" else self.plan.most[kind]), lane

    def run(self) -> None:
        self.begin()
        most = latest(self.plan)
        now = 0
        while len(self.ended_at) < len(self.plan.tasks):
            self.step(now)
            self.check()
            late = [id for id, by in most.items() if id not in self.ended_at and now > by]
            assert not late, f"by step {now} these have not ended: {late}"
            age(self.client, STEP)
            now += 1
        assert Lanes(self.client).leftovers() in ([], [f"{PREFIX}:rates"])


def latest(plan: Plan) -> dict[str, int]:
    """By which step each task has ended, however long others run that want other lanes.

    A task is charged for a rate twice at most: for its turn, and for its start. While it waits for
    that start, it keeps its slots.
    """
    counts = Counter(place for place, _ in plan.tasks)
    wanting: dict[str, int] = defaultdict(int)
    for place, (_, kinds) in enumerate(plan.handlers):
        for kind in kinds:
            wanting[kind] += counts[place]
    work = sum(plan.durations[place] for place, _ in plan.tasks)
    rated = (2 * wanting["rate"] + 2) * (plan.interval + 1)
    bounds = {}
    for number, (place, _) in enumerate(plan.tasks):
        kinds = plan.handlers[place][1]
        if not kinds:
            bound = plan.durations[place] + 1
        elif kinds == ("rate",):
            bound = rated + plan.durations[place]
        elif "rate" not in kinds and not any("rate" in those for _, those in plan.handlers):
            bound = work + 1
        else:
            bound = work + rated
        bounds[f"{place}-{number}"] = bound + 1
    return bounds


@pytest.mark.timeout(3600)
def test_no_lane_has_room_while_somebody_waits_in_it(client: redis.Redis, store: Store) -> None:
    @settings(
        max_examples=3 * EXAMPLES, deadline=None, report_multiple_bugs=False, print_blob=True,
        phases={Phase.generate} | ({Phase.shrink} if EXAMPLES >= 1000 else set()),
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    @given(plan=plans())
    def make_progress(plan: Plan) -> None:
        kinds = sorted("+".join(kinds) for _, kinds in plan.handlers)
        note(f"{plan}")
        event(", ".join(kinds))
        Run(plan, client, store).run()

    with script_loader.using(few_at_once()):
        make_progress()
