"""Listeners are killed while tasks wait for slots, for starts of a rate, and for their turn.

`LIMIT_TASKS=20000` lets so many tasks wait for one lane, and prints how late others are meanwhile.
"""

import os
import random
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
import redis

from expirebridge import Bridge, Change, State, Task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import (
    ROUNDS,
    Listeners,
    copy_handlers,
    judge,
    kill,
    make,
    until,
    until_finished,
)
from tests.faults.table import Fault
from tests.kit.checker import Run, read_stories
from tests.kit.history import Cancelled, Made, Writer, read
from tests.kit.history import Event as Entry

pytestmark = pytest.mark.timeout(1200)

LEAD = 0.5
"""Seconds in which tasks are made before they are due."""
KILL_EACH = 1.0
"""Seconds between two kills, or as long as a listener takes to start."""
FLOOD = int(os.environ.get("LIMIT_TASKS", "300"))
"""Tasks for one lane, all due at one instant."""
IS_LARGE = FLOOD > 1000
LEASE = 5.0 if IS_LARGE else 2.0
"""Ten listeners may starve each other for a second."""
LISTENERS = 10 if IS_LARGE else 3
WORK = 0.0 if IS_LARGE else 0.05
WITHIN = 60.0 + FLOOD / 50
SLOTS = 5
ENTITIES, STEPS = (1000, 20) if IS_LARGE else (50, 6)
FREE_EACH = 0.02
"""Seconds between two tasks without a limit."""
FREE = 3000 if IS_LARGE else 200

FLOODED = Fault(
    name="a listener is killed each second while many tasks wait for 5 slots",
    injected=f"{FLOOD:,} tasks of one lane of 5 are due at one instant, for {LISTENERS} listeners",
    promise="never more than 5 have a slot, a killed listener's until their lease has lapsed; none "
    "is lost; tasks without a limit go on",
)
SHARED = Fault(
    name="a listener is killed each second while one tenant of a fair limit floods it",
    injected=f"{FLOOD:,} tasks of one tenant wait for 5 slots; another makes one after the other",
    promise="the other's next task starts with the next slots that are free",
)
RATED = Fault(
    name="listeners are killed while tasks wait for a rate",
    injected="18 tasks became due while no listener ran; 60 a minute may start, with a burst of 5; "
    "some are cancelled",
    promise="in no time t more than 5 + t / 1 s are claimed",
)
BUDGETED = Fault(
    name="listeners are killed while tasks wait for a budget, two rates and a slot",
    injected="60 tasks of 2 keys and 3 users wait for tokens, starts and 4 slots; 30 others share "
    "the tokens and the slots",
    promise="no lane gives more than burst + rate * t in any time t, none stands still while "
    "somebody waits in it, and all run",
)
ORDERED = Fault(
    name="listeners are killed while tasks run in order",
    injected=f"{ENTITIES} entities of {STEPS} tasks, a third of which raise once; the listeners "
    "run two codes",
    promise="of each entity one task runs at a time, and none starts before one that was due "
    "earlier has ended",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder with the handlers that have limits."""
    return copy_handlers(tmp_path / "tasks", limits=True)


@pytest.fixture
def newer(tmp_path: Path, folder: Path) -> Path:
    """The same, and one module more: another code."""
    copied = copy_handlers(tmp_path / "newer" / folder.name, limits=True)
    (copied / "fresh.py").write_text((folder / "recorded.py").read_text())
    return copied


@contextmanager
def killing(
    groups: Sequence[Listeners], history: Writer, chance: random.Random
) -> Iterator[list[int]]:
    """Kill a listener each second, and start another of its code, as long as the block takes.

    Gives the list of those that were killed.
    """
    over, killed = Event(), list[int]()
    failures: list[BaseException] = []

    def kill_some() -> None:
        try:
            while not over.wait(KILL_EACH):
                group = chance.choice(groups)
                victim = chance.choice([p for p in group.by_pid.values() if p.poll() is None])
                kill(victim, history)
                killed.append(victim.pid)
                group.start()
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=kill_some)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
    assert not failures, failures


LANE = "limited.serve:customer=17"
LOOK_EACH = 0.02
LOOK = """
local lane, lost = KEYS[1], {}
local ids = redis.call('SMEMBERS', 'expirebridge:lane:' .. lane)
for _, id in ipairs(ids) do
  local state = redis.call('HGET', 'expirebridge:task:' .. id, 'state')
  if not (state == 'running' or state == 'waiting' and ARGV[1] == 'others')
    and not redis.call('ZSCORE', 'expirebridge:grants', id) then lost[#lost + 1] = id end
end
return { #ids, redis.call('ZCARD', 'expirebridge:queue:' .. lane),
  redis.call('SISMEMBER', 'expirebridge:unserved', lane), lost }
"""
"""How many have a slot in a lane, and how many wait in it; whether the next claim is to serve it;
who has a slot without running, or being granted it, or if there are others, waiting in those. All
are of one moment between two scripts."""


@contextmanager
def looking(
    client: redis.Redis, lane: str, most: int | None = SLOTS, *, others: bool = False
) -> Iterator[list[int]]:
    """Look at a lane again and again, as long as the block takes: none has too many slots, and
    while one is free nobody waits whom no claim will serve. Without `most` it is one of a rate: a
    start is granted to somebody as long as others wait. `others`: its tasks have other lanes, too.

    Gives a list with how many waited at each look.
    """
    over, waited = Event(), list[int]()
    wrong: list[tuple[str, object]] = []
    look = client.register_script(LOOK)

    def look_often() -> None:
        try:
            while not over.wait(LOOK_EACH):
                slots, waiting, is_left, lost = look(
                    keys=[lane], args=["others" if others else "alone"]
                )
                waited.append(waiting)
                if most is not None and slots > most:
                    wrong.append(("too many have a slot", slots))
                if slots < (most or 1) and waiting and not is_left:
                    wrong.append(("a slot is free, and nobody has it who waits", (slots, waiting)))
                if lost:
                    wrong.append(("a slot is of a task that neither runs nor is to run", lost))
        except BaseException as error:
            wrong.append(("the look failed", error))

    thread = Thread(target=look_often)
    thread.start()
    try:
        yield waited
    finally:
        over.set()
        thread.join()
    assert not wrong, (lane, wrong[:3])


@pytest.mark.parametrize("round", range(ROUNDS))
def test_no_lane_has_more_than_its_slots(
    server: EmbeddedServer,
    client: redis.Redis,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    print_later: Callable[[str], None],
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        for _ in range(LISTENERS):
            listeners.start()
        lead = LEAD + FLOOD / 1000
        limited = make(bridge, history, [("limited.serve", [WORK, 17])] * FLOOD, delay=lead)
        begin = limited[0].due
        free = make_free(bridge, history, begin)
        with looking(client, LANE) as waited, killing([listeners], history, chance) as killed:
            until_finished(bridge, within=WITHIN)
    assert max(waited, default=0) > 0, "it was never looked at while tasks waited"
    # Of many, the server forgets those that succeeded first.
    verdict = judge(
        FLOODED, server, bridge, history, lease=LEASE, times=len(killed), may_forget=IS_LARGE
    )
    assert verdict.sound, str(verdict)
    runs = runs_of(read(history.folder))
    held = [each for task in limited for each in slots_held(runs[task.id])]
    print_later(
        f"{FLOOD:,} tasks of one lane of {SLOTS}, {LISTENERS} listeners, {len(killed)} killed: "
        f"at most {max(waited):,} waited in {len(waited):,} looks, and {most_at_once(held)} ran at "
        f"once; over after "
        f"{(max(until for _, until in held) - to_ms(begin)) / 1000:.1f} s; without a limit: "
        f"{lateness_of(free, runs)}"
    )
    assert most_at_once(held) == SLOTS
    assert all(runs[task.id] for task in limited)
    assert all(runs[id] for id in free)


LIGHT = 20
"""Tasks of the tenant that has few, one after the other."""
AHEAD = 4 * SLOTS
"""Starts of the other tenant until one of these starts, at most: those that have a slot already, or
had one when a listener was killed, and those that start while it is looked at."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_tenant_with_few_tasks_does_not_wait_behind_one_with_many(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    print_later: Callable[[str], None],
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        for _ in range(LISTENERS):
            listeners.start()
        many = make(bridge, history, [("limited.share", [WORK, "many"])] * FLOOD)
        until(lambda: bridge.count().pending <= SLOTS, within=WITHIN)
        with killing([listeners], history, chance) as killed:
            few = list[Task]()
            for _ in range(LIGHT):
                few += make(bridge, history, [("limited.share", [WORK, "few"])])
                until(partial(is_over, bridge, few[-1].id), within=WITHIN)
            until_finished(bridge, within=WITHIN)
    verdict = judge(
        SHARED, server, bridge, history, lease=LEASE, times=len(killed), may_forget=IS_LARGE
    )
    assert verdict.sound, str(verdict)
    runs = runs_of(read(history.folder))
    starts = sorted(run.started.at for task in many for run in runs[task.id])
    before = [
        bisect_left(starts, runs[task.id][0].started.at) - bisect_left(starts, to_ms(task.due))
        for task in few
    ]
    print_later(
        f"{FLOOD:,} tasks of one tenant, {len(killed)} listeners killed; another's tasks: "
        f"{lateness_of({task.id: to_ms(task.due) for task in few}, runs)}; "
        f"starts of the other before: at most {max(before)}"
    )
    assert max(before) <= AHEAD


def is_over(bridge: Bridge, id: str) -> bool:
    task = bridge.get(id)
    return task is not None and task.state is State.SUCCEEDED


def make_free(bridge: Bridge, history: Writer, begin: datetime) -> dict[str, int]:
    """Make tasks without a limit, due one after the other while others wait; returns when."""
    tasks = bridge.make_tasks(
        {
            "func": "recorded.work",
            "args": [0, 0],
            "at": begin + timedelta(seconds=FREE_EACH * n),
        }
        for n in range(FREE)
    )
    history.write(*(Made(id=task.id, due=to_ms(task.due), attempts=1) for task in tasks))
    return {task.id: to_ms(task.due) for task in tasks}


def runs_of(events: Sequence[Entry]) -> dict[str, list[Run]]:
    return {id: story.runs for id, story in read_stories(events).items()}


def slots_held(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    """The times in ms at which a task had a slot for certain, each with its end.

    A run that its listener's end cut short keeps its slot until the next one has it.
    """
    for run, after in zip(runs, [*runs[1:], None], strict=False):
        until = run.ended.at if run.ended else after.started.at if after else run.started.at
        yield run.started.at, until


def most_at_once(held: Sequence[tuple[int, int]]) -> int:
    """How many of these times overlap at most; one that ends as another begins does not."""
    changes = sorted([(begin, 1) for begin, _ in held] + [(until, -1) for _, until in held])
    most = count = 0
    for _, change in changes:
        count += change
        most = max(most, count)
    return most


def lateness_of(dues: dict[str, int], runs: dict[str, list[Run]]) -> str:
    late = sorted(runs[id][0].started.at - due for id, due in dues.items())
    half, most = late[len(late) // 2], late[len(late) * 99 // 100]
    return f"p50 {half} ms, p99 {most} ms, longest {late[-1]} ms late"


BURST, INTERVAL = 5, 1000
RATE_TASKS = 18
RATE_CANCELLED = {8, 9, 11, 12, 15, 17}
OUTAGE = 0.5
"""Seconds for which the tasks are due before a listener runs."""


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_rate_is_never_exceeded(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with Listeners(server.url, folder, history, lease=LEASE) as listeners:
        tasks = make(bridge, history, [("limited.send", [0.3])] * RATE_TASKS, delay=0.1)
        time.sleep(0.1 + OUTAGE)
        listeners.start()
        for number in RATE_CANCELLED:
            answer = bridge.cancel(tasks[number].id)
            if answer in {Change.CANCELLED, Change.RUNNING}:
                history.write(Cancelled(id=tasks[number].id, answer=answer))
        listeners.start()
        with killing([listeners], history, chance) as killed:
            until_finished(bridge, within=60)
    verdict = judge(RATED, server, bridge, history, lease=LEASE, times=len(killed))
    assert verdict.sound, str(verdict)
    claims = sorted(
        to_ms(entry.started)
        for task in map(bridge.get, (task.id for task in tasks))
        if task
        for entry in task.history
        if entry.started
    )
    assert len(claims) >= RATE_TASKS - len(RATE_CANCELLED)
    check_windows([(at, 1) for at in claims], BURST, 1 / INTERVAL)


def check_windows(claims: Sequence[tuple[int, int]], burst: int, rate: float) -> None:
    """Fail if in any time more begins than a burst, and what the rate gives in each ms.

    Each of the claims is the ms at which it was made, and what it cost.
    """
    claims = sorted(claims)
    for first, (begin, _) in enumerate(claims):
        spent = 0
        for end, cost in claims[first:]:
            spent += cost
            # Both times are cut off to ms.
            assert spent <= burst + (end - begin + 1) * rate, (begin, end, spent, claims)


KEYS, USERS = ("a", "b"), ("x", "y", "z")
COSTS = (0, 20, 60, 150, 700)
"""What tasks cost; 700 is more than the burst, which it takes."""
LANES = {
    "model": 4, "tokens=a": None, "tokens=b": None, "asked=a": None, "asked=b": None,
    "user=x": None, "user=y": None, "user=z": None,
}  # fmt: skip


@pytest.mark.parametrize("round", range(ROUNDS))
def test_no_rate_of_several_is_exceeded_and_none_stands_still(
    server: EmbeddedServer,
    client: redis.Redis,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    print_later: Callable[[str], None],
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with Listeners(server.url, folder, history, lease=LEASE) as listeners, ExitStack() as looks:
        for _ in range(3):
            listeners.start()
        tasks = make_asked(bridge, history, chance)
        waited = {
            lane: looks.enter_context(looking(client, lane, most, others=True))
            for lane, most in LANES.items()
        }
        with killing([listeners], history, chance) as killed:
            until_finished(bridge, within=WITHIN)
    most = {lane: max(counts) for lane, counts in waited.items()}
    assert sum(most[lane] > 0 for lane in LANES) > 2, f"few of the lanes were full: {most}"
    verdict = judge(BUDGETED, server, bridge, history, lease=LEASE, times=len(killed))
    assert verdict.sound, str(verdict)
    spent, asked, users = (defaultdict[str, list[tuple[int, int]]](list) for _ in range(3))
    for task in filter(None, (bridge.get(task.id) for task in tasks)):
        for claim in {to_ms(entry.started) for entry in task.history if entry.started}:
            spent[task.kwargs["key"]].append((claim, min(task.args[1], 600)))
            if "user" in task.kwargs:
                asked[task.kwargs["key"]].append((claim, 1))
                users[task.kwargs["user"]].append((claim, 1))
    for claims in spent.values():
        check_windows(claims, 600, 0.6)
    for claims in asked.values():
        check_windows(claims, 3, 0.004)
    for claims in users.values():
        check_windows(claims, 2, 0.003)
    print_later(
        f"{len(tasks)} tasks of up to three rates and a limit, {len(killed)} listeners killed; "
        f"most that waited: {most}"
    )


def make_asked(bridge: Bridge, history: Writer, chance: random.Random) -> list[Task]:
    """Make tasks that have up to three rates, and such as share one of them, in any order."""
    items = [
        {
            "func": "limited.ask",
            "args": [0.05, chance.choice(COSTS)],
            "kwargs": {"key": chance.choice(KEYS), "user": chance.choice(USERS)},
        }
        for _ in range(60)
    ] + [
        {
            "func": "limited.count",
            "args": [0.05, chance.choice(COSTS)],
            "kwargs": {"key": chance.choice(KEYS)},
        }
        for _ in range(30)
    ]
    chance.shuffle(items)
    tasks = bridge.make_tasks([item | {"delay": LEAD} for item in items])
    history.write(*(Made(id=task.id, due=to_ms(task.due), attempts=1) for task in tasks))
    return list(tasks)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_each_entity_has_its_tasks_in_order(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    newer: Path,
    history: Writer,
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        Listeners(server.url, folder, history, lease=LEASE) as older_ones,
        Listeners(server.url, newer, history, lease=LEASE) as newer_ones,
    ):
        groups = (older_ones, newer_ones)
        for group in (*groups, *groups):
            group.start()
        entities = make_steps(bridge, history, chance)
        with killing(groups, history, chance) as killed:
            until_finished(bridge, within=WITHIN)
    verdict = judge(
        ORDERED, server, bridge, history, lease=LEASE, times=len(killed), may_forget=IS_LARGE
    )
    assert verdict.sound, str(verdict)
    runs = runs_of(read(history.folder))
    for ids in entities.values():
        assert all(runs[id] for id in ids)
        starts = sorted((run.started.at, ids.index(id)) for id in ids for run in runs[id])
        order = [place for _, place in starts]
        assert order == sorted(order), [line for id in ids for line in runs[id]]
        assert most_at_once([each for id in ids for each in slots_held(runs[id])]) == 1


def make_steps(bridge: Bridge, history: Writer, chance: random.Random) -> dict[int, list[str]]:
    """Make the tasks of all entities, in any order; returns each entity's ids by due time."""
    begin = datetime.now(UTC) + timedelta(seconds=LEAD + ENTITIES * STEPS / 1000)
    items = [
        {
            "func": "limited.step",
            "args": [0.02, int(chance.random() < 1 / 3)],
            "kwargs": {"entity": entity},
            "at": begin + timedelta(milliseconds=20 * step + entity % 7),
            "retry": [0.2],
        }
        for entity in range(ENTITIES)
        for step in range(STEPS)
    ]
    chance.shuffle(items)
    tasks = bridge.make_tasks(items)
    history.write(*(Made(id=task.id, due=to_ms(task.due), attempts=2) for task in tasks))
    ids = defaultdict[int, list[str]](list)
    for task in sorted(tasks, key=lambda one: one.due):
        ids[task.kwargs["entity"]].append(task.id)
    return ids
