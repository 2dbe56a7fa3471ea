"""Reconciliation between real processes: outages, crashes, many listeners, signals."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, State
from tests.kit.patience import PATIENCE
from tests.kit.processes import (
    COMMAND,
    ROOT,
    Reports,
    listener,
    log_of,
    until_logged,
    until_subscribed,
)
from tests.kit.servers import AnyServer
from tests.kit.steps import server_ms


def test_what_came_due_while_nobody_listened_runs_oldest_first(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    for n in (3, 1, 4, 2, 5):
        bridge.make_task("acts.note", [], at=past + timedelta(seconds=n), id=f"t{n}")
    with listener(url, folder, "--concurrency", "1"):
        assert [reports.next().id for _ in range(5)] == ["t1", "t2", "t3", "t4", "t5"]


def test_a_killed_listener_s_tasks_run_elsewhere_within_a_lease(
    url: str, bridge: Bridge, folder: Path, reports: Reports, client: redis.Redis
) -> None:
    with listener(url, folder, "--lease", "2") as victim:
        task = bridge.make_task("acts.hold", [], 0)
        first = reports.next()
        with listener(url, folder, "--lease", "2") as heir:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            ends = client.zscore("expirebridge:running", task.id)
            assert isinstance(ends, float)
            assert ends <= server_ms(client) + 2000
            second = reports.next()
            assert (first.id, second.id) == (task.id, task.id)
            assert (first.pid, second.pid) == (victim.pid, heir.pid)
            assert (first.attempt, second.attempt) == (1, 1)  # the lapse used no attempt
    found = bridge.get(task.id)
    assert found is not None
    assert found.lapses == 1


@pytest.mark.rest
def test_a_killed_listener_s_tasks_run_when_it_is_started_again(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with listener(url, folder, "--lease", "1") as victim:
        task = bridge.make_task("acts.hold", [], 0)
        reports.next()
        victim.send_signal(signal.SIGKILL)
    with listener(url, folder, "--lease", "1") as heir:
        again = reports.next()
    assert (again.id, again.pid) == (task.id, heir.pid)


@pytest.mark.rest
def test_a_listener_without_a_free_file_descriptor_runs_its_first_task(
    url: str, bridge: Bridge, folder: Path
) -> None:
    """It needs scripts that it has sent no server so far."""
    (folder / "calm.py").write_text("async def rest(): ...\n")
    with listener(url, folder) as process:
        until_subscribed(url)
        files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
        task = bridge.make_task("calm.rest", [], 0)
        while (found := bridge.get(task.id)) is None or found.state is not State.SUCCEEDED:
            assert process.poll() is None, log_of(folder)


@pytest.mark.rest
def test_ten_listeners_run_each_task_once_and_each_takes_a_share(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    """None of the first tasks ends before each listener has one."""
    count = 600
    with ExitStack() as stack:
        processes = [
            stack.enter_context(listener(url, folder, "--concurrency", "20")) for _ in range(10)
        ]
        at = datetime.now(UTC) + timedelta(seconds=1.5)
        bridge.make_tasks([{"func": "acts.meet", "args": [10], "at": at} for _ in range(count)])
        seen = [reports.next() for _ in range(count)]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(PATIENCE) for process in processes] == [0] * 10
        left = reports.client.llen("reports")
    assert left == 0
    assert len({report.id for report in seen}) == count
    shares = Counter(report.pid for report in seen)
    assert set(shares) == {process.pid for process in processes}
    assert bridge.count().running == 0


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.rest)]
)
def test_a_signal_lets_handlers_finish_and_exits_0(
    url: str, bridge: Bridge, folder: Path, reports: Reports, number: signal.Signals
) -> None:
    with listener(url, folder, "--grace", str(PATIENCE)) as process:
        task = bridge.make_task("acts.wait", [], 0)
        reports.next()
        process.send_signal(number)
        until_logged("claiming no more", folder)
        late = bridge.make_task("acts.note", [], 0)
        reports.release()
        assert process.wait(PATIENCE) == 0
        assert reports.next().word == "ended"
    states = [bridge.get(id) for id in (task.id, late.id)]
    assert [found and found.state for found in states] == [State.SUCCEEDED, State.PENDING]
    assert bridge.count().listeners == 0


def test_a_log_for_machines_is_json_in_every_line(
    url: str, bridge: Bridge, folder: Path, reports: Reports, client: redis.Redis
) -> None:
    client.function_flush()
    options = ("--log-format", "json", "--verbose", "--load-functions")
    with listener(url, folder, *options) as process:
        task = bridge.make_task("acts.note", [], 0)
        reports.next()
        until_logged('"succeeded"', folder)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    text = (folder.parent / "listeners.log").read_text()
    lines = {line["event"]: line for line in map(json.loads, text.splitlines())}
    assert lines["functions"]["outcome"] == "loaded"
    assert client.function_list(library="expirebridge")
    assert {"listening", "gap", "started", "succeeded", "stopping", "stopped"} <= set(lines)
    assert lines["succeeded"]["task"] == task.id
    assert lines["succeeded"]["level"] == "debug"
    assert datetime.fromisoformat(lines["succeeded"]["time"]).tzinfo is not None


@pytest.mark.rest
def test_a_quiet_log_tells_only_what_goes_wrong(url: str, bridge: Bridge, folder: Path) -> None:
    with listener(url, folder, "--quiet") as process:
        good = bridge.make_task("acts.note", [], 0)
        bridge.make_task("acts.note", ["too", "many", "arguments"], 0)
        until_logged("failed acts.note", folder)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    found = bridge.get(good.id)
    assert found is not None
    assert found.state is State.SUCCEEDED
    lines = (folder.parent / "listeners.log").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["ERROR"]


@pytest.mark.rest
def test_after_the_grace_time_async_handlers_are_released_and_plain_ones_left(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with listener(url, folder, "--grace", "0.2") as process:
        held = bridge.make_task("acts.hold", [], 0)
        blocked = bridge.make_task("acts.block", [], 0)
        reports.next()
        reports.next()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    states = [bridge.get(id) for id in (held.id, blocked.id)]
    assert [found and found.state for found in states] == [State.PENDING, State.RUNNING]


def test_a_second_signal_ends_the_grace_time(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with listener(url, folder, "--grace", "60") as process:
        held = bridge.make_task("acts.hold", [], 0)
        blocked = bridge.make_task("acts.block", [], 0)
        reports.next()
        reports.next()
        process.send_signal(signal.SIGTERM)
        until_logged("claiming no more", folder)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    states = [bridge.get(id) for id in (held.id, blocked.id)]
    assert [found and found.state for found in states] == [State.PENDING, State.RUNNING]


def test_a_listener_whose_server_is_restarted_carries_on(
    url: str, bridge: Bridge, folder: Path, reports: Reports, client: redis.Redis
) -> None:
    """The connections break, all of them at once, twice."""
    with listener(url, folder):
        for _ in range(2):
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            task = bridge.make_task("acts.note", [], 0.05)
            assert reports.next().id == task.id


@pytest.mark.rest
def test_threads_that_compute_give_way_to_the_event_loop_soon(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "lock.py").write_text("import sys\ndef held():\n    return sys.getswitchinterval()")
    with listener(url, folder):
        task = bridge.make_task("lock.held", [], 0)
        while not (found := bridge.get(task.id)) or not found.state.finished:
            time.sleep(0.01)
    assert found.result == pytest.approx(0.0002)


@pytest.mark.rest
def test_what_a_listener_has_loaded_is_not_looked_through_for_garbage(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "kept.py").write_text("import gc\ndef count():\n    return gc.get_freeze_count()")
    with listener(url, folder):
        task = bridge.make_task("kept.count", [], 0)
        while not (found := bridge.get(task.id)) or not found.state.finished:
            time.sleep(0.01)
    assert isinstance(found.result, int)
    assert found.result > 10_000


def test_signals_suspend_and_resume_a_listener(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with listener(url, folder) as process:
        held = bridge.make_task("acts.wait", [], 0)
        assert reports.next().id == held.id
        process.send_signal(signal.SIGTSTP)
        until_logged("suspended", folder)
        waiting = bridge.make_task("acts.note", [], 0)
        reports.release()
        until_logged("nothing runs", folder)
        assert reports.next().word == "ended"
        found = bridge.get(waiting.id)
        assert found is not None
        assert found.state is State.PENDING
        process.send_signal(signal.SIGCONT)
        assert reports.next().id == waiting.id
        # systemd sends SIGCONT behind each SIGTERM.
        for number in (signal.SIGTSTP, signal.SIGTERM, signal.SIGCONT):
            process.send_signal(number)
        assert process.wait(PATIENCE) == 0


def test_a_listener_has_nothing_loaded_that_only_commands_use(
    server: AnyServer, url: str, folder: Path, bridge: Bridge, reports: Reports
) -> None:
    """Its command line is what was typed, all the same."""
    (folder / "looking.py").write_text(
        "import sys\n"
        "from tests.kit.processes import report\n"
        "def look():\n"
        "    heavy = {'typer', 'pydantic', 'rich', 'expirebridge.cli.application'}\n"
        "    report(','.join(sorted(heavy & set(sys.modules))) or 'light')\n"
    )
    words = ["--tasks", str(folder), "--url", url, "--lease", "7", "--load-functions"]
    env = {"REPORTS_PORT": str(server.port), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*COMMAND, "listen", *words], env=os.environ | env) as process:
        try:
            bridge.make_task("looking.look", [], 0)
            assert reports.next().word == "light"
            line = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        finally:
            process.kill()
    assert line[line.index(b"--lease") + 1] == b"7"
    assert b"listen" in line
    assert b"EXPIREBRIDGE_LISTEN" in environment  # as it began: it was replaced by itself


@pytest.mark.rest
def test_the_options_of_another_listener_are_not_taken(url: str) -> None:
    environment = {**os.environ, "EXPIREBRIDGE_LISTEN": '1 {"workers": "1"}'}
    counted = subprocess.run(
        [sys.executable, "-m", "expirebridge", "count", "--json", "--url", url],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(counted.stdout)["pending"] == 0


@pytest.mark.rest
def test_a_program_that_calls_the_command_itself_is_not_begun_again(folder: Path) -> None:
    program = (
        "import sys; print('begun', flush=True)\n"
        "from expirebridge.cli.main import run\n"
        f"run(['listen', '--url', 'redis://127.0.0.1:1/1', '--tasks', {str(folder)!r}])\n"
    )
    for words in (["-c", program, "listen"], ["-", "listen"]):
        ended = subprocess.run(
            [sys.executable, *words], input=program, capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (1, "begun\n")
        assert "no answer from the server" in ended.stderr


@pytest.mark.rest
def test_ctrl_c_while_handlers_are_imported_ends_it_without_a_traceback(
    url: str, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\nprint('importing', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "expirebridge", "listen", "--url", url, "--tasks", tmp_path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
