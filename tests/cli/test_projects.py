"""A project of one's own: begun by the command, and listened to while it is written."""

import configparser
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, Settings
from expirebridge.ledger.engine import read_url
from tests.kit.invoked import invoke, run
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND, ROOT, Reports, listener


def test_a_new_project_runs_as_it_is(url: str, bridge: Bridge, tmp_path: Path) -> None:
    project = tmp_path / "project"
    told = invoke("init", str(project), url=url)
    files = {line.removeprefix("wrote ") for line in told.splitlines() if line.startswith("wrote ")}
    assert files == {str(path) for path in project.rglob("*") if path.is_file()}
    producer = (project / "make_task.py").read_text().replace('"5s"', "0")
    with listener(url, project / "tasks"):
        made = subprocess.run(
            [sys.executable, "-c", producer], env=os.environ | {"EXPIREBRIDGE_URL": url},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        id = made.stdout.split()[0]
        while (task := bridge.get(id)) and not task.state.finished:
            pass
    assert task is not None
    assert task.state == "succeeded"
    assert f"{id}: remind user 42: stand up" in (project / "listeners.log").read_text()
    assert (project / "redis.conf").read_text() == (ROOT / "redis.conf").read_text()


def test_the_unit_starts_a_command_that_is_there(url: str, tmp_path: Path) -> None:
    invoke("init", str(tmp_path), url=url)
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(tmp_path / "expirebridge.service")
    service = unit["Service"]
    assert service["WorkingDirectory"] == str(tmp_path)
    program, *words = service["ExecStart"].split()
    assert Path(program) == Path(sys.executable).with_name("expirebridge")
    assert "--tasks" in run(words[0], "--help").stdout
    verify = shutil.which("systemd-analyze")
    if verify and Path(program).exists():
        checked = subprocess.run(
            [verify, "verify", tmp_path / "expirebridge.service"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "expirebridge.service" not in checked.stderr


def test_the_unit_has_its_urls_from_a_file_that_only_the_owner_may_read(
    url: str, tmp_path: Path
) -> None:
    old = os.umask(0)
    try:
        invoke("init", str(tmp_path), url=url)
    finally:
        os.umask(old)
    unit = (tmp_path / "expirebridge.service").read_text()
    file = tmp_path / "expirebridge.env"
    assert f"\nEnvironmentFile={file}\n" in unit
    assert "\nEnvironment=" not in unit
    assert "redis://" not in unit
    assert stat.filemode(file.stat().st_mode) == "-rw-------"
    lines = file.read_text().splitlines()
    assert "EXPIREBRIDGE_URL=redis://localhost:6379/1" in lines
    [ledger] = [line.removeprefix("#") for line in lines if "EXPIREBRIDGE_LEDGER=" in line]
    read_url(ledger.partition("=")[2])
    Settings.read(ledger=ledger.partition("=")[2])


@pytest.mark.rest
def test_the_compose_file_installs_the_wheel_that_it_says_how_to_build(
    url: str, tmp_path: Path
) -> None:
    invoke("init", str(tmp_path), url=url)
    compose = (tmp_path / "compose.yaml").read_text()
    [build] = re.findall(r"^# +python -m (build --wheel --outdir .*)$", compose, re.MULTILINE)
    words = [sys.executable, "-m", *build.split()]
    subprocess.run(words, cwd=ROOT, capture_output=True, check=True)
    [installed] = re.findall(r"pip install --quiet \./(\S+) &&", compose)
    assert len(list(tmp_path.glob(installed))) == 1


def test_what_is_there_is_not_written_over(url: str, tmp_path: Path) -> None:
    (tmp_path / "redis.conf").write_text("mine")
    result = run("init", tmp_path)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "expirebridge: redis.conf: already there; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["redis.conf"]


def test_a_listener_starts_anew_when_a_handler_changes(
    url: str, client: redis.Redis, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    port = client.get_connection_kwargs()["port"]
    module = folder / "live.py"
    write = "from tests.kit.processes import report\ndef speak(): report('{}')\n"
    module.write_text(write.format("one"))
    process = subprocess.Popen(
        [*COMMAND, "listen", "--reload", "--tasks", folder, "--url", url],
        env=os.environ | {"REPORTS_PORT": str(port), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        bridge.make_task("live.speak", [], 0)
        first = reports.next()
        assert first.word == "one"
        module.write_text("what is this?\n")  # does not import: it waits for the next change
        while bridge.count().listeners:
            time.sleep(0.05)
        module.write_text(write.format("two"))
        bridge.make_task("live.speak", [], 0)
        second = reports.next()
        assert (second.word, second.pid == first.pid) == ("two", False)
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert bridge.count().listeners == 0
    finally:
        process.kill()
        process.wait()
