"""Ordered lanes through holds and a move: tasks begin in their order, one at a time.

Two databases, of which the second gets the tasks of the first once a move has begun. The machine
knows each task and its due time, and judges each claim by that. Two things it reads from the
database: who was granted the slot of its lane while others were on hold, since nobody takes that
back; and, in the end, who was let go at a moment that is to come.
"""

import json
import sys
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from expirebridge import Change, State
from expirebridge.limits.calls import declare_limits, let_pass
from expirebridge.limits.hold_calls import put_hold, release_hold
from expirebridge.moving.migrator import Migrator
from expirebridge.task.calls import claiming, producing, reconciling
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.task import to_ms
from tests.kit.sides import Side, migrator_of
from tests.kit.steps import new as new_task
from tests.kit.steps import server_ms

LIMITS = [
    ("f step.run", b'[["line",0,"to",null]]'),
    ("f step.walk", b'[["line",0,"to",null],["all"]]'),
    ("l line", b'{"most":1,"ordered":true,"blocks":true}'),
    ("l all", b'{"most":2}'),
]
LANES = st.sampled_from("xy")
FUNCTIONS = st.sampled_from(["step.run", "step.run", "step.walk"])
HOLDS = ("func step.run", "tag vip")
ALL = 100
SERVED_AT_ONCE = 100
"""So many a release lets go at once; sweeps let go the others."""


@dataclass
class Known:
    """A task as the machine knows it."""

    id: str
    lane: str
    func: str
    due: int
    is_vip: bool
    is_early: bool
    """Made in the old database before the lanes of the new one were opened, or in the new one."""
    side: Side
    is_known: bool = False
    """True once a claim has looked at it, or it has moved: it is not overtaken from then on."""
    has_begun: bool = False
    has_failed: bool = False
    is_over: bool = False
    token: str | None = None
    """That of the claim that runs it."""
    passes: set[str] = field(default_factory=set)
    """The ids of those that were let go when it had its slot: nobody takes that back."""

    @property
    def place(self) -> tuple[int, str]:
        """Its place in the order of its lane."""
        return self.due, self.id


@dataclass
class World:
    """What the machine knows."""

    tasks: dict[str, Known] = field(default_factory=dict)
    holds: set[str] = field(default_factory=set)

    def in_lane(self, task: Known) -> list[Known]:
        """The others of its lane that have not ended."""
        return [
            one
            for one in self.tasks.values()
            if one.lane == task.lane and not one.is_over and one is not task
        ]

    def is_held(self, task: Known) -> bool:
        """True if a hold keeps it back."""
        return f"func {task.func}" in self.holds or (task.is_vip and "tag vip" in self.holds)


class OrderMachine(RuleBasedStateMachine):
    """Two databases with the same ordered limit."""

    urls: ClassVar[tuple[str, str]]

    def __init__(self) -> None:
        super().__init__()
        self.old, self.new = (Side(url, 1) for url in self.urls)
        for side in (self.old, self.new):
            side.client.flushdb()
            side.parts[0].run(declare_limits("dd", LIMITS))
        self.world = World()
        self.migrator: Migrator | None = None
        self.tokens = 0

    def teardown(self) -> None:
        try:
            if sys.exception() is None:
                self._run_to_the_end()
        finally:
            self.old.close()
            self.new.close()

    def _sides(self) -> tuple[Side, ...]:
        return (self.old, self.new) if self.migrator else (self.old,)

    @initialize(many=st.booleans(), are_listeners_there=st.booleans())
    def begin(self, many: bool, are_listeners_there: bool) -> None:
        if are_listeners_there:
            self.old.beat()
        if many:
            # More than a release lets go at once, all before the others.
            now = server_ms(self.old.client)
            self.old.parts[0].run(
                producing.make([
                    new_task(
                        f"many{n:03}", now - 120_000, call=b"other.run?[]", relative=False,
                        fields={"tags": "vip"},
                    )
                    for n in range(SERVED_AT_ONCE)
                ])
            )  # fmt: skip
            self.set_hold("tag vip")
            self._claim(self.old, 100)

    # Producers

    @rule(
        lane=LANES, func=FUNCTIONS, is_vip=st.booleans(), there=st.booleans(),
        seconds=st.sampled_from([-60, -60, -30, -1, 3, 3600]), count=st.integers(1, 3),
    )  # fmt: skip
    def make(
        self, lane: str, func: str, is_vip: bool, there: bool, seconds: int, count: int
    ) -> None:
        side = self.new if there and self.migrator else self.old
        is_open = self.migrator is not None and not self.new.client.hexists(
            "expirebridge:arrivals", "closed"
        )
        for _ in range(count):
            id = f"t{len(self.world.tasks):04}"
            due = server_ms(side.client) + seconds * 1000
            call = f"{func}?{json.dumps([lane])}".encode()
            fields = {"tags": "vip"} if is_vip else {}
            side.parts[0].run(
                producing.make([new_task(id, due, call=call, relative=False, fields=fields)])
            )
            self.world.tasks[id] = Known(
                id, lane, func, due, is_vip, is_early=side is self.new or not is_open, side=side
            )

    @rule(name=st.sampled_from(HOLDS))
    def set_hold(self, name: str) -> None:
        for side in (self.old, self.new):
            side.parts[0].run(put_hold(name, until=None, reason="", by=""))
        self.world.holds.add(name)

    @rule(name=st.sampled_from(HOLDS), spread=st.sampled_from([0, 0, 60]))
    def release(self, name: str, spread: int) -> None:
        for task in self.world.tasks.values():
            if not task.has_begun and self._has_slot(task):
                task.passes |= {
                    one.id for one in self.world.in_lane(task) if self.world.is_held(one)
                }
        for side in (self.old, self.new):
            side.parts[0].run(release_hold(name, spread=spread))
        self.world.holds.discard(name)

    # Listeners

    @rule(there=st.booleans(), places=st.sampled_from([1, 2, ALL]))
    def claim(self, there: bool, places: int) -> None:
        self._claim(self.new if there and self.migrator else self.old, places)

    def _claim(self, side: Side, places: int) -> int:
        self.tokens += 1
        token = f"token-{self.tokens}"
        for one in self.world.tasks.values():
            if one.passes and not self._has_slot(one):
                one.passes = set()
        claimed = side.parts[0].run(
            claiming.claim(token, side.settings, places=places, idle=True, limits="dd")
        )
        for found in claimed.tasks:
            task = self.world.tasks.get(found.id)
            if task is None:
                side.parts[0].run(
                    claiming.settle([Settlement(found.id, token, "succeeded")], side.settings)
                )
            else:
                self._judge(task, side)
                task.token, task.has_begun, task.side = token, True, side
        if places == ALL:
            now = server_ms(side.client)
            for task in self.world.tasks.values():
                task.is_known = task.is_known or (task.side is side and task.due <= now)
        return len(claimed.tasks)

    def _has_slot(self, task: Known) -> bool:
        lanes = task.side.record(task.id).get(b"slots", b"").split(b"\n")
        return f"line={task.lane}".encode() in lanes

    def _judge(self, task: Known, side: Side) -> None:
        """Fail if a task must not begin, or go on, now."""
        assert not task.is_over, task
        assert task.has_begun or not self.world.is_held(task), task
        for other in self.world.in_lane(task):
            assert other.token is None, (task, other)
            if task.has_begun:
                continue
            # A retry comes first, and one that failed holds its lane.
            assert not other.has_begun, (task, other)
            is_before = other.id < task.id and other.place < task.place
            # What is made in the old database once the lanes were opened is known later.
            is_known = other.is_known and (other.is_early or other.side is side)
            is_passed = self.world.is_held(other) or other.id in task.passes
            assert not is_before or not is_known or is_passed, (task, other)

    @precondition(lambda self: any(one.token for one in self.world.tasks.values()))
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["succeeded", "succeeded", "retry", "retry later", "failed"]),
    )
    def settle(self, data: st.DataObject, outcome: str) -> None:
        running = [one for one in self.world.tasks.values() if one.token]
        self._settle(data.draw(st.sampled_from(running)), outcome)

    def _settle(self, task: Known, outcome: str) -> None:
        delay = 3600 if outcome == "retry later" else 0
        assert task.token is not None
        settlement = Settlement(task.id, task.token, outcome.split(maxsplit=1)[0], delay)
        task.side.parts[0].run(claiming.settle([settlement], task.side.settings))
        task.token = None
        task.is_over = outcome == "succeeded"
        task.has_failed = outcome == "failed"

    @rule(data=st.data(), passes=st.booleans())
    def go_on(self, data: st.DataObject, passes: bool) -> None:
        """One that waits for a retry, or failed, runs again, or the failed one is let pass."""
        begun = [
            one
            for one in self.world.tasks.values()
            if one.has_begun and not one.is_over and not one.token
        ]
        if not begun:
            return
        task = data.draw(st.sampled_from(begun))
        for side in self._sides():
            if task.has_failed and passes:
                change = side.parts[0].run(let_pass(task.id))
                task.is_over = task.is_over or change is Change.PASSED
        if not (task.has_failed and passes):
            self._run_now(task)

    def _run_now(self, task: Known) -> None:
        for side in self._sides():
            side.bridge.run_now(task.id)
            if found := side.bridge.get(task.id):
                task.due = to_ms(found.due)
        task.has_failed = False

    @rule(there=st.booleans())
    def sweep(self, there: bool) -> None:
        self._sweep(self.new if there else self.old)

    def _sweep(self, side: Side) -> None:
        side.parts[0].run(reconciling.sweep(side.settings))

    @rule(is_there=st.booleans())
    def listener_comes_or_goes(self, is_there: bool) -> None:
        if is_there:
            self.old.beat()
        else:
            self.old.leave()

    # The move

    @precondition(lambda self: self.migrator is None)
    @rule()
    def begin_move(self) -> None:
        self.migrator = migrator_of(self.old, self.new)
        self.migrator.begin()

    @precondition(lambda self: self.migrator is not None)
    @rule(is_new=st.booleans())
    def go_on_with_move(self, is_new: bool) -> None:
        assert self.migrator is not None
        if is_new:
            self.migrator = migrator_of(self.old, self.new)
            self.migrator.begin()
        self.migrator.run_pass()
        for task in self.world.tasks.values():
            if task.side is self.old and self.new.record(task.id):
                task.side, task.is_known = self.new, True

    # The end

    def _run_to_the_end(self) -> None:
        """Once nothing is held, each runs, and nothing is left of the lanes."""
        for name in HOLDS:
            self.release(name, 0)
        self.old.leave()
        tasks = self.world.tasks.values()
        for _ in range(400):
            if all(one.is_over for one in tasks):
                break
            if self.migrator is not None:
                self.go_on_with_move(is_new=False)
            claimed = 0
            for side in self._sides():
                self._sweep(side)
                claimed += self._claim(side, ALL)
            for task in tasks:
                if task.token:
                    self._settle(task, "succeeded")
                elif not task.is_over and (
                    task.has_begun
                    or task.due > server_ms(self.old.client)
                    or (claimed == 0 and self._is_let_go_later(task))
                ):
                    self._run_now(task)
        else:
            raise AssertionError([one for one in tasks if not one.is_over])
        for side in self._sides():
            assert side.client.keys("expirebridge:lane*") == []
            assert side.client.keys("expirebridge:queue*") == []

    def _is_let_go_later(self, task: Known) -> bool:
        """True if a hold let it go at a moment that is to come."""
        found = task.side.bridge.get(task.id)
        return (
            found is not None
            and found.state is State.PENDING
            and to_ms(found.due) > server_ms(task.side.client)
        )


def machine_for(first: str, second: str) -> type[OrderMachine]:
    """The machine on two databases."""
    return type("OrderMachineOn", (OrderMachine,), {"urls": (first, second)})
