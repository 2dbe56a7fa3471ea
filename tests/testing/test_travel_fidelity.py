"""Travel starts the same attempts in the same order as a listener that really waits.

A random program runs twice: in a travel, with seconds of minutes between its due times, and with a
real listener, at a thousandth of that, or slower on a busy machine.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal

import pytest
import redis
from hypothesis import HealthCheck, Phase, assume, event, given, settings
from hypothesis import strategies as st

from expirebridge import Bridge, Retry, State, current_task
from expirebridge.settings import Settings
from expirebridge.testing import Clock
from tests.kit.witness import Witness, listening

SLOT = 25.0
"""Seconds of a travel between two due times, at least: 25 ms of the real run."""
LONGEST = 50
"""Slots that a program takes at most: 1.25 s."""
EXAMPLES = 12
SCALES = (1000, 500, 250, 125, 60)
"""A busy machine may hold a real run up for longer than a slot: the next one has longer ones."""

Start = tuple[str, int]
"""A task's id, and the number of the attempt."""
Course = tuple[list[Start], dict[str, tuple[State, int]]]
"""The starts in their order; and each task's state and attempts in the end."""


@dataclass(frozen=True)
class Effect:
    """What a handler does to a task, or the program once it has made all.

    Not a plain DEL: a listener believes it after a tenth of a second, which is not scaled.
    """

    kind: Literal["reschedule", "expire", "cancel", "pause", "make"]
    target: int
    slots: int


@dataclass(frozen=True)
class Step:
    """What one call of a task's handler does."""

    end: Literal["succeed", "fail", "retry"]
    slots: int
    """Until it runs again, with `retry`."""
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Program:
    """Tasks by their numbers: slots until each is due, and its handler's steps."""

    dues: tuple[int, ...]
    steps: tuple[tuple[Step, ...], ...]
    retry: tuple[int, ...]
    at_first: tuple[Effect, ...]


slots = st.integers(1, 19)
effects = st.builds(
    Effect,
    kind=st.sampled_from(["reschedule", "expire", "expire", "cancel", "pause", "make"]),
    target=st.integers(0, 4),
    slots=slots,
)
some_effects = st.lists(effects, max_size=1).map(tuple)
steps = st.builds(
    Step,
    end=st.sampled_from(["succeed", "fail", "fail", "retry"]),
    slots=slots,
    effects=some_effects,
)
programs = st.builds(
    Program,
    dues=st.lists(slots, min_size=5, max_size=5, unique=True).map(tuple),
    steps=st.lists(st.lists(steps, max_size=2).map(tuple), min_size=5, max_size=5).map(tuple),
    retry=st.lists(slots, min_size=1, max_size=1).map(tuple),
    at_first=some_effects,
)


class Run:
    """One run of a program, with so many seconds for a slot."""

    def __init__(self, program: Program, slot: float, bridge: Bridge, client: redis.Redis) -> None:
        self._program = program
        self._slot = slot
        self._bridge = bridge
        self._client = client
        self.starts: list[Start] = []
        self._calls: Counter[str] = Counter()

    def begin(self) -> None:
        for number, due in enumerate(self._program.dues):
            self._make(number, due)
        for effect in self._program.at_first:
            self._apply(effect)

    def work(self, number: int) -> None:
        task = current_task()
        self.starts.append((task.id, task.attempt))
        steps = self._program.steps[number]
        call = self._calls[task.id]
        self._calls[task.id] += 1
        if call >= len(steps):
            return
        for effect in steps[call].effects:
            self._apply(effect)
        if steps[call].end == "fail":
            raise RuntimeError("as the program says")
        if steps[call].end == "retry":
            raise Retry(after=steps[call].slots * self._slot)

    def states(self) -> dict[str, tuple[State, int]]:
        numbers = range(len(self._program.dues))
        tasks = [self._bridge.get(f"t{number}") for number in numbers]
        return {task.id: (task.state, task.attempt) for task in tasks if task}

    def _make(self, number: int, due: int) -> None:
        retry = [slots * self._slot for slots in self._program.retry]
        self._bridge.make_task(
            "test.work", [number], due * self._slot, id=f"t{number}", retry=retry,
            if_exists="replace",
        )  # fmt: skip

    def _apply(self, effect: Effect) -> None:
        id, after = f"t{effect.target}", effect.slots * self._slot
        match effect.kind:
            case "reschedule":
                self._bridge.reschedule(id, after)
            case "expire":
                self._client.pexpire(self._key(effect.target), round(after * 1000))
            case "cancel":
                self._bridge.cancel(id)
            case "pause":
                self._bridge.pause(id)
            case "make":
                self._make(effect.target, effect.slots)

    def _key(self, number: int) -> str:
        return f"t{number}:?test.work?[{number}]"


def travelled(program: Program, url: str, client: redis.Redis) -> Course:
    """The course by travel; a program whose due times are too near is not tried."""
    handlers: dict[str, Callable[..., Any]] = {}
    with Clock(url, handlers=handlers) as clock:
        run = Run(program, SLOT, clock.bridge, client)
        handlers["test.work"] = run.work
        began = clock.now
        run.begin()
        ran = clock.travel(until="idle")
        states = run.states()
    times = [one.at for one in ran]
    assume(all(b - a > timedelta(seconds=SLOT * 0.9) for a, b in pairwise(times)))
    assume(times and times[-1] - began < timedelta(seconds=SLOT * LONGEST))
    assert run.starts == [(one.task.id, one.attempt) for one in ran]
    return run.starts, states


async def waited(program: Program, url: str, client: redis.Redis, count: int, scale: int) -> Course:
    """The course with a listener that really waits; it has `count` starts to wait for."""
    witness = Witness()
    with Bridge(url) as bridge:
        run = Run(program, SLOT / scale, bridge, client)
        async with listening(Settings(url=url, concurrency=1), witness, work=run.work):
            await witness.until_hearing()
            await asyncio.to_thread(run.begin)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SLOT / scale * LONGEST * 3):
                    await witness.until_ended(count)
            await asyncio.sleep(SLOT / scale * 2)  # what starts too much would start by now
            return run.starts, await asyncio.to_thread(run.states)


@contextmanager
def counted(what: Counter[str], program: Program) -> Iterator[None]:
    """Count what programs consist of: each kind is to be tried."""
    yield
    applied = [*program.at_first, *(e for task in program.steps for s in task for e in s.effects)]
    what.update(effect.kind for effect in applied)
    what.update(step.end for task in program.steps for step in task)


@pytest.mark.rest
def test_a_program_starts_its_attempts_in_the_order_of_a_real_wait(
    url: str, client: redis.Redis
) -> None:
    tried: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # to shrink takes minutes
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(programs)
    def compare(program: Program) -> None:
        expected = travelled(program, url, client)
        with counted(tried, program):
            event(f"{len(expected[0])} starts")
            found: Course = ([], {})
            for scale in SCALES:
                found = asyncio.run(waited(program, url, client, len(expected[0]), scale))
                client.flushdb()
                if found == expected:
                    return
            pytest.fail(f"travelled: {expected}\nwaited:    {found}")

    compare()
    assert set(tried) >= {"expire", "fail"}
