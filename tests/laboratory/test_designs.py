"""The designs that people choose from: each makes tasks, runs them once and in time, and keeps them
over its own kind of restart, or does not."""

import importlib
import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lab.contender import find_contenders
from benchmarks.lab.measurement import Case, Figures, Measurement
from benchmarks.lab.stage import Stage
from benchmarks.measurements import keepalive, server_restart
from expirebridge.embedded.server import EmbeddedServer, embedded_binary
from tests.kit.processes import ROOT

pytestmark = pytest.mark.rest

KEEPS = {
    "cron_scan": True,
    "sql_polling": True,
    "ring_memory": False,
    "ring_lists": True,
    "heap": True,
    "wheels": False,
    "wheel_of_sets": False,
    "sorted_set": True,
}
"""Whether tasks outlive the death of the worker."""
OF_MINUTES = {"cron_scan_minute", "ring_memory_minute"}
"""The same programs with another setting."""
COUNT = 20


def stage_of(name: str) -> Stage:
    contender = find_contenders()[name]
    return Stage(contender, embedded_binary(), handler=contender.handlers[0])


def test_all_designs_are_tested() -> None:
    designs = {name for name, found in find_contenders().items() if found.kind == "design"}
    assert designs == KEEPS.keys() | OF_MINUTES


@pytest.mark.parametrize(("name", "keeps"), KEEPS.items())
def test_tasks_run_once_and_outlive_a_dead_worker_or_do_not(name: str, keeps: bool) -> None:
    with stage_of(name) as stage:
        stage.start()
        first = stage.schedule(COUNT)
        assert stage.verdict([first], stage.wait_for([first], limit=30)).ran == COUNT

        waiting = stage.schedule(COUNT, lead=3.0)
        stage.kill()
        stage.restart()
        # What is made after them and has run shows that their time is over.
        after = stage.schedule(COUNT, lead=3.0)
        expected = [first, waiting, after] if keeps else [first, after]
        verdict = stage.verdict(expected, stage.wait_for(expected, limit=30))

        assert (verdict.lost, verdict.twice, verdict.early, verdict.unasked) == (0, 0, 0, 0)
        assert (set(waiting.numbers) <= stage.ended()) is keeps


@pytest.mark.parametrize("name", ["cron_scan", "sql_polling", "sorted_set"])
def test_two_workers_run_a_task_once(name: str) -> None:
    with stage_of(name) as stage:
        stage.start(copies=2)
        dues = stage.schedule(200, spread=2.0)
        verdict = stage.verdict([dues], stage.wait_for([dues], limit=30))

    assert (verdict.lost, verdict.twice) == (0, 0)


def test_a_second_process_reads_the_same_copy_of_a_heap() -> None:
    with stage_of("heap") as stage:
        stage.start()
        dues = stage.schedule(COUNT, lead=8.0)
        stage.add()
        verdict = stage.verdict([dues], stage.wait_for([dues], limit=30))

    assert (verdict.lost, verdict.twice) == (0, COUNT)


def test_a_ring_of_lists_is_filled_again_after_redis_lost_it() -> None:
    with stage_of("ring_lists") as stage:
        stage.start()
        dues = stage.schedule(COUNT, lead=4.0)
        stage.server.kill()
        shutil.rmtree(stage.server.directory / "appendonlydir")
        stage.server.start()
        stage.kill()
        stage.restart()
        verdict = stage.verdict([dues], stage.wait_for([dues], limit=30))

    assert (verdict.lost, verdict.twice, verdict.early) == (0, 0, 0)


def measured(measurement: Measurement, name: str, **variant: float) -> Figures:
    contender = find_contenders()[name]
    case = Case(contender=contender, binary=embedded_binary(), variant=variant)
    return measurement.measure(case)


@pytest.mark.parametrize("name", ["expirebridge", "wheel_of_sets", "sorted_set"])
def test_keepalives_put_tasks_off_until_they_end(name: str) -> None:
    figures = measured(keepalive.MEASUREMENT, name, timers=200, ttl=6, seconds=9, per_second=60)

    assert figures["let_go"] == 2
    assert figures["lost"] == figures["twice"] == figures["false_firings"] == 0
    assert figures["lateness_ms"]["50"] > 0
    assert figures["keepalives"] > 300
    assert figures["microseconds"] > 0


@pytest.mark.parametrize("name", ["sorted_set", "ring_lists"])
def test_tasks_outlive_a_server_that_is_killed(name: str) -> None:
    figures = measured(
        server_restart.MEASUREMENT, name, tasks=40, seconds=8, killed_after=2, away=1
    )

    assert (figures["lost"], figures["early"]) == (0, 0)


def test_they_are_shown_live(tmp_path: Path) -> None:
    """`make designs` needs no server, ends by itself, and leaves nothing behind."""
    shown = subprocess.run(
        [sys.executable, "-m", "benchmarks.live"],
        env=os.environ | {"TMPDIR": str(tmp_path), "PATH": "/nowhere", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert shown.returncode == 0, shown.stdout + shown.stderr
    titles = {find_contenders()[name].title for name in KEEPS}
    for title in {"expirebridge", "bare subscriber", *titles}:
        assert re.search(rf"{title} .*[▁▂▃▄▅▆▇█]{{20}}.*20 of 20", shown.stdout), title
    assert list(tmp_path.iterdir()) == []
    assert [process for process in Path("/proc").glob("[0-9]*") if _is_of(process, tmp_path)] == []


def _is_of(process: Path, folder: Path) -> bool:
    try:
        return str(folder).encode() in (process / "environ").read_bytes()
    except OSError:  # it has ended
        return False


# In this process.


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """Imports a contender's file, with a server, a journal and a folder."""
    folder = tmp_path_factory.mktemp("designs")
    (folder / "journal").touch()
    with pytest.MonkeyPatch.context() as patch, EmbeddedServer() as server:
        patch.chdir(folder)
        patch.setenv("LAB_PORT", str(server.port))
        patch.setenv("LAB_JOURNAL", str(folder / "journal"))
        for name in ("journal", "server"):
            patch.delitem(sys.modules, f"benchmarks.kit.{name}", raising=False)
            patch.delattr(f"benchmarks.kit.{name}", raising=False)
        loaded: list[str] = []

        def load(name: str) -> ModuleType:
            loaded.append(f"benchmarks.contenders.{name}")
            return importlib.import_module(loaded[-1])

        yield load
        for name in set(loaded):
            del sys.modules[name]


@pytest.fixture
def queue(load: Callable[[str], Any]) -> Any:
    module = load("sorted_set")
    module.client.delete("delay_queue")
    module.table().execute("DELETE FROM delay_queue")
    return module


def row(queue: Any, id: int) -> Any:
    [found] = queue.table().execute(
        "SELECT status, retry_times FROM delay_queue WHERE id = ?", (id,)
    )
    return found


def test_what_fails_is_tried_15_times_more_with_growing_pauses(
    queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int, user: str) -> None:
        raise ValueError(number)

    monkeypatch.setitem(queue.HANDLERS, "send", fail)
    queue.schedule(7, time.time())
    pauses = []
    while queue.client.zscore("delay_queue", 7) is not None:
        queue.client.zadd("delay_queue", {"7": 0.0})  # aged, in place of waiting
        began = time.time()
        queue.run_due()
        pauses.append((queue.client.zscore("delay_queue", 7) or math.inf) - began)

    assert pauses == [*(pytest.approx(60 * minutes, abs=10) for minutes in queue.MINUTES), math.inf]
    assert len(queue.MINUTES) == 15
    assert list(queue.MINUTES) == sorted(queue.MINUTES)
    assert row(queue, 7) == (queue.FAILED, 15)


def test_one_error_is_not_tried_again(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(number: int, user: str) -> None:
        raise queue.NoRetry

    monkeypatch.setitem(queue.HANDLERS, "send", refuse)
    queue.schedule(7, time.time())
    queue.run_due()

    assert row(queue, 7) == (queue.FAILED, 0)
    assert queue.client.zcard("delay_queue") == 0


def test_a_task_is_found_by_another_name_and_cancelled(queue: Any) -> None:
    queue.schedule_many([(7, time.time()), (8, time.time())])

    assert [queue.cancel("task-7"), queue.cancel("task-7")] == [1, 0]
    assert queue.client.zcard("delay_queue") == 1
    queue.run_due()

    assert row(queue, 7) == (queue.CANCELLED, 0)
    assert row(queue, 8) == (queue.DONE, 0)


def test_rows_of_a_run_that_died_are_taken_again(load: Callable[[str], Any]) -> None:
    cron = load("cron_scan")
    cron.schedule(9, time.time())
    cron.table().execute("UPDATE task SET taken = ?", (time.time(),))
    cron.scan()
    assert cron.table().execute("SELECT count(*) FROM task").fetchone() == (1,)

    cron.table().execute("UPDATE task SET taken = taken - ?", (cron.TAKEN_FOR,))
    cron.scan()
    assert cron.table().execute("SELECT count(*) FROM task").fetchone() == (0,)


DELAYS = st.lists(st.floats(-5, 500), max_size=20)


@settings(deadline=None)
@given(slots=st.integers(2, 40), tick=st.sampled_from([1.0, 0.5, 60.0]), delays=DELAYS)
def test_a_task_of_a_ring_runs_in_the_first_tick_that_is_not_too_early(
    load: Callable[[str], Any], slots: int, tick: float, delays: list[float]
) -> None:
    ran: dict[int, int] = {}
    ring = load("ring_memory").Ring(slots, tick, 1000, ran.get)
    dues = [1000 * tick + delay for delay in delays]
    ring.add(enumerate(dues[::2]))
    late = [(len(dues) + place, due) for place, due in enumerate(dues[1::2])]
    ring.run = lambda number: ran.setdefault(number, ring.at)
    for at in range(1001, 1001 + 1010):
        ring.advance(at)
        if at == 1003:
            ring.add(late)

    assert ran == {
        **{n: max(math.ceil(due / tick), 1001) for n, due in enumerate(dues[::2])},
        **{n: max(math.ceil(due / tick), 1004) for n, due in late},
    }


def seconds_that_matter(at: int, due: int) -> Iterator[int]:
    """The moments from `at` to `due` at which a hand moves to where the task may be."""
    while at < due:
        steps = (at - at % unit + unit for unit in (86400, 3600, 60, 1))
        at = next(step for step in steps if step <= due)
        yield at


@settings(deadline=None)
@given(
    at=st.integers(946_684_800, 2_500_000_000),
    delay=st.one_of(st.floats(-5, 200), st.floats(0, 1e5), st.floats(0, 1e9)),
)
def test_a_task_of_the_wheels_runs_in_the_second_that_follows_its_due_time(
    load: Callable[[str], Any], at: int, delay: float
) -> None:
    ran: list[int] = []
    wheels: Any = load("wheels").Wheels(at, lambda _: ran.append(wheels.at))
    wheels.add([(1, at + delay)])
    due = max(math.ceil(at + delay), at + 1)
    for moment in seconds_that_matter(at, due):
        assert ran == []
        wheels.advance(moment)

    assert ran == [due]


@settings(deadline=None)
@given(delays=st.lists(st.integers(1, 4000), min_size=1), at=st.integers(10**9, 2 * 10**9))
def test_tasks_of_the_wheels_do_not_miss_a_turn(
    load: Callable[[str], Any], delays: list[int], at: int
) -> None:
    ran: dict[int, int] = {}
    wheels: Any = load("wheels").Wheels(at, lambda number: ran.setdefault(number, wheels.at - at))
    wheels.add((number, at + delay) for number, delay in enumerate(delays))
    for moment in range(at + 1, at + 4001):
        wheels.advance(moment)

    assert ran == dict(enumerate(delays))


@settings(deadline=None)
@given(ttl=st.floats(1, 100), beats=st.lists(st.floats(0, 1.5), max_size=8))
def test_who_is_silent_for_the_timeout_is_offline_within_a_tick(
    load: Callable[[str], Any], ttl: float, beats: list[float]
) -> None:
    ran: list[float] = []
    wheel: Any = load("wheel_of_sets").Wheel(lambda _: ran.append(wheel.reached))
    now = 0.0
    wheel.keep([], ttl)
    wheel.reached = now
    wheel.make([(1, ttl * 0.9)])
    silent_until = ttl * 0.9
    for pause in beats:
        until = now + pause * ttl
        _turn(wheel, until)
        if ran:
            break
        now, silent_until = until, until + ttl
        wheel.keep([1], ttl)
    _turn(wheel, now + 3 * ttl)

    assert ran == [pytest.approx(silent_until + wheel.tick / 2, abs=wheel.tick * 0.51)]


def _turn(wheel: Any, until: float) -> None:
    while wheel.reached + wheel.tick <= until:
        wheel.advance(wheel.reached + wheel.tick)
