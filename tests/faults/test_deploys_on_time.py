"""A deploy: listeners with older and with newer code beside each other start tasks on time."""

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, State, Task
from tests.kit.patience import until
from tests.kit.processes import Report, Reports, listener

COUNT = 100
LATE = 5.0
"""Seconds after which a task is late because of the others, not of a busy machine: one that was
given back waits for 15 s, and one behind the backlog for minutes."""
LOOK = 1.0
"""Seconds until a task starts that was announced to nobody: then the clock looks."""
HEAD = "import asyncio\nfrom tests.kit.processes import report\n"
OLD = f"""{HEAD}
def both(n):
    report("old")

async def send(to):
    report("old")

def bill(order):
    report("old")
"""
NEW = f"""{HEAD}
def both(n):
    report("new")

async def send(to, subject):
    report("new")

def bill(order, *, currency="EUR"):
    report("new")

async def fresh(n):
    report("new")
"""


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Two versions of the handlers' folder."""
    found = {}
    for version, text in (("old", OLD), ("new", NEW)):
        found[version] = tmp_path / version / "tasks"
        found[version].mkdir(parents=True)
        (found[version] / "acts.py").write_text(text)
    return found


def make(bridge: Bridge, func: str, at: datetime, count: int = COUNT) -> list[str]:
    items = [{"func": f"acts.{func}", "args": [n], "at": at} for n in range(count)]
    return [task.id for task in bridge.make_tasks(items)]


def soon(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def taken(reports: Reports, count: int = COUNT) -> list[Report]:
    return [reports.next() for _ in range(count)]


@contextmanager
def listeners(url: str, *folders: Path) -> Iterator[None]:
    """A listener for each of these folders, started in this order; all hear the doorbell."""
    with ExitStack() as stack, redis.Redis.from_url(url) as client:
        for folder in folders:
            stack.enter_context(listener(url, folder))
        while client.pubsub_numsub("expirebridge:doorbell:1")[0][1] < len(folders):
            time.sleep(0.01)
        yield


def refusals(bridge: Bridge, ids: Iterable[str]) -> int:
    """How often a listener claimed one of these tasks in vain."""
    return sum(
        entry.times
        for id in ids
        for entry in found(bridge, id).history
        if entry.what in {"unknown", "released"}
    )


def found(bridge: Bridge, id: str) -> Task:
    task = bridge.get(id)
    assert task is not None
    return task


@pytest.mark.parametrize("order", [("old", "new"), ("new", "old"), ("old", "old", "new")])
def test_what_only_newer_code_knows_starts_on_time_whoever_came_first(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports, order: Iterable[str]
) -> None:
    with listeners(url, *(folders[version] for version in order)):
        at = soon(1)
        ids = make(bridge, "fresh", at)
        seen = taken(reports)
        assert sorted(report.id for report in seen) == sorted(ids)
        late = sorted(report.at - at.timestamp() for report in seen)
        assert late[-1] < LATE
        assert refusals(bridge, ids) == 0


def test_a_listener_that_has_not_beaten_since_the_newer_one_joined_takes_nothing_of_its(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    """The older one stands still while the newer one joins, and wakes when the tasks are due."""
    with listener(url, folders["old"], "--lease", "60") as old:
        old.send_signal(signal.SIGSTOP)
        with listener(url, folders["new"], "--lease", "60"):
            at = soon(1)
            ids = make(bridge, "fresh", at)
            time.sleep(max(at.timestamp() - time.time() - 0.05, 0))
            old.send_signal(signal.SIGCONT)
            late = [report.at - at.timestamp() for report in taken(reports)]
    assert max(late) < LATE
    assert refusals(bridge, ids) == 0


def test_going_back_and_forth_loses_nothing(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    with listener(url, folders["old"]):
        with listener(url, folders["new"]) as new:
            make(bridge, "fresh", soon(0.5), 20)
            assert {report.word for report in taken(reports, 20)} == {"new"}
            new.send_signal(signal.SIGTERM)
            new.wait()
        # Back: only the older code runs. What it does not know waits, with its reason.
        ids = make(bridge, "fresh", soon(0.1), 20)
        make(bridge, "both", soon(0.1), 20)
        assert {report.word for report in taken(reports, 20)} == {"old"}
        until(lambda: all("no handler" in (found(bridge, id).error or "") for id in ids), "reasons")
        assert {found(bridge, id).state for id in ids} == {State.PENDING}
        # And forth.
        with listener(url, folders["new"]):
            assert {report.id for report in taken(reports, 20)} == set(ids)


def test_a_changed_signature_delays_nothing_in_either_direction(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    """An async handler and a plain one, with the arguments of the older and of the newer code."""
    items: list[dict[str, Any]] = [
        *({"func": "acts.send", "args": [n]} for n in range(20)),
        *({"func": "acts.send", "args": [n, "hi"]} for n in range(20)),
        *({"func": "acts.bill", "args": [n], "kwargs": {"currency": "CHF"}} for n in range(20)),
    ]
    with listeners(url, folders["old"], folders["new"]):
        at = soon(1)
        ids = [task.id for task in bridge.make_tasks([item | {"at": at} for item in items])]
        seen = {report.id: report for report in taken(reports, len(ids))}
        while bridge.count().running:  # a handler reports before its outcome is recorded
            time.sleep(0.01)
    assert [seen[id].word for id in ids] == ["old"] * 20 + ["new"] * 40
    assert max(report.at for report in seen.values()) - at.timestamp() < LATE
    assert {found(bridge, id).state for id in ids} == {State.SUCCEEDED}
    assert {found(bridge, id).attempt for id in ids} == {1}
    assert refusals(bridge, ids) <= len(ids), "each at most once"


def test_arguments_that_no_listener_takes_fail_at_once(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    with listeners(url, folders["old"], folders["new"]):
        task = bridge.make_task("acts.send", [1, 2, 3], delay=0)
        bridge.make_task("acts.fresh", [1], delay=0)
        reports.next()
        until(lambda: found(bridge, task.id).state is State.FAILED, "its failure")
        failed = found(bridge, task.id)
    assert "do not fit" in (failed.error or "")
    assert failed.attempt == 1


def test_old_and_new_beside_each_other_run_each_task_once(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    """A stream of tasks that one, the other or both know."""
    count = 600
    with listeners(url, folders["old"], folders["new"]):
        at = soon(1)
        items = [
            {"func": func, "args": args, "at": at + timedelta(milliseconds=5 * n)}
            for n in range(count)
            for func, args in [[("acts.both", [n]), ("acts.fresh", [n]), ("acts.send", [n])][n % 3]]
        ]
        ids = [task.id for task in bridge.make_tasks(items)]
        seen = {report.id: report for report in taken(reports, count)}
        assert reports.client.llen("reports") == 0
    assert set(seen) == set(ids)
    assert {seen[id].word for id in ids[1::3]} == {"new"}
    assert {seen[id].word for id in ids[2::3]} == {"old"}
    due = [(at + timedelta(milliseconds=5 * n)).timestamp() for n in range(count)]
    assert max(seen[id].at - when for id, when in zip(ids, due, strict=True)) < LATE


def test_listeners_for_different_functions_of_one_folder_each_take_their_own(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    with (
        listener(url, folders["new"], "--functions", "acts.both") as one,
        listener(url, folders["new"], "--functions", "acts.fresh,acts.bill") as two,
    ):
        at = soon(1)
        ids = {func: make(bridge, func, at) for func in ("both", "fresh")}
        seen = {report.id: report for report in taken(reports, 2 * COUNT)}
        assert {seen[id].pid for id in ids["both"]} == {one.pid}
        assert {seen[id].pid for id in ids["fresh"]} == {two.pid}
        assert max(report.at for report in seen.values()) - at.timestamp() < LATE
        assert sum(refusals(bridge, of) for of in ids.values()) == 0


BACKLOG = 20_000
MAIL = f"""{HEAD}
async def slow(n):
    await asyncio.sleep(1)
"""


def make_backlog(bridge: Bridge) -> None:
    """Tasks of another kind that are all long overdue, half of them since one instant."""
    instant, spread = soon(-3600), soon(-1800)
    bridge.make_tasks(
        {"func": "mail.slow", "args": [n], "at": at}
        for n in range(BACKLOG // 2)
        for at in (instant, spread + timedelta(milliseconds=n))
    )


def noted(client: redis.Redis) -> int:
    """Of how many pending tasks it is noted that nobody knows them."""
    ids: Any = client.zrange("expirebridge:pending", 0, -1)
    with client.pipeline(transaction=False) as asked:
        for id in ids:
            asked.hexists(f"expirebridge:task:{id.decode()}", "unknown")
        return sum(asked.execute())


def starts_on_time(bridge: Bridge, reports: Reports) -> None:
    """Tasks of the listener's own kind, due at once and soon, and one from before the backlog."""
    bridge.make_task("acts.both", [0], at=soon(-7200), id="early")
    assert reports.next().id == "early"
    late = []
    for n in range(40):
        at = soon(0.2 if n % 2 else 0)
        task = bridge.make_task("acts.both", [n], at=at)
        report = reports.next()
        assert report.id == task.id
        late.append(report.at - at.timestamp())
    assert max(late) < LATE
    assert sorted(late)[30] < LOOK


def test_a_backlog_whose_listeners_are_dead_starves_nobody(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports
) -> None:
    make_backlog(bridge)
    with listeners(url, folders["old"]), redis.Redis.from_url(url) as client:
        starts_on_time(bridge, reports)
        while noted(client) < BACKLOG:
            time.sleep(0.1)
        starts_on_time(bridge, reports)
    assert bridge.count().pending == BACKLOG


def test_a_backlog_whose_listeners_are_slow_starves_nobody(
    url: str, bridge: Bridge, folders: dict[str, Path], reports: Reports, tmp_path: Path
) -> None:
    make_backlog(bridge)
    mail = tmp_path / "mail" / "tasks"
    mail.mkdir(parents=True)
    (mail / "mail.py").write_text(MAIL)
    with listeners(url, mail, folders["old"]), redis.Redis.from_url(url) as client:
        starts_on_time(bridge, reports)
        assert noted(client) == 0
