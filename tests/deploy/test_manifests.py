"""The files in deploy/: valid for those who read them, and what they start is started."""

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from expirebridge import Bridge, Task
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.durations import seconds_of
from tests.kit.patience import PATIENCE, until
from tests.kit.processes import ROOT, Reports, launched, log_of, run, until_logged

DEPLOY = ROOT / "deploy"
UNIT, COMPOSE, KUBERNETES = (
    DEPLOY / name for name in ("expirebridge.service", "compose.yaml", "kubernetes.yaml")
)
TO_END = 15
"""Seconds that a listener may take after its grace time."""
EXPOSURE = 1.4
"""Of the unit, as docs/how-to/deploy.md says."""


def grace_of(words: list[str]) -> float:
    """The value of --grace in a command line."""
    line = " ".join(words).replace("=", " ").split()
    return float(line[line.index("--grace") + 1])


def resources() -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all(KUBERNETES.read_text())}


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = resources()["Deployment"]["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    [found] = pod()["containers"]
    assert isinstance(found, dict)
    return found


def checked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False
    )


# Valid


@pytest.mark.parametrize(
    ("file", "checker", "planted"),
    [
        pytest.param(
            COMPOSE,
            ["check_jsonschema", "--builtin-schema", "vendor.compose-spec"],
            "cap_dropp",
            marks=pytest.mark.rest,
        ),
        (KUBERNETES, ["kubernetes_validate", "--strict"], "readOnlyRootFilesystems"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_a_manifest_is_valid(tmp_path: Path, file: Path, checker: list[str], planted: str) -> None:
    valid = checked(*checker, file)
    assert valid.returncode == 0, valid.stdout + valid.stderr
    wrong = tmp_path / file.name
    wrong.write_text(file.read_text().replace(planted[:-1], planted))
    assert checked(*checker, wrong).returncode != 0


def unit() -> configparser.SectionProxy:
    parsed = configparser.RawConfigParser(strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string(UNIT.read_text())
    return parsed["Service"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_reads_the_unit_and_rates_it_as_the_page_says(tmp_path: Path) -> None:
    file = tmp_path / UNIT.name
    # systemd looks whether the program is there.
    text = UNIT.read_text().replace(unit()["ExecStart"].split()[0], "/bin/true")
    verify = ["systemd-analyze", "verify", str(file)]
    for written, complains in ((text, False), (text.replace("=mixed", "=mixd"), True)):
        file.write_text(written)
        said = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert (UNIT.name in said.stderr) is complains, said.stderr
    file.write_text(text)
    overall = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", file],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()[-1]
    assert f": {EXPOSURE} " in overall
    assert f"exposure {EXPOSURE} of 10" in (ROOT / "docs/how-to/deploy.md").read_text()


# Time to stop


def test_each_gives_a_listener_time_to_drain() -> None:
    listener = yaml.safe_load(COMPOSE.read_text())["services"]["listener"]
    given = {
        "systemd": (float(unit()["TimeoutStopSec"]), unit()["ExecStart"].split()),
        "compose": (seconds_of(listener["stop_grace_period"], name="it"), listener["command"]),
        "kubernetes": (float(pod()["terminationGracePeriodSeconds"]), container()["args"]),
    }
    for what, (seconds, words) in given.items():
        assert seconds >= grace_of(words) + TO_END, what


# Started


def options() -> list[str]:
    """Those of the listener in Kubernetes, with any free port for its metrics."""
    program, command, folder, *words = container()["args"]
    assert (program, command, folder) == ("expirebridge", "listen", "--tasks=tasks")
    return [re.sub(r"^(--metrics-port)=\d+$", r"\1=0", word) for word in words]


@contextmanager
def replica(url: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A listener of the Deployment, for which the startup probe has succeeded."""
    with launched(url, folder, *options()) as process:
        program, *probe = container()["startupProbe"]["exec"]["command"]
        assert program == "expirebridge"
        until_logged("listening on", folder, process=process)
        until(lambda: run(*probe, url=url).returncode == 0, "the startup probe")
        yield process


def test_the_process_is_alive_when_its_server_is_not(folder: Path) -> None:
    probe = container()["livenessProbe"]
    with EmbeddedServer() as server, replica(server.url, folder):
        until_logged("metrics on ", folder)
        [port] = re.findall(r"metrics on http://0\.0\.0\.0:(\d+)/", log_of(folder))
        url = f"http://127.0.0.1:{port}{probe['httpGet']['path']}"
        assert httpx.get(url, timeout=PATIENCE).status_code == 200
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        hangs = httpx.get(url, timeout=PATIENCE)
        here = run(*container()["startupProbe"]["exec"]["command"][1:], url=server.url)
        os.kill(server.pid, signal.SIGKILL)
        gone = httpx.get(url, timeout=PATIENCE)
    assert (hangs.status_code, gone.status_code) == (200, 200)
    assert here.returncode == 1


def test_the_probe_of_a_start_waits_for_a_listener(url: str) -> None:
    words = container()["startupProbe"]["exec"]["command"][1:]
    assert run(*words, url=url).stdout == "not ok: no listener beats: due tasks will wait\n"


SPACE = timedelta(milliseconds=10)
AHEAD = 50
"""Tasks that are made in one call, half a second before the first of them is due."""
LATE = 5.0
"""Seconds: far above what a busy machine costs, far below what a lapsed lease would."""


@contextmanager
def a_task_every_10_ms(bridge: Bridge) -> Iterator[list[Task]]:
    """The tasks, made in a thread; when the block has ended, the last of them is made."""
    made: list[Task] = []
    over = threading.Event()

    def produce() -> None:
        due = datetime.now(UTC) + AHEAD * SPACE
        while not over.is_set():
            batch = [due + n * SPACE for n in range(AHEAD)]
            made.extend(
                bridge.make_tasks({"func": "acts.note", "args": [], "at": at} for at in batch)
            )
            due += AHEAD * SPACE
            over.wait((due - datetime.now(UTC) - AHEAD * SPACE).total_seconds())

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield made
    finally:
        over.set()
        producer.join()


@pytest.mark.rest
def test_a_rolling_update_loses_nothing_and_delays_nothing(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    """Two listeners, replaced one by one: a new one is up before an old one stops."""
    count = resources()["Deployment"]["spec"]["replicas"]
    with ExitStack() as stack:
        old = [stack.enter_context(replica(url, folder)) for _ in range(count)]
        with a_task_every_10_ms(bridge) as made:
            for process in old:
                stack.enter_context(replica(url, folder))
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0
        seen = [reports.next() for _ in made]
        assert reports.client.llen("reports") == 0
    assert sorted(one.id for one in seen) == sorted(task.id for task in made)
    assert {one.attempt for one in seen} == {1}
    at = {task.id: task.due.timestamp() for task in made}
    assert max(one.at - at[one.id] for one in seen) < LATE
