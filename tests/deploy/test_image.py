"""The image of deploy/Containerfile: built and run, where a Docker engine answers.

EXPIREBRIDGE_TEST_PYTHON_IMAGE is another image to build on, where no registry can be reached.
Containers have the machine's own network, so that they reach a test's server.
"""

import fcntl
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, State
from tests.kit import container
from tests.kit.patience import until
from tests.kit.processes import ROOT, Reports

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(not container.answers(), reason="needs a Docker engine"),
]

PYTHON_IMAGE = os.environ.get("EXPIREBRIDGE_TEST_PYTHON_IMAGE")
PAGE = (ROOT / "docs/how-to/containers.md").read_text()
IMAGE, APP = "expirebridge", "expirebridge-app"
HANDLERS = '''
"""Handlers that report, each with the path of a package that the image brought."""
import os
import time

import greenlet
import redis

from expirebridge import current_task

reports = redis.Redis(port=int(os.environ["REPORTS_PORT"]), db=2)


def report(word):
    task = current_task()
    line = f"{word} {task.id} {os.getpid()} {task.attempt} {time.time()}"
    reports.rpush("reports", line)


def hold(seconds):
    report(greenlet.__name__)
    time.sleep(seconds)
    report("ended")
'''


def docker(*words: str, cwd: Path = ROOT) -> str:
    """What this command of Docker's client printed."""
    done = subprocess.run(["docker", *words], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def inspected(name: str) -> dict[str, Any]:
    [found] = json.loads(docker("inspect", name))
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def image() -> str:
    """The image, built by the page's own command."""
    [block] = re.findall(r"```sh\n(docker build .*)\n```", PAGE)
    _, command, *words = block.split()
    options = ["--network", "host"]
    if PYTHON_IMAGE:
        options += ["--build-arg", f"PYTHON={PYTHON_IMAGE}"]
    # Another worker's build is not done again: its steps are found.
    with (Path(tempfile.gettempdir()) / "expirebridge-image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        docker(command, *options, *words)
    return IMAGE


@pytest.fixture(scope="module")
def app(image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of an application, as the page has it."""
    [text] = re.findall(r"```dockerfile\n# Containerfile\n(.*?)```", PAGE, re.DOTALL)
    folder = tmp_path_factory.mktemp("app")
    (folder / "Containerfile").write_text(text)
    (folder / "requirements.txt").write_text("greenlet\n")
    (folder / "tasks").mkdir(mode=0o755)
    (folder / "tasks" / "acts.py").write_text(HANDLERS)
    build = ("build", "--network", "host", "--file", "Containerfile", "--tag", APP, ".")
    docker(*build, cwd=folder)
    return APP


@contextmanager
def running(url: str, image: str, *words: str) -> Iterator[str]:
    """A container as deploy/ starts one, removed at the end; its health is asked each second."""
    port = url.rpartition(":")[2].partition("/")[0]
    name = docker(
        "run", "--detach", "--network", "host", "--read-only", "--tmpfs", "/tmp",  # noqa: S108
        "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--health-interval", "1s",
        "--health-retries", "1", "--health-start-period", "1s", "--env", f"EXPIREBRIDGE_URL={url}",
        "--env", f"REPORTS_PORT={port}", image, *words,
    )  # fmt: skip
    try:
        yield name
    finally:
        docker("rm", "--force", name)


def until_health(name: str, wanted: str) -> None:
    until(lambda: inspected(name)["State"]["Health"]["Status"] == wanted)


def logged(name: str) -> str:
    return subprocess.run(
        ["docker", "logs", name], capture_output=True, text=True, check=True
    ).stderr


def test_nothing_in_the_image_is_its_user_s(image: str) -> None:
    config = inspected(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.licenses"] == "MIT"
    look = "id -u; find / -xdev -user 10001 -not -path '/proc/*' 2>/dev/null; ls /var/lib/apt/lists"
    assert docker("run", "--rm", image, "sh", "-c", look) == "10001"
    with pytest.raises(AssertionError, match="Permission denied"):
        docker("run", "--rm", image, "touch", "/app/file")
    printed = docker("run", "--rm", image, "expirebridge", "--version")
    assert re.fullmatch(r"expirebridge \d+\.\d+\.\d+\w*", printed)


def test_a_listener_runs_is_healthy_and_finishes_what_runs(
    url: str, bridge: Bridge, reports: Reports, app: str
) -> None:
    with running(url, app) as name:
        until_health(name, "healthy")
        task = bridge.make_task("acts.hold", [2], 0)
        assert reports.next().word == "greenlet"
        docker("kill", "--signal", "TERM", name)
        assert docker("wait", name) == "0"
        assert reports.next().word == "ended"
    found = bridge.get(task.id)
    assert found is not None
    assert (found.state, found.attempt) == (State.SUCCEEDED, 1)


def test_the_first_process_passes_signals_on(url: str, bridge: Bridge, app: str) -> None:
    with running(url, app) as name:
        until_health(name, "healthy")
        assert docker("exec", name, "cat", "/proc/1/comm") == "tini"
        docker("kill", "--signal", "TSTP", name)
        until(lambda: "nothing runs" in logged(name))
        assert bridge.count().listeners == 1


def test_a_container_whose_listener_hangs_is_unhealthy(url: str, app: str) -> None:
    with running(url, app) as name:
        until_health(name, "healthy")
        pid = inspected(name)["State"]["Pid"]
        [listener] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[:1]
        docker("exec", name, "sh", "-c", f"kill -STOP {own_pid(int(listener))}")
        until_health(name, "unhealthy")


def own_pid(pid: int) -> int:
    """The number of a process in its container."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^NSpid:.*\t(\d+)$", status, re.MULTILINE)[0])


def test_a_container_without_a_listener_is_unhealthy(url: str, app: str) -> None:
    with running(url, app, "sleep", "600") as name:
        until_health(name, "unhealthy")
        [said, *_] = inspected(name)["State"]["Health"]["Log"]
        assert said["Output"].startswith("not ok: no listener beats")
