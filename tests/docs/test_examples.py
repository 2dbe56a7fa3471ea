"""What lies in examples/ runs, with smaller numbers."""

import asyncio
import importlib
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from expirebridge import AsyncBridge, Bridge, Listener, ListenerStuck, Settings, State, Task
from expirebridge.embedded.server import free_port
from expirebridge.testing import Clock
from tests.kit.patience import PATIENCE, until
from tests.kit.processes import listener
from tests.kit.witness import registry_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.rest
def test_connections_that_fall_silent_are_marked_as_offline() -> None:
    """It ends when exactly those that are lost are offline, and not before."""
    command = [
        sys.executable, str(EXAMPLES / "presence" / "gateway.py"),
        "--connections", "300", "--lost", "30", "--every", "2", "--silence", "20",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert "30 lost connections are offline, 270 others are online" in result.stdout
    assert re.search(r"[1-9]\d* keepalives a second", result.stdout)


@pytest.mark.rest
@pytest.mark.parametrize("workers", ["0", "4"])
def test_the_shop_passes_its_own_tests(workers: str, tmp_path: Path) -> None:
    """Three days in a moment, each worker with a server of its own."""
    shop = shutil.copytree(EXAMPLES / "bookshop", tmp_path / "shop")
    assert "10 passed" in _own_tests(shop, "-n", workers)


@pytest.mark.rest
def test_a_provider_of_a_language_model_never_refuses(tmp_path: Path) -> None:
    """A day in a moment; the page has the handler as it stands there."""
    folder = shutil.copytree(EXAMPLES / "llm", tmp_path / "llm")
    assert "3 passed" in _own_tests(folder)
    page = (EXAMPLES.parent / "docs" / "how-to" / "llm.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert block in (folder / "tasks" / "llm.py").read_text(encoding="utf-8")


def _own_tests(folder: Path, *options: str) -> str:
    """What pytest prints of the tests in an example."""
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "EXPIREBRIDGE_"))
    }
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:valkey", "-W", "error", *options],
        cwd=folder, env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.rest
def test_a_pattern_that_takes_for_ever_is_stopped(url: str, bridge: Bridge, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "patterns" / "tasks", tmp_path / "tasks")
    with listener(url, folder, "--processes", "1"):
        searches = [
            bridge.make_task("patterns.count", [pattern, text], 0)
            for pattern, text in (("(a+)+$", "a" * 60 + "b"), ("an", "banana"))
        ]
        until(lambda: bridge.count().succeeded + bridge.count().failed == 2, "both searches")
    hopeless, quick = (bridge.get(search.id) for search in searches)
    assert hopeless is not None
    assert (hopeless.state, hopeless.error) == (State.FAILED, "timed out after 2 s")
    assert quick is not None
    assert quick.result == 2


@pytest.mark.rest
def test_a_canary_sings_again_and_again(url: str, bridge: Bridge, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "canary" / "tasks", tmp_path / "tasks")

    def next_song(after: datetime) -> datetime:
        """When it sings next, as soon as that is later than `after`."""

        def due() -> datetime | None:
            task = bridge.get("canary")
            waits = task is not None and task.state is State.PENDING and task.due > after
            return task.due if task is not None and waits else None

        return until(due, "the next song")

    began = datetime.fromtimestamp(0, UTC)
    with listener(url, folder, EXPIREBRIDGE_URL=url):
        first = next_song(began)
        for _ in range(2):
            bridge.run_now("canary")
            first = next_song(first)
    # Another listener finds it waiting, and makes no second one.
    with listener(url, folder, EXPIREBRIDGE_URL=url):
        bridge.run_now("canary")
        next_song(first)
    # On a busy machine it may sing, or be about to, at this moment.
    assert [task.id for task in bridge.list().tasks] == ["canary"]


@contextmanager
def web_application(url: str, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The web application in a process, and its address; it serves when the block begins."""
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port)],
            cwd=EXAMPLES / "web", env=os.environ | {"EXPIREBRIDGE_URL": url},
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        until(lambda: "Uvicorn running" in log.read_text() or process.poll(), "the application")
        assert process.poll() is None, log.read_text()
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.rest
def test_a_web_application_runs_its_tasks_itself(url: str, bridge: Bridge, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with web_application(url, log) as (process, address):
        with httpx.Client(base_url=address, timeout=PATIENCE) as browser:
            made = browser.post("/remind/ann?after=20ms").json()
            until(lambda: browser.get("/sent").json() == ["ann"], "the reminder")
            waits = browser.post("/remind/bob?after=1h").json()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)
    states = [(task := bridge.get(one["task"])) and task.state for one in (made, waits)]
    assert states == [State.SUCCEEDED, State.PENDING]
    assert bridge.count().listeners == 0
    told = log.read_text()
    # In the application's own format, and after the server closed its doors.
    assert "INFO:tasks.reminders:reminding ann" in told
    assert told.index("Waiting for application shutdown") < told.index("expirebridge:stopped")
    assert "Application shutdown complete" in told


async def test_a_web_application_stops_with_its_listener(
    url: str, async_bridge: AsyncBridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, stopping = threading.Event(), asyncio.Event()

    def stuck() -> None:
        go_on.wait(PATIENCE)

    monkeypatch.setenv("EXPIREBRIDGE_URL", url)
    monkeypatch.syspath_prepend(EXAMPLES / "web")
    app = importlib.import_module("app")
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    inside = Listener(Settings(url=url, grace=0.05), registry_of(stuck=stuck))

    async def serve() -> None:
        async with inside:
            await async_bridge.make_task("test.stuck", [], 0, timeout=0.05)
            await app.end_with(inside)
            await asyncio.wait_for(stopping.wait(), PATIENCE)

    try:
        with pytest.raises(ListenerStuck):
            await serve()
        assert stopping.is_set()
    finally:
        go_on.set()
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)


def test_what_recurs_runs_for_all_and_for_each_tenant(tmp_path: Path) -> None:
    """Two weeks in a moment: each night, and each Monday for the tenant that stays."""
    folder = shutil.copytree(EXAMPLES / "recurring" / "tasks", tmp_path / "nightly")
    tenants = runpy.run_path(str(EXAMPLES / "recurring" / "tenants.py"))
    with Clock(tasks=folder) as clock:
        clock.declare_series()
        for tenant in ("ann", "bob", "ann"):
            tenants["sign_up"](clock.bridge, tenant, "Asia/Tokyo")
        tenants["leave"](clock.bridge, "bob")
        ran = clock.travel("14d")
    nights = [one for one in ran if one.task.func == "reports.nightly"]
    mondays = [one for one in ran if one.task.func == "reports.weekly"]
    assert (len(nights), len(mondays)) == (14, 2)
    assert all(one.end == "succeeded" for one in ran)
    assert {tuple(one.task.args) for one in mondays} == {("ann",)}
    first = nights[0].task.tick
    assert first is not None
    assert nights[0].result == f"the day before {first:%Y-%m-%d}"


@pytest.mark.rest
def test_limits_hold_for_all_listeners_together(url: str, bridge: Bridge, tmp_path: Path) -> None:
    folder = shutil.copytree(EXAMPLES / "limits" / "tasks", tmp_path / "limited")
    producer = runpy.run_path(str(EXAMPLES / "limits" / "make_tasks.py"))
    months = [f"2026-{month:02}" for month in range(1, 7)]
    exports = [producer["order_exports"](bridge, name, months) for name in ("ann", "bob", "cay")]
    messages = producer["write_to_all"](bridge, [f"+49170{n}" for n in range(22)], "hi")
    events = [producer["sell"](bridge, order) for order in (17, 18)]
    count = bridge.count().pending
    with listener(url, folder), listener(url, folder):
        until(lambda: bridge.count().succeeded == count, f"{count} tasks")

    def found(ids: Iterable[str]) -> list[Task]:
        return [task for id in ids if (task := bridge.get(id))]

    # On a slow machine one may have ended before the next began.
    assert max(_most_at_once(found(ids)) for ids in exports) <= 2
    assert _most_at_once(found(id for ids in exports for id in ids)) <= 4
    starts = sorted(_ms(task.started) for task in found(messages))
    for first, start in enumerate(starts):
        for last in range(first, len(starts)):
            assert last - first + 1 <= 20 + (starts[last] - start + 1) / 750
    for ids in events:
        steps = found(ids)
        assert [task.attempt for task in steps] == [1, 2, 1, 1]
        for before, after in pairwise(steps):
            assert _ms(before.ended) <= _ms(after.started)


def _most_at_once(tasks: list[Task]) -> int:
    """How many ran at the same time; one that begins in the millisecond of an end came after it."""
    changes = [(_ms(task.started), 1) for task in tasks]
    changes += [(_ms(task.ended), -1) for task in tasks]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most


def _ms(time: datetime | None) -> int:
    assert time is not None
    return round(time.timestamp() * 1000)
