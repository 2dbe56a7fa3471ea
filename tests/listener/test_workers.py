"""`listen --workers`: several listeners, their parent, and what becomes of them."""

import json
import os
import pty
import random
import re
import signal
import socket
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from expirebridge import Bridge, State
from tests.kit import invoked
from tests.kit.patience import PATIENCE
from tests.kit.processes import (
    COMMAND,
    ROOT,
    Reports,
    children_of,
    launched,
    log_of,
    run,
    until_ended,
    until_logged,
    workers,
)


def events_of(folder: Path) -> list[dict[str, object]]:
    """The lines of a log in JSON; the command's last word, if it fails, is not one."""
    return [json.loads(line) for line in log_of(folder).splitlines() if line.startswith("{")]


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


# What they do


@pytest.mark.rest
def test_workers_share_the_tasks_and_one_check_is_for_all(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with workers(url, folder, 3, "--concurrency", "1") as parent:
        for _ in range(3):
            bridge.make_task("acts.wait", [], 0)
        started = [reports.next() for _ in range(3)]
        assert {each.pid for each in started} == set(children_of(parent.pid))
        assert len(set(children_of(parent.pid))) == 3
        reports.release()
        checked = run("check", "--here", url=url)
    assert checked.returncode == 0
    assert checked.stdout.startswith("ok: 3 listeners beat")


@pytest.mark.rest
def test_one_worker_is_a_listener_without_a_parent(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with launched(url, folder, "--workers", "1") as process:
        bridge.make_task("acts.note", [], 0)
        assert reports.next().pid == process.pid
        assert children_of(process.pid) == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    assert "worker" not in log_of(folder)


LIFESPAN = """
import subprocess, sys
from tests.kit.processes import _reporting_client
from expirebridge import hook, lifespan
import os

@lifespan
async def noted():
    _reporting_client().rpush("life", f"opened {os.getpid()}")
    yield
    _reporting_client().rpush("life", f"closed {os.getpid()}")

@hook
def note(event):
    if type(event).__name__ == "Started":
        _reporting_client().rpush("life", f"hooked {os.getpid()}")

def start_another():
    code = "import os; print('EXPIREBRIDGE_WORKER' in os.environ)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
"""


@pytest.mark.rest
def test_each_worker_has_its_own_lifespans_and_hooks(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    (folder / "life.py").write_text(LIFESPAN)
    with workers(url, folder, 2, "--concurrency", "1") as parent:
        pids = children_of(parent.pid)
        for _ in range(2):
            bridge.make_task("acts.wait", [], 0)
        assert {reports.next().pid for _ in range(2)} == set(pids)
        reports.release()
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 0
    lines: list[bytes] = reports.client.lrange("life", 0, -1)  # type: ignore[assignment]
    expected = {f"{what} {pid}" for what in ("opened", "hooked", "closed") for pid in pids}
    assert Counter(line.decode() for line in lines) == Counter(expected)


@pytest.mark.rest
def test_what_a_handler_starts_does_not_take_itself_for_a_worker(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "life.py").write_text(LIFESPAN)
    with workers(url, folder, 2):
        task = bridge.make_task("life.start_another", [], 0)
        while not (found := bridge.get(task.id)) or not found.state.finished:
            time.sleep(0.01)
    assert found.result == "False\n"


@pytest.mark.rest
@pytest.mark.parametrize("form", ["text", "json"])
def test_each_line_of_the_log_has_the_number_of_its_worker(
    url: str, folder: Path, form: str
) -> None:
    with workers(url, folder, 2, "--log-format", form) as parent:
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 0
    if form == "json":
        said = {(line.get("worker"), line["event"]) for line in events_of(folder)}
    else:
        found = re.findall(r"INFO +worker (\d): (listening|stopped)", log_of(folder))
        said = {(int(number), event) for number, event in found}
    assert {(n, event) for n in (1, 2) for event in ("listening", "stopped")} <= said


def two_ports() -> int:
    """The first of two free ports in a row, below those that connections and other tests take."""
    while True:
        first = random.randrange(20_000, 32_000)  # noqa: S311 - no secret
        with suppress(OSError), ExitStack() as stack:
            for port in (first, first + 1):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


@pytest.mark.rest
def test_the_metrics_of_each_worker_have_a_port_in_a_row(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    first = two_ports()
    with workers(url, folder, 2, "--metrics-port", str(first), "--concurrency", "1") as parent:
        for _ in range(2):
            bridge.make_task("acts.wait", [], 0)
        assert {reports.next().pid for _ in range(2)} == set(children_of(parent.pid))
        reports.release()
        while bridge.count().succeeded < 2:
            time.sleep(0.01)
        for port in (first, first + 1):
            address = f"http://127.0.0.1:{port}/metrics"
            done = 'expirebridge_attempts_total{function="acts.wait",outcome="succeeded"} 1.0'
            # An outcome is counted a moment after it is recorded.
            while done not in urllib.request.urlopen(address, timeout=PATIENCE).read().decode():
                time.sleep(0.01)


@pytest.mark.rest
def test_what_modules_listen_for_is_passed_on_to_each_worker(url: str, folder: Path) -> None:
    (folder / "dumps.py").write_text(
        "import faulthandler, signal\nfaulthandler.register(signal.SIGUSR1)\n"
    )
    with workers(url, folder, 2) as parent:
        parent.send_signal(signal.SIGUSR1)
        until_logged("Current thread", folder, times=2, process=parent)


@pytest.mark.rest
def test_a_signal_suspends_all_workers_and_those_that_are_started_meanwhile(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with workers(url, folder, 2) as parent:
        parent.send_signal(signal.SIGTSTP)
        until_logged("nothing runs in this listener", folder, times=2, process=parent)
        os.kill(children_of(parent.pid)[0], signal.SIGKILL)
        until_logged("nothing runs in this listener", folder, times=3, process=parent)
        waiting = bridge.make_task("acts.note", [], 0)
        time.sleep(0.3)  # time passes: none of them claims it
        assert reports.client.llen("reports") == 0
        parent.send_signal(signal.SIGCONT)
        assert reports.next().id == waiting.id
        until_logged("claiming again", folder, times=2, process=parent)
        parent.send_signal(signal.SIGTSTP)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 0


# How they end


def test_no_worker_outlives_a_parent_that_is_killed(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with workers(url, folder, 2, "--grace", "0.2", "--concurrency", "1") as parent:
        held = [bridge.make_task("acts.hold", [], 0).id for _ in range(2)]
        assert {reports.next().id for _ in range(2)} == set(held)
        with until_ended(children_of(parent.pid)):
            parent.kill()
    # They stopped in order: their tasks were given back, and did not wait for a lease.
    found = [bridge.get(id) for id in held]
    assert [task and task.state for task in found] == [State.PENDING] * 2
    assert bridge.count().listeners == 0


@pytest.mark.rest
def test_a_worker_that_is_still_starting_does_not_outlive_its_parent(
    url: str, folder: Path
) -> None:
    (folder / "slow.py").write_text("import time\nprint('slow', flush=True)\ntime.sleep(60)")
    with launched(url, folder, "--workers", "2") as parent:
        until_logged("slow", folder)
        with until_ended(children_of(parent.pid)):
            parent.kill()


BLOCKS = """
import time
from expirebridge.listener import parent
from tests.kit.processes import report

parent.ENDS_WITHIN = 0.2

async def block():
    report("started")
    time.sleep(60)
"""


@pytest.mark.rest
def test_a_worker_whose_loop_is_blocked_does_not_outlive_its_parent_for_long(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    (folder / "blocks.py").write_text(BLOCKS)
    with workers(url, folder, 2, "--grace", "0.2") as parent:
        bridge.make_task("blocks.block", [], 0)
        reports.next()
        with until_ended(children_of(parent.pid)):
            parent.kill()


def test_a_killed_worker_is_restarted_and_its_task_runs_again(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with workers(url, folder, 2, "--lease", "1", "--log-format", "json") as parent:
        task = bridge.make_task("acts.hold", [], 0)
        first = reports.next()
        before = set(children_of(parent.pid))
        with until_ended([first.pid]):
            os.kill(first.pid, signal.SIGKILL)
        second = reports.next()
        until_logged('"worker ready"', folder, times=3)
        after = set(children_of(parent.pid))
    assert (first.id, second.id) == (task.id, task.id)
    assert (first.attempt, second.attempt) == (1, 1)  # the lapse used no attempt
    assert len(after) == 2
    assert before - after == {first.pid}
    [ended] = [line for line in events_of(folder) if line["event"] == "worker ended"]
    assert (ended["code"], ended["level"]) == (128 + signal.SIGKILL, "warning")


def test_a_worker_that_is_stuck_finishes_the_rest_and_is_restarted(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    options = ("--grace", "0.1", "--log-format", "json")
    with workers(url, folder, 2, *options) as parent:
        beside = [bridge.make_task(f"acts.{name}", [1], 0).id for name in ("hold", "block") * 4]
        overrun = bridge.make_task("acts.block", [], 0, timeout=0.1, retry=[]).id
        told = [reports.next() for _ in range(2 * len(beside) + 1)]
        [stuck] = [report.pid for report in told if report.id == overrun]
        until_logged('"worker ready"', folder, times=3)
        assert stuck not in children_of(parent.pid)
        assert reports.client.llen("reports") == 0
        failed = bridge.get(overrun)
    words = Counter((report.id, report.word) for report in told if report.id != overrun)
    assert words == Counter((id, word) for id in beside for word in ("started", "ended"))
    assert failed is not None
    assert (failed.state, failed.lapses) == (State.FAILED, 0)
    assert failed.error == "timed out after 0.1 s and could not be stopped"
    [ended] = [line for line in events_of(folder) if line["event"] == "worker ended"]
    assert ended["code"] == 4


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.rest)]
)
def test_a_signal_lets_the_handlers_of_all_workers_finish(
    url: str, bridge: Bridge, folder: Path, reports: Reports, number: signal.Signals
) -> None:
    with workers(url, folder, 2, "--concurrency", "1", "--grace", str(PATIENCE)) as parent:
        held = [bridge.make_task("acts.wait", [], 0).id for _ in range(2)]
        assert {reports.next().word for _ in range(2)} == {"started"}
        with until_ended(children_of(parent.pid)):
            parent.send_signal(number)
            until_logged("claiming no more", folder, times=2)
            late = bridge.make_task("acts.note", [], 0)
            reports.release()
            assert parent.wait(PATIENCE) == 0
    found = [bridge.get(id) for id in (*held, late.id)]
    assert [task and task.state for task in found] == [State.SUCCEEDED] * 2 + [State.PENDING]
    assert bridge.count().listeners == 0


@pytest.mark.rest
def test_a_supervisor_may_signal_the_workers_too(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    """systemd sends SIGTERM to every process of a service, and the parent passes its own on."""
    with workers(url, folder, 2, "--concurrency", "1", "--grace", str(PATIENCE)) as parent:
        held = [bridge.make_task("acts.wait", [], 0).id for _ in range(2)]
        assert {reports.next().word for _ in range(2)} == {"started"}
        signal_all([*children_of(parent.pid), parent.pid], signal.SIGTERM)
        until_logged("claiming no more", folder, times=2)
        reports.release()
        assert parent.wait(PATIENCE) == 0
    found = [bridge.get(id) for id in held]
    assert [task and task.state for task in found] == [State.SUCCEEDED] * 2


@pytest.mark.rest
def test_the_second_signal_ends_the_grace_time(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with workers(url, folder, 2, "--concurrency", "1") as parent:
        held = [bridge.make_task("acts.hold", [], 0).id for _ in range(2)]
        assert {reports.next().word for _ in range(2)} == {"started"}
        parent.send_signal(signal.SIGTERM)
        until_logged("claiming no more", folder, times=2)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 0
    found = [bridge.get(id) for id in held]
    assert [task and task.state for task in found] == [State.PENDING] * 2
    assert log_of(folder).count("its listener stopped") == 2


@pytest.mark.rest
def test_a_worker_that_does_not_stop_is_killed_and_the_exit_code_says_so(
    url: str, folder: Path
) -> None:
    (folder / "life.py").write_text(
        "import asyncio\nfrom expirebridge import lifespan\n"
        "@lifespan\nasync def stays():\n    yield\n    await asyncio.Event().wait()\n"
    )
    # The parent's own limit is what is made short here: it imports no handlers.
    (folder.parent / "sitecustomize.py").write_text(
        "from expirebridge.listener import parent\nparent.ENDS_WITHIN = 0.5\n"
    )
    paths = f"{folder.parent}{os.pathsep}{ROOT}"
    with (
        workers(url, folder, 2, "--grace", "0", PYTHONPATH=paths) as parent,
        until_ended(children_of(parent.pid)),
    ):
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 128 + signal.SIGKILL
    assert log_of(folder).count("did not stop in time: killed") == 2


@contextmanager
def in_terminal(url: str, folder: Path, *, nohup: bool = False) -> Iterator[tuple[int, int]]:
    """A parent of two workers in a terminal of its own: its number, and the terminal's."""
    (folder.parent / "listeners.log").touch()
    pid, terminal = pty.fork()
    if pid == 0:
        # The tests themselves may run under nohup.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        command = [*COMMAND, "listen", "--tasks", str(folder), "--url", url, "--workers", "2"]
        os.environ |= {"PYTHONPATH": str(ROOT), "REPORTS_PORT": "1"}
        os.dup2(os.open(folder.parent / "listeners.log", os.O_WRONLY | os.O_APPEND), 2)
        os.execv(command[0], command)  # noqa: S606
    try:
        until_logged("is ready", folder, times=2)
        with until_ended([pid, *children_of(pid)]):
            yield pid, terminal
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.rest
def test_a_closed_terminal_ends_them_all(url: str, folder: Path) -> None:
    """It sends SIGHUP, too, which otherwise replaces workers."""
    with in_terminal(url, folder) as (_, terminal):
        os.close(terminal)
    assert "replacing" not in log_of(folder)


@pytest.mark.rest
def test_under_nohup_they_go_on_without_their_terminal(url: str, folder: Path) -> None:
    with in_terminal(url, folder, nohup=True) as (pid, terminal):
        os.close(terminal)
        while "replacing" not in log_of(folder):  # the next one that comes is no hangup
            os.kill(pid, signal.SIGHUP)
            time.sleep(0.05)
        os.kill(pid, signal.SIGTERM)


@pytest.mark.rest
def test_ctrl_c_in_the_terminal_ends_them_all_with_their_grace_time(
    url: str, bridge: Bridge, folder: Path
) -> None:
    (folder / "held.py").write_text("import asyncio\nasync def hold(): await asyncio.sleep(0.5)\n")
    with in_terminal(url, folder) as (_, terminal):
        task = bridge.make_task("held.hold", [], 0)
        while bridge.count().running < 1:
            time.sleep(0.01)
        os.write(terminal, b"\x03")
    found = bridge.get(task.id)
    assert found is not None
    assert found.state is State.SUCCEEDED


# What cannot start


@pytest.mark.rest
def test_what_no_worker_can_start_with_is_said_once(url: str, folder: Path) -> None:
    (folder / "wrong.py").write_text("import no_such_module")
    result = run("listen", "--tasks", folder, "--workers", "4", url=url)
    assert result.returncode == 1
    assert result.stderr.count("No module named 'no_such_module'") == 1
    assert result.stderr.count("does not import") == 1


def taken_port() -> socket.socket:
    """A socket that has a port, while the one below it is free: connections take many of those."""
    while True:
        taken = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)).close()
        except OSError:
            taken.close()
        else:
            return taken


@pytest.mark.rest
def test_a_worker_whose_port_is_taken_ends_them_all(url: str, folder: Path) -> None:
    with taken_port() as other:
        taken = other.getsockname()[1]
        words = ("--workers", "2", "--metrics-port", str(taken - 1))
        result = run("listen", "--tasks", folder, *words, url=url)
    assert result.returncode == 2
    assert result.stderr.count(f"metrics on 127.0.0.1:{taken}: ") == 1


DIES = """
import os, pathlib, signal
if pathlib.Path(__file__ + ".dies").exists():
    os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.mark.rest
def test_a_worker_that_dies_at_each_start_is_restarted_after_growing_pauses(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    (folder / "dies.py").write_text(DIES)
    with workers(url, folder, 2, "--log-format", "json") as parent:
        (folder / "dies.py.dies").touch()
        victim, other = children_of(parent.pid)
        os.kill(victim, signal.SIGKILL)
        until_logged('"worker ended"', folder, times=4)
        bridge.make_task("acts.note", [], 0)
        assert reports.next().pid == other
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(PATIENCE) == 128 + signal.SIGSEGV
    lines = [line for line in events_of(folder) if line.get("worker") == 1]
    ends = [line["code"] for line in lines if line["event"] == "worker ended"]
    assert ends == [137, 139, 139, 139]
    starts = [
        datetime.fromisoformat(str(line["time"])).timestamp()
        for line in lines if line["event"] == "worker started"
    ]  # fmt: skip
    # On a busy machine the victim may have lived long enough for no pause at all.
    assert starts[2] - starts[1] > 0.4
    assert starts[3] - starts[2] > 0.9


@pytest.mark.parametrize("text", ["0", "257", "two", "-1"])
def test_a_wrong_number_of_workers_is_refused(folder: Path, text: str) -> None:
    result = invoked.run("listen", "--tasks", folder, "--workers", text)
    assert result.returncode == 2
    assert result.stderr == (
        f"expirebridge: --workers {text}: it must be a whole number from 1 to 256, or auto\n"
    )


@pytest.mark.parametrize(
    ("words", "env", "fault"),
    [
        (("--processes", "0"), {}, "--processes 0: it must be a whole number, at least 1"),
        (("--process-memory", "63m"), {}, "--process-memory 63m: it must be from 64m to 4194303t"),
        (("--concurrency", "0"), {}, "--concurrency 0: it must be a whole number, at least 1"),
        (("--functions", "m.*,"), {}, "--functions m.*,: a pattern is empty"),
        (
            (),
            {"EXPIREBRIDGE_PROCESS_MEMORY": "much"},
            "EXPIREBRIDGE_PROCESS_MEMORY=much: give a size, such as 512m or 2g",
        ),
    ],
)
def test_what_is_refused_is_named_as_it_was_typed(
    folder: Path, words: tuple[str, ...], env: dict[str, str], fault: str
) -> None:
    result = invoked.run("listen", "--tasks", folder, *words, **env)
    assert (result.returncode, result.stderr) == (2, f"expirebridge: {fault}\n")


def test_more_workers_than_ports_are_refused(folder: Path) -> None:
    result = invoked.run("listen", "--tasks", folder, "--workers", "3", "--metrics-port", "65534")
    assert result.returncode == 2
    assert "3 workers need as many ports" in result.stderr


# How they are replaced


def test_a_new_version_that_cannot_start_replaces_one_worker_and_no_more(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with workers(url, folder, 2, "--log-format", "json") as parent:
        before = children_of(parent.pid)
        (folder / "wrong.py").write_text("import no_such_module")
        parent.send_signal(signal.SIGHUP)
        until_logged('"worker ended"', folder, times=2)
        assert set(before) & set(children_of(parent.pid)) == {before[1]}
        bridge.make_task("acts.note", [], 0)
        assert reports.next().pid == before[1]
        # Once it is mended, the next signal goes on at once, without the pause.
        (folder / "wrong.py").unlink()
        parent.send_signal(signal.SIGHUP)
        until_logged('"replaced"', folder)
        after = children_of(parent.pid)
        assert len(after) == 2
        assert not set(before) & set(after)


@pytest.mark.rest
def test_what_is_loaded_for_other_languages_is_loaded_once(url: str, folder: Path) -> None:
    with workers(url, folder, 2, "--load-functions", "--log-format", "json"):
        pass
    loads = [line.get("worker") for line in events_of(folder) if line["event"] == "functions"]
    assert loads == [1]


@pytest.mark.rest
def test_reload_works_with_workers(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with launched(url, folder, "--reload", "--workers", "2") as watching:
        until_logged("is ready", folder, times=2)
        [parent] = children_of(watching.pid)
        with until_ended([parent, *children_of(parent)]):
            (folder / "acts.py").write_text("async def note(): return 'changed'")
        until_logged("is ready", folder, times=4)
        task = bridge.make_task("acts.note", [], 0)
        while not (found := bridge.get(task.id)) or not found.state.finished:
            time.sleep(0.01)
        [parent] = children_of(watching.pid)
        with until_ended([parent, *children_of(parent)]):
            watching.send_signal(signal.SIGINT)
            watching.wait(PATIENCE)
    assert found.result == "changed"
